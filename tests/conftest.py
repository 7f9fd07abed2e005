"""Fixtures for all tests, and which of them must not run beside each other."""

import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from seaweedmq.coordination.local import LocalEtcd
from tests.support.etcd import running_etcd

settings.register_profile("untimed", deadline=None)  # how long an example takes says more about the machine
settings.load_profile("untimed")
# A shell that starts us in the background has SIGINT ignored, here and in every process that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent

GROUPS: Mapping[str, str] = {
    "faults": "measures",
    "integration": "measures",
    "test_benchmarks.py": "measures",
    "spark": "spark",
    "cli/test_demo.py": "spark",
    "test_readme.py": "spark",
}
"""Integration tests below these run one after another, in one worker: those that measure time or memory would measure
each other, and every Spark takes gigabytes. All others do so by module, for its cluster."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Tell ``pytest --dist loadgroup``; workers begin with the largest groups."""
    for item in items:
        if item.get_closest_marker("integration") is not None:
            item.add_marker(pytest.mark.xdist_group(_group(item.path.relative_to(TESTS))))


def _group(path: Path) -> str:
    """Of the integration tests in this file."""
    above = (str(parent) for parent in (path, *path.parents))
    return next((GROUPS[name] for name in above if name in GROUPS), str(path))


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    """A real etcd of this test's own."""
    async with running_etcd(tmp_path / "etcd") as running:
        yield running
