"""Ranges of single segments, as Spark's tasks read them: exact, despite broken streams and sealing."""

import asyncio

import pytest

from seaweedmq.client.client import Client
from seaweedmq.errors import InvalidArgument, NotFound, OutOfRange
from seaweedmq.model.messages.subscribe import EARLIEST, Start, StartKind
from tests.client.fake_broker import FakeCluster
from tests.client.subscribe.test_subscribe import TOPIC, publish


def offset(value: int) -> Start:
    return Start(StartKind.OFFSET, value)


async def read(client: Client, ranges: dict[int, tuple[Start, int]]) -> list[tuple[int, int]]:
    """Return segment and offset of every record, in the order of arrival."""
    found = []
    async with client.read_ranges(TOPIC, ranges) as reading:
        async for batch in reading.batches():
            found += zip(batch["_segment"].to_pylist(), batch["_offset"].to_pylist(), strict=True)
    return found


async def test_a_stretch_of_each_segment_and_nothing_beyond(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    await publish(client, 0, 400)
    found = await read(client, {0: (offset(10), 25), 1: (EARLIEST, 5)})
    assert sorted(found) == [*((0, n) for n in range(10, 25)), *((1, n) for n in range(5))]
    assert [n for segment, n in found if segment == 0] == list(range(10, 25))
    assert await read(client, {}) == []


async def test_streams_that_break_and_a_segment_that_is_sealed_change_nothing(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 2_000)

    async def disturb() -> None:
        for _ in range(5):
            await asyncio.sleep(0.001)
            cluster.drop_connections()
        cluster.seal(TOPIC, 0, (10_000,))

    disturbing = asyncio.create_task(disturb())
    assert await read(client, {0: (offset(3), 1_990)}) == [(0, n) for n in range(3, 1_990)]
    await disturbing
    assert await read(client, {0: (offset(3), 1_990)}) == [(0, n) for n in range(3, 1_990)]


async def test_where_times_begin(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 40)  # record n at n + 1 microseconds
    await publish(client, 40, 60)
    times = {0: (Start(StartKind.TIME, 41), 100)}
    async with client.read_ranges(TOPIC, times) as reading:
        assert await reading.begins() == {0: 40}
    async with client.read_ranges(TOPIC, {0: (Start(StartKind.TIME, 5_000), 100)}) as reading:
        assert await reading.begins() == {0: 100}


async def test_what_can_not_be_read_is_told(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    with pytest.raises(NotFound, match="topic shop/orders has no segment 7: retention removed all of it"):
        await read(client, {7: (EARLIEST, 5)})
    with pytest.raises(InvalidArgument, match="the topic has no column 'colour'"):
        async with client.read_ranges(TOPIC, {0: (EARLIEST, 5)}, columns=["colour"]):
            pass


async def test_what_retention_removed_is_told(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 5)
    await publish(client, 5, 5)
    stored = cluster.stored(TOPIC)
    while stored.headers[0].base_offset < 5:
        del stored.headers[0], stored.frames[0], stored.ends[0]
    for end in (8, 4):
        with pytest.raises(OutOfRange, match="shop/orders#0: retention removed offsets 2 to 4 before they were read"):
            await read(client, {0: (offset(2), end)})
    assert await read(client, {0: (EARLIEST, 8)}) == [(0, n) for n in range(5, 8)]
