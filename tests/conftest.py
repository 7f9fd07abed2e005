"""Fixtures for all tests, and the grouping of tests that must not run in parallel."""

import os
import signal
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Spark forks its JVM from a process with running gRPC threads; gRPC's fork handlers may crash the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Java optimizes for longer runs than those of tests, at twice the CPU.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

from seaweedmq.coordination.local import LocalEtcd
from tests.support.etcd import running_etcd
from tests.support.moto_server import MotoServer, running_moto

settings.register_profile("untimed", deadline=None)  # an example's duration depends mainly on the machine
settings.register_profile("deep", deadline=None, max_examples=max(1, int(os.environ.get("EXAMPLES", "500"))))
settings.load_profile("untimed")
# A shell that starts tests in the background has SIGINT ignored, here and in every process that they start and
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent

MEASURING = ("faults", "integration", "cli/test_demo.py")
"""Paths of integration tests that measure time or memory against limits, or have leases of seconds that must not end
while a worker is busy. They are marked ``measures``; ``make test`` runs them one after another, with no other test in
parallel."""
PATIENT = tuple(f"integration/kafka/test_{name}.py" for name in ("interop", "matrix", "not_supported", "offsets"))
"""Exceptions: they check answers, not times, of brokers with default leases."""
KAFKA = "integration/kafka"
GROUPS: Mapping[str, str] = {"spark": "spark", "examples": "examples", "test_readme.py": "examples", KAFKA: KAFKA}
"""Groups of integration tests by path; one worker runs a group: Spark takes gigabytes, and tests with Kafka clients
share one cluster. All others are grouped by module, for its cluster. Two workers may have a Spark: one alone would end
last.
"""

WITH_SPARK = ("spark", "examples")
SPARK_TIMEOUT_S = 300
"""Each JVM takes half a minute to start in parallel to other tests on two slow cores, and many tests start one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--call-s-max", type=float, help="fail if a test that is not deep takes longer, in seconds")


def pytest_configure(config: pytest.Config) -> None:
    limit_s = config.getoption("--call-s-max")
    if limit_s is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowTests(limit_s))


class SlowTests:
    """Tests that take longer than ``make test`` allows; they make the run fail."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a slow test."""
        if report.when == "call" and report.duration > self._limit_s and "deep" not in report.keywords:
            self._found.append(f"{report.nodeid} took {report.duration:.0f} s of {self._limit_s:.0f}: mark it deep")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail the run if there is one."""
        if self._found and exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List them."""
        for line in self._found:
            terminalreporter.write_line(line, red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark groups for ``pytest --dist loadgroup``; workers begin with the largest groups."""
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
    """Provide a real etcd for one test."""
    async with running_etcd(tmp_path / "etcd") as running:
        yield running


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """Provide a server of S3 for all tests of this process, each of which creates a bucket of its own."""
    with running_moto() as server:
        yield server
