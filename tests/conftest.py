"""Fixtures for all tests, and which of them must not run beside each other."""

import os
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

# Spark starts its JVM by fork, from a process in which gRPC is at work: what gRPC does in the child then may end it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Java compiles for runs that are longer than those of tests, and takes twice the CPU with it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

from seaweedmq.coordination.local import LocalEtcd
from tests.support.etcd import running_etcd

settings.register_profile("untimed", deadline=None)  # how long an example takes says more about the machine
settings.register_profile("deep", deadline=None, max_examples=500)  # make test-deep
settings.load_profile("untimed")
# A shell that starts us in the background has SIGINT ignored, here and in every process that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent

MEASURING = ("faults", "integration", "cli/test_demo.py")
"""Integration tests below these measure time or memory against limits, or have leases of seconds that must not end
while a worker is busy. They are marked ``measures``, and ``make test`` runs them one after another with nothing beside
them."""
PATIENT = tuple(f"integration/kafka/test_{name}.py" for name in ("interop", "matrix", "not_supported", "offsets"))
"""But for these: they ask what is answered, not when, of brokers with leases as users have them."""
KAFKA = "integration/kafka"
GROUPS: Mapping[str, str] = {"spark": "spark", "examples": "examples", "test_readme.py": "examples", KAFKA: KAFKA}
"""Integration tests below these run in one worker: Spark takes gigabytes, and those with Kafka's clients share one
cluster. All others do so by module, for its cluster. Two workers may have a Spark: one alone would be the last to end.
"""

WITH_SPARK = ("spark", "examples")
SPARK_TIMEOUT_S = 300
"""Each JVM takes half a minute to start beside other tests on two slow cores, and many tests start one of their own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Tell ``pytest --dist loadgroup``; workers begin with the largest groups."""
    for item in items:
        if item.get_closest_marker("integration") is not None:
            path = item.path.relative_to(TESTS)
            above = [str(parent) for parent in (path, *path.parents)]
            group = next((GROUPS[name] for name in above if name in GROUPS), str(path))
            item.add_marker(pytest.mark.xdist_group(group))
            if group in WITH_SPARK and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
            if any(name in MEASURING for name in above) and str(path) not in PATIENT:
                item.add_marker(pytest.mark.measures)


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    """A real etcd of this test's own."""
    async with running_etcd(tmp_path / "etcd") as running:
        yield running
