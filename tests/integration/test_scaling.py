"""Segments of a topic on real brokers are split, merged, sealed and moved while records are published and read.

Topics that the balancer changes: ``tests/faults/users/flood.py``.
"""

import asyncio
from collections import defaultdict

import pytest

from seaweedmq import aio
from seaweedmq.model.ring import WHOLE_RING, covers_ring
from seaweedmq.model.segment import Segment
from tests.faults.machines.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

KEYS = 40
PAUSE_S = 0.002
DELIVERY_S = 60.0
READ_S = 60.0
TOPIC = "it/reshaped"


class Load:
    """Publishes records of many keys, each with a number that rises with every record of its key."""

    def __init__(self, client: aio.Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.sent = 0
        self.acknowledged = 0
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Load":
        self._publishing = asyncio.create_task(self._publish())
        await self.reach(2 * KEYS)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._publishing.cancel()
            return
        await self.reach(self.acknowledged + 2 * KEYS)
        self._stop.set()
        await self._publishing

    async def reach(self, count: int) -> None:
        """Wait until so many records are acknowledged."""
        async with asyncio.timeout(DELIVERY_S):
            while self.acknowledged < count and not self._publishing.done():  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0.01)
        if self._publishing.done():
            self._publishing.result()

    async def _publish(self) -> None:
        async with self.client.publisher(self.topic, delivery_timeout_s=DELIVERY_S) as publisher:
            while not self._stop.is_set():
                key, number = self.sent % KEYS, self.sent // KEYS
                receipt = await publisher.send(b"%d" % number, key=b"key-%d" % key)
                receipt.add_done_callback(self._note)
                self.sent += 1
                await asyncio.sleep(PAUSE_S)
            await publisher.flush(DELIVERY_S)

    def _note(self, receipt: "asyncio.Future[aio.Receipt]") -> None:
        if not receipt.cancelled() and receipt.exception() is None:
            self.acknowledged += 1


class Reader:
    """Follows the topic while it changes."""

    def __init__(self, client: aio.Client, topic: str) -> None:
        self.numbers: dict[bytes, list[int]] = defaultdict(list)
        self.count = 0
        self._reading = asyncio.create_task(self._read(client, topic))

    async def _read(self, client: aio.Client, topic: str) -> None:
        async with client.subscriber(topic, start="earliest") as subscriber:
            async for message in subscriber:
                assert message.key is not None
                self.numbers[message.key].append(int(message.value))
                self.count += 1

    async def until(self, count: int) -> None:
        async with asyncio.timeout(READ_S):
            while self.count < count and not self._reading.done():  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0.01)
        if self._reading.done():
            self._reading.result()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})


async def open_segments(cluster: Cluster) -> list[Segment]:
    found = sorted(await cluster.open_segments(TOPIC), key=lambda s: s.slots)
    assert covers_ring((s.slots for s in found), WHOLE_RING)
    return found


async def test_segments_are_split_merged_and_moved_by_hand_under_the_feet_of_publishers_and_subscribers(
    cluster: Cluster,
) -> None:
    async with aio.connect(cluster.bootstrap) as client:
        admin = client.admin
        await admin.create_topic(TOPIC, replicas=2, scaling="fixed")
        reader = Reader(client, TOPIC)

        async with Load(client, TOPIC) as load:

            async def settle() -> list[Segment]:
                await load.reach(load.acknowledged + 2 * KEYS)
                return await open_segments(cluster)

            for _ in range(2):
                for segment in await settle():
                    await admin.split_segment(TOPIC, segment.id)
                    await settle()
            assert len(await settle()) == 4
            for segment in await settle():
                elsewhere = next(b for b in sorted(await cluster.members()) if b != segment.primary)
                description = await admin.move_segment(TOPIC, segment.id, [elsewhere])
                moved = next(s for s in description.segments if segment.id in s.predecessors)
                assert (moved.primary, len(moved.replicas)) == (elsewhere, 2)
            while len(parts := await settle()) > 1:
                await admin.merge_segments(TOPIC, parts[0].id, parts[1].id)
            await admin.seal_segment(TOPIC, parts[0].id)
            await settle()

        await reader.until(load.sent)
        await reader.close()
        assert load.acknowledged == load.sent == reader.count
        for key in range(KEYS):
            count = len(range(key, load.sent, KEYS))
            assert reader.numbers[b"key-%d" % key] == list(range(count)), "every record of a key once and in order"
