"""Fixtures with every adapter that must fulfill the contract of the metadata store.

A test's event loop determines the adapter: in virtual time, where waiting costs nothing, the one in memory, and in
real time etcd.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path

import pytest

from tests.sim.machines.loop import SimLoop
from tests.support.etcd import running_etcd
from tests.support.meta import Backend, EtcdBackend, MemoryBackend

LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"memory": SimLoop, "etcd": asyncio.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops of a test that takes a ``backend``: one for each adapter."""
    return LOOPS if _asks(item) else {"real": asyncio.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that start etcd, before pytest selects by that mark."""
    for item in items:
        if isinstance(item, pytest.Function) and _asks(item) and LOOPS["etcd"] in item.callspec.params.values():
            item.add_marker(pytest.mark.integration)


def _asks(item: pytest.Item) -> bool:
    return "backend" in getattr(item, "fixturenames", ())


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """A metadata server of this test's own."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimLoop):
        yield MemoryBackend()
        assert not loop.failures()
        return
    async with running_etcd(tmp_path / "etcd") as etcd:
        real = EtcdBackend(etcd)
        yield real
        await real.close()
