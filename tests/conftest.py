"""Fixtures for all tests."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from seaweedmq.coordination.local import LocalEtcd
from tests.support.etcd import running_etcd

settings.register_profile("untimed", deadline=None)  # how long an example takes says more about the machine
settings.load_profile("untimed")
# A shell that starts us in the background has SIGINT ignored, here and in every process that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    """A real etcd of this test's own."""
    async with running_etcd(tmp_path / "etcd") as running:
        yield running
