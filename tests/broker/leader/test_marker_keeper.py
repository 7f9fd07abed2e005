"""The marker in the storage that shows how far etcd has come: see ``broker.leader.marker_keeper``."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from seaweedmq.broker.leader.marker_keeper import KEEP_INTERVAL_S
from seaweedmq.codec.state import keys
from seaweedmq.ports import Changes
from tests.broker.testbed import Testbed, story
from tests.sim.machines.meta import SimMetaStore

SLOW_S = 0.2


@story
async def test_a_new_leader_raises_the_marker_at_once(testbed: Testbed) -> None:
    """The first changes may follow a long time without a leader, and the marker must cover them before a restore."""
    watch = SimMetaStore.watch

    async def slow_watch(self: SimMetaStore, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        async for changes in watch(self, prefix, from_revision):
            await asyncio.sleep(SLOW_S)
            yield changes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimMetaStore, "watch", slow_watch)
        hosts = await testbed.cluster(2)
        testbed.leader().kill()
        await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
        lock = testbed.etcd.server.get(keys.LEADER)
        assert lock is not None
        await asyncio.sleep(2 * SLOW_S)
        assert 2 * SLOW_S < KEEP_INTERVAL_S / 2
        marker = await testbed.store.read_marker()
    assert marker is not None
    assert marker.etcd_revision > lock.create_revision
