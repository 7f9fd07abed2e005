"""Deletion of records before an offset: no reader gets them, their files go, and later records stay."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT, document_path
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.codec.state.metadata import low_watermarks_from_json
from seaweedmq.errors import InvalidArgument, NotFound, OutOfRange
from seaweedmq.model.messages.calls import (
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    RaiseLowWatermark,
    SealSegment,
    TopicStats,
)
from seaweedmq.model.messages.subscribe import Start, StartKind, SubscribeCredit
from seaweedmq.model.topic import LowWatermarks, Topic
from tests.broker.testbed import CONFIG, NAME, Host, Testbed
from tests.sim.machines.determinism import WALL_START_US

QUICK = replace(CONFIG, log_grace_s=4.0, partition_roll_age_s=2.0, maintenance_interval_s=1.0, segment_retention_s=20.0)


async def delete(host: Host, before: dict[int, int], uid: int = 0) -> dict[int, int]:
    done: dict[int, int] = await host.api.call(RaiseLowWatermark(NAME, before, uid))
    return done


def topic(host: Host) -> Topic:
    return host.inspect.view.topics[NAME]


async def begins(testbed: Testbed, host: Host, start: Start, segment: int = 0) -> int:
    reader = await (await testbed.primary(host, segment=segment)).subscriber(start, segment=segment)
    return reader.ready.start_offset


async def test_what_was_deleted_is_given_to_nobody(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2, QUICK)
    uid = (await testbed.topic(hosts[0], partitions=2)).topic.uid
    primary = await testbed.primary(hosts[0])
    await (await primary.publisher()).store(10)
    reader = await primary.subscriber(credit=1)
    await reader.until(1)
    assert await delete(hosts[1], {0: 6}, uid) == {0: 6}
    await testbed.until(lambda: all(topic(host).low_watermarks == (6,) for host in hosts))
    assert await begins(testbed, hosts[0], Start(StartKind.EARLIEST)) == 6
    assert await begins(testbed, hosts[0], Start(StartKind.OFFSET, 2)) == 6
    assert await begins(testbed, hosts[0], Start(StartKind.OFFSET, 8)) == 8
    assert await begins(testbed, hosts[0], Start(StartKind.TIME, WALL_START_US - 1)) == 6
    assert {s.segment: s.start_offset for s in await hosts[1].api.call(TopicStats(NAME))} == {0: 6, 1: 0}
    assert (await hosts[1].api.call(DescribeTopic(NAME))).topic.low_watermarks == (6,)
    assert [t.low_watermarks for t in await hosts[0].api.call(ListTopics())] == [(6,)]
    await reader.stream.send(SubscribeCredit(1 << 20))
    error = await reader.stream.failure()
    assert isinstance(error, OutOfRange)
    assert "was deleted with all before 6: start from the earliest" in str(error)
    await asyncio.sleep(1)
    document = topic_from_document(bytes(testbed.store.files[document_path(NAME, TOPIC_DOCUMENT)].data))
    assert document == topic(hosts[0])


async def test_it_never_comes_back_and_nothing_above_what_is_committed_is_deleted(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, QUICK)
    uid = (await testbed.topic(host, partitions=2)).topic.uid
    await (await host.publisher()).store(10)
    assert await delete(host, {0: 6}) == {0: 6}
    assert await delete(host, {0: 3, 1: 0}) == {0: 6, 1: 0}
    for before, kind, sentence in (
        ({0: 11}, OutOfRange, "has committed records up to offset 10, not to 11"),
        ({1: 1}, OutOfRange, "has committed records up to offset 0, not to 1"),
        ({0: 8, 2: 0}, InvalidArgument, "has no partition 2"),
    ):
        with pytest.raises(kind, match=sentence):
            await delete(host, before)
    with pytest.raises(NotFound, match="was deleted, and created again"):
        await delete(host, {0: 7}, uid + 1)
    assert topic(host).low_watermarks == (6,)
    assert await delete(host, {0: 10}) == {0: 10}
    assert await begins(testbed, host, Start(StartKind.EARLIEST)) == 10


async def test_segments_below_are_forgotten_and_readers_pass_through_them(testbed: Testbed) -> None:
    host = await testbed.single(QUICK, partitions=1)
    await (await host.publisher()).store(5)
    await host.api.call(SealSegment(NAME, 0))
    await (await host.publisher(segment=1)).store(5)
    await delete(host, {0: 7})
    reader = await host.subscriber(segment=0)
    assert reader.ready.start_offset == 5, "its end"
    assert await begins(testbed, host, Start(StartKind.EARLIEST), segment=1) == 7
    assert await begins(testbed, host, Start(StartKind.TIME, WALL_START_US - 1), segment=0) == 5
    await testbed.until(lambda: 0 not in host.inspect.view.segments_of(NAME))
    assert await begins(testbed, host, Start(StartKind.EARLIEST), segment=1) == 7


async def test_the_next_topic_of_the_name_has_nothing_deleted(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, QUICK)
    uid = (await testbed.topic(host, partitions=1)).topic.uid
    await (await host.publisher()).store(5)
    await delete(host, {0: 5})
    entry = testbed.etcd.server.get(keys.low_watermarks_key(NAME))
    assert entry is not None
    assert low_watermarks_from_json(entry.value) == LowWatermarks(name=NAME, uid=uid, offsets=(5,))
    await host.api.call(DeleteTopic(NAME))
    assert testbed.etcd.server.get(keys.low_watermarks_key(NAME)) is None
    await testbed.topic(host, partitions=1)
    assert topic(host).low_watermarks == ()
    assert await begins(testbed, host, Start(StartKind.EARLIEST)) == 0


async def test_two_who_delete_at_once_both_have_their_way(testbed: Testbed) -> None:
    hosts = await testbed.several(2, QUICK, partitions=2)
    for segment in (0, 1):
        await testbed.publish(segment, frames=9)
    await asyncio.gather(*(delete(hosts[n % 2], {n % 2: offset}) for n, offset in enumerate((3, 4, 5, 6, 7, 8))))
    await testbed.until(lambda: all(topic(host).low_watermarks == (7, 8) for host in hosts))
