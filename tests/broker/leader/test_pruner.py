"""Metadata bounded by the live segments: old sequences and empty segments are pruned."""

import asyncio
import json
from dataclasses import replace

import pytest

from seaweedmq.broker.groups.registry import Groups
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, fence_path, log_path
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.documents import lineage_from_document, topic_from_document
from seaweedmq.coordination import description
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION
from seaweedmq.errors import InvalidArgument, NotFound, Unavailable
from seaweedmq.model.description import ALL, IDS_MAX, OPEN, SegmentSelection, TopicDescription
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.messages.calls import (
    AlterTopic,
    DescribeGroup,
    DescribeTopic,
    ReportEmptied,
    SealSegment,
    TopicStats,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicChange, TopicName
from tests.broker.joining import Joining
from tests.broker.testbed import CONFIG, NAME, Host, Testbed
from tests.doubles.memory_store import StorageOp

SMALL = replace(
    CONFIG,
    log_grace_s=4.0,
    log_roll_age_s=1.0,
    maintenance_interval_s=1.0,
    producer_retention_s=20.0,
    segment_retention_s=20.0,
)


def known(host: Host) -> dict[int, Segment]:
    return dict(host.inspect.view.segments[NAME])


def topic(host: Host) -> Topic:
    return host.inspect.view.topics[NAME]


def stored(testbed: Testbed, prefix: str) -> list[str]:
    return sorted(entry.key for entry in testbed.etcd.server.list(prefix).entries)


def offsets(testbed: Testbed) -> set[tuple[str, int]]:
    """Return group and segment of every committed offset."""
    return {keys.parse_offset_key(key)[1:] for key in stored(testbed, keys.topic_offsets_prefix(NAME))}


async def seals(host: Host, count: int) -> None:
    for _ in range(count):
        (segment,) = host.inspect.view.open_segments[NAME].values()
        await host.api.call(SealSegment(NAME, segment.id))


# --- producer sequences


async def test_descriptions_and_documents_have_no_sequences_and_etcd_gives_them_up_with_age(testbed: Testbed) -> None:
    host = await testbed.single(SMALL)
    await (await host.publisher()).store(3)
    await host.api.call(SealSegment(NAME, 0))
    assert [s.next_sequence for s in known(host)[0].sequences] == [3]
    assert known(host)[0].sequences_complete
    assert all(not s.sequences for s in (await host.api.call(DescribeTopic(NAME))).segments)
    await asyncio.sleep(1)
    document = bytes(testbed.store.files[document_path(NAME, LINEAGE_DOCUMENT)].data)
    assert b"sequences" not in document
    _, listed = lineage_from_document(document)
    assert listed[0] == replace(known(host)[0], sequences=(), sequences_complete=False)
    host.ahead_s = 1e9
    await asyncio.sleep(SMALL.producer_retention_s - 5)
    assert known(host)[0].sequences, "not before its time, even if the wall clock jumps"
    host.ahead_s = 0.0
    await testbed.until(lambda: not known(host)[0].sequences)
    assert not known(host)[0].sequences_complete, "a missing producer may be a pruned one"
    entry = testbed.etcd.server.get(keys.segment_key(NAME, 0))
    assert entry is not None
    assert json.loads(entry.value)["sequences"] == []


async def test_a_leader_whose_clock_was_ahead_keeps_nothing_for_longer(testbed: Testbed) -> None:
    host = await testbed.single(SMALL, retention_s=5.0)
    await (await host.publisher()).store(3)
    host.ahead_s = 1e9
    await seals(host, 2)
    host.ahead_s = 0.0
    await testbed.until(lambda: len(known(host)) == 1, 90)


# --- segments


async def test_segments_that_hold_nothing_any_more_are_forgotten_and_only_they(testbed: Testbed) -> None:
    host = await testbed.single(SMALL, retention_s=5.0)
    uid = topic(host).uid
    await (await host.publisher()).store(3)
    await testbed.store.fence(NAME, uid, 0)
    await seals(host, 5)
    await testbed.until(lambda: 0 not in known(host))
    began = testbed.loop.time()
    for opening in (host.subscriber, host.publisher):
        with pytest.raises(NotFound, match=r"segment 0 of test/topic was sealed long ago.*continue with"):
            await opening(segment=0)
    assert testbed.loop.time() - began < 0.5
    selection = SegmentSelection(open=False, sealed_above=None, ids=(0,))
    assert (await host.api.call(DescribeTopic(NAME, selection))).segments == ()
    await testbed.until(lambda: len(known(host)) == 1)
    (last,) = known(host).values()
    assert last.is_open
    assert last.id == 5
    assert topic(host).pruned == IdRanges(((0, 5),))
    assert stored(testbed, keys.segments_prefix(NAME)) == [keys.segment_key(NAME, 5)]
    await asyncio.sleep(1)
    document = topic_from_document(bytes(testbed.store.files[document_path(NAME, TOPIC_DOCUMENT)].data))
    assert document == topic(host)
    _, listed = lineage_from_document(bytes(testbed.store.files[document_path(NAME, LINEAGE_DOCUMENT)].data))
    assert [s.id for s in listed] == [5]
    assert listed[0].predecessors == (4,), "an id that needs no entry"
    await (await host.publisher(segment=5)).store(1)
    reader = await host.subscriber(segment=5)
    assert len(await reader.until(1)) == 1

    await testbed.until(lambda: fence_path(NAME, uid, 0) not in testbed.store.files)
    late = await testbed.store.create_log(NAME, 0, 0, "b-late", b"")
    await late.append([b"too late"])
    assert await testbed.store.is_fenced(NAME, uid, 0), "so nothing of it is acknowledged"
    await testbed.until(lambda: log_path(NAME, 0, 0, "b-late") not in testbed.store.files)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_partitions_leave_nothing_behind_in_rolling_restarts(testbed: Testbed, replicas: int) -> None:
    """Each broker that stops seals the segments it serves, and so does each broker that takes its share back."""
    hosts = await testbed.cluster(3, SMALL)
    name, idle = NAME, TopicName("test", "idle")
    await testbed.topic(hosts[0], name, partitions=6, replicas=replicas, retention_s=5.0)
    await testbed.topic(hosts[0], idle, partitions=6, replicas=replicas)

    def opened(host: Host, name: TopicName) -> dict[int, Segment]:
        return dict(host.inspect.view.open_segments[name])

    for _ in range(3):
        for number in range(3):
            for segment in opened(hosts[0], name).values():
                await testbed.publish(segment, frames=2)
            await hosts[number].stop()
            hosts[number] = await testbed.start(SMALL)
            await testbed.until(lambda: all(len(h.inspect.view.brokers) == 3 for h in hosts))
    assert topic(hosts[0]).next_segment > 6 * 3
    assert [s.high_watermark for s in await hosts[0].api.call(TopicStats(name))] == [2 * 3 * 3] * 6
    for one in (name, idle):
        await testbed.until(lambda one=one: len(hosts[0].inspect.view.segments_of(one)) == 6, patience_s=300)
        assert len(stored(testbed, keys.segments_prefix(one))) == 6
        assert len(hosts[0].inspect.view.topics[one].pruned.ranges) <= 7


async def test_groups_forget_the_offsets_of_pruned_segments_with_and_without_members(testbed: Testbed) -> None:
    host = await testbed.single(SMALL, retention_s=5.0)
    await (await host.publisher()).store(3)
    away = await Joining(testbed, "one").joined(host, "away")
    await away.until_owns(0)
    await away.commit({0: 3})
    await away.leave()
    there = await Joining(testbed, "one").joined(host, "there")
    await there.until_owns(0)
    await there.commit({0: 3})
    await seals(host, 2)
    await there.until_owns(2)
    assert {(g, s) for g, s in offsets(testbed) if s == 0} == {("away", 0), ("there", 0)}
    await testbed.until(lambda: len(known(host)) == 1)
    await testbed.until(lambda: {s for _, s in offsets(testbed)} <= {2})
    assert there.owns == {2}, "the member is still in the group"
    description = await host.api.call(DescribeGroup("away"))
    assert [s.segment for s in description.topics[0].segments] == [2]


async def test_the_leader_believes_a_report_about_its_own_topic_only_and_checks_the_rest(testbed: Testbed) -> None:
    host, other = await testbed.cluster(2, replace(SMALL, segment_retention_s=1_000.0))
    uid = (await testbed.topic(host, retention_s=5.0)).topic.uid
    await seals(host, 1)
    with pytest.raises(NotFound, match="was deleted"):
        await other.api.call(ReportEmptied(topic=NAME, topic_uid=uid + 1, segments=(0,)))
    await other.api.call(ReportEmptied(topic=NAME, topic_uid=uid, segments=(0, 1, 7)))
    assert list(known(host)) == [0, 1], "it was sealed a moment ago"
    await asyncio.sleep(1_100)
    await other.api.call(ReportEmptied(topic=NAME, topic_uid=uid, segments=(0, 1, 7)))
    assert list(known(host)) == [1]


async def test_many_are_forgotten_in_transactions_that_etcd_takes(testbed: Testbed) -> None:
    host = await testbed.single(replace(SMALL, segment_retention_s=0.0), segments=CHANGES_PER_TRANSACTION + 20)
    for number in list(known(host)):
        await host.api.call(SealSegment(NAME, number))
    before = testbed.etcd.server.revision
    uid = topic(host).uid
    await host.api.call(ReportEmptied(topic=NAME, topic_uid=uid, segments=tuple(range(CHANGES_PER_TRANSACTION + 20))))
    assert len(known(host)) == CHANGES_PER_TRANSACTION + 20
    assert 2 <= testbed.etcd.server.revision - before <= 4


# --- descriptions


async def test_a_topic_is_described_in_pages_or_as_far_as_is_asked(testbed: Testbed) -> None:
    host = await testbed.single()
    await seals(host, 5)

    async def ids(which: SegmentSelection) -> tuple[list[int], int | None]:
        found: TopicDescription = await host.api.call(DescribeTopic(NAME, which))
        return [s.id for s in found.segments], found.more_above

    assert await ids(ALL) == ([0, 1, 2, 3, 4, 5], None)
    assert await ids(OPEN) == ([5], None)
    assert await ids(SegmentSelection(open=False, sealed_above=None, ids=(1, 5, 99))) == ([1, 5], None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(description, "SEALED_PER_PAGE", 2)
        assert await ids(ALL) == ([0, 1, 5], 1)
        assert await ids(SegmentSelection(open=False, sealed_above=1)) == ([2, 3], 3)
        assert await ids(SegmentSelection(open=False, sealed_above=3)) == ([4], None)
    with pytest.raises(InvalidArgument, match="query at most 10000"):
        await host.api.call(DescribeTopic(NAME, SegmentSelection(ids=tuple(range(IDS_MAX + 1)))))


async def test_documents_of_a_change_are_written_though_its_caller_goes_away(testbed: Testbed) -> None:
    host = await testbed.single(SMALL)
    await asyncio.sleep(5)
    put = testbed.faults.hold(StorageOp.PUT)
    puts = testbed.faults.counts[StorageOp.PUT]
    altering = asyncio.create_task(host.broker.api.call(AlterTopic(NAME, TopicChange(retention_s=50.0))))
    await testbed.until(lambda: testbed.faults.counts[StorageOp.PUT] > puts)
    altering.cancel()
    await asyncio.wait({altering})
    testbed.faults.held.clear()
    put.set()
    await asyncio.sleep(5)
    document = topic_from_document(bytes(testbed.store.files[document_path(NAME, TOPIC_DOCUMENT)].data))
    assert document.retention_s == 50.0


async def test_a_topic_that_keeps_its_offsets_holds_none_up(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = await testbed.cluster(1, SMALL)
    first, second = TopicName("test", "a"), TopicName("test", "b")
    forgotten: list[TopicName] = []
    failing = {first}

    async def forget(_: Groups, name: TopicName) -> None:
        if name in failing:
            raise Unavailable("not now")
        forgotten.append(name)

    monkeypatch.setattr(Groups, "forget_pruned", forget)
    for name in (first, second):
        await testbed.topic(host, name, retention_s=5.0)
        await host.api.call(SealSegment(name, 0))
    await testbed.until(lambda: all(host.inspect.view.topics[name].pruned for name in (first, second)))
    await asyncio.sleep(5 * SMALL.maintenance_interval_s)
    assert forgotten == [second]
    failing.clear()
    await testbed.until(lambda: forgotten == [second, first])


async def test_what_is_pruned_meanwhile_is_not_overlooked(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = await testbed.cluster(1, SMALL)
    calls: list[IdRanges] = []

    async def forget(_: Groups, name: TopicName) -> None:
        calls.append(topic(host).pruned)
        if len(calls) == 1:
            await seals(host, 1)
            await testbed.until(lambda: topic(host).pruned != calls[0])

    monkeypatch.setattr(Groups, "forget_pruned", forget)
    await testbed.topic(host, retention_s=5.0)
    await seals(host, 1)
    await testbed.until(lambda: len(calls) > 1)
    await asyncio.sleep(5 * SMALL.maintenance_interval_s)
    assert calls == [IdRanges(((0, 1),)), IdRanges(((0, 2),))], "once is enough"
