"""Every adapter that must keep the contract of the metadata store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.etcd import running_etcd
from tests.support.meta import Backend, EtcdBackend, MemoryBackend


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.integration)])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """A metadata server of this test's own."""
    if request.param == "memory":
        yield MemoryBackend()
        return
    async with running_etcd(tmp_path / "etcd") as etcd:
        real = EtcdBackend(etcd)
        yield real
        await real.close()
