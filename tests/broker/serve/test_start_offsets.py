"""Start offsets in a segment's figures, which follow retention at few calls of the storage; updates of topics."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.broker.serve.start_offsets import FRESH_S, LISTING_WAIT_S_MAX
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.description import IDS_MAX, AwaitedTopic, TopicDescription, UpdatedTopics
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import (
    AWAITED_AT_ONCE_MAX,
    AlterTopic,
    AwaitTopics,
    CreateTopic,
    DeleteTopic,
    SealSegment,
    TopicStats,
)
from seaweedmq.model.topic import TopicChange, TopicName, TopicSpec
from tests.broker.testbed import CONFIG, NAME, Host, Testbed
from tests.doubles.memory_store import StorageOp

QUICK = replace(CONFIG, log_roll_age_s=1.0, maintenance_interval_s=1.0, log_grace_s=2.0)


async def start_of(host: Host) -> int:
    (stats,) = await host.api.call(TopicStats(NAME))
    return stats.start_offset


async def test_the_start_rises_as_retention_removes_files(testbed: Testbed) -> None:
    hosts = await testbed.several(2, QUICK, retention_s=20.0)
    publisher = await (await testbed.primary(hosts[0])).publisher()
    for _ in range(4):
        await publisher.store(frames=2)
        await asyncio.sleep(5)
    assert await start_of(hosts[0]) == 0
    await testbed.until(lambda: min(f.base_offset for f in testbed.files(FileKind.TABLE)) > 0)
    await asyncio.sleep(FRESH_S)
    left = min(f.base_offset for kind in FileKind for f in testbed.files(kind))
    assert left > 0
    assert {await start_of(host) for host in hosts} == {left}
    reader = await (await testbed.primary(hosts[0])).subscriber()
    assert reader.ready.start_offset == left


async def test_files_are_listed_once_and_with_retention_now_and_then(testbed: Testbed) -> None:
    host = await testbed.single(replace(CONFIG, maintenance_interval_s=1_000.0), segments=4)
    testbed.faults.counts.clear()
    for _ in range(10):
        await asyncio.gather(*(host.api.call(TopicStats(NAME)) for _ in range(5)))
        await asyncio.sleep(FRESH_S)
    assert testbed.faults.counts[StorageOp.LIST] == 1
    await host.api.call(AlterTopic(NAME, TopicChange(retention_s=3_600.0)))
    for _ in range(5):
        await asyncio.gather(*(host.api.call(TopicStats(NAME)) for _ in range(5)))
        await asyncio.sleep(FRESH_S)
    assert testbed.faults.counts[StorageOp.LIST] == 11, "with retention the files as well as what it removed"


async def test_a_storage_that_hangs_or_fails_does_not_keep_figures_back(testbed: Testbed) -> None:
    host = await testbed.single()
    await (await host.publisher()).store(frames=3)
    held = testbed.faults.hold(StorageOp.LIST)
    began = testbed.loop.time()
    (stats,) = await host.api.call(TopicStats(NAME))
    assert (stats.start_offset, stats.high_watermark) == (0, 3)
    assert testbed.loop.time() - began < 2 * LISTING_WAIT_S_MAX
    starts, topic = host.broker.ports.partitions.serving.starts, host.inspect.view.topics[NAME]
    assert starts.known(topic) is None
    held.set()
    testbed.faults.held.clear()
    await testbed.until(lambda: starts.known(topic) == {})
    testbed.faults.failing[StorageOp.LIST] = "input/output error"
    (stats,) = await host.api.call(TopicStats(NAME))
    assert (stats.start_offset, stats.high_watermark) == (0, 3)
    testbed.faults.failing.clear()
    await host.api.call(SealSegment(NAME, 0))
    assert await start_of(host) == 3, "a successor begins where its predecessor ended"


OTHER = TopicName("test", "other")


def awaited(description: TopicDescription, *ids: int) -> AwaitedTopic:
    topic = description.topic
    return AwaitedTopic(name=topic.name, topic_uid=topic.uid, above=description.revision, ids=ids)


async def test_who_waits_for_topics_is_told_once_one_of_them_has_changed(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    known = [await testbed.topic(hosts[0], name, segments=2) for name in (NAME, OTHER)]
    question = AwaitTopics(tuple(awaited(description, 0) for description in known), 10.0)
    answers = [asyncio.create_task(host.api.call(question)) for host in hosts]
    await asyncio.sleep(1)
    assert not any(answer.done() for answer in answers)
    await hosts[0].api.call(SealSegment(OTHER, 0))
    for told in await asyncio.gather(*answers):
        (changed,) = told.changed
        assert not told.unknown
        assert changed.topic.name == OTHER
        assert changed.revision > known[1].revision
        assert [(s.id, s.is_open) for s in changed.segments] == [(0, False), (1, True), (2, True)]
    (again,) = (await hosts[0].api.call(question)).changed
    assert again == changed, "a late caller gets the change at once"


async def test_who_waits_for_topics_hears_when_nothing_has_changed_and_which_are_gone(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    known = await testbed.topic(host)
    began = asyncio.get_running_loop().time()
    assert await host.api.call(AwaitTopics((awaited(known),), 0.5)) == UpdatedTopics()
    assert 0.5 <= asyncio.get_running_loop().time() - began < 1.0
    await host.api.call(DeleteTopic(NAME))
    gone = UpdatedTopics(unknown=(known.topic.uid,))
    assert await host.api.call(AwaitTopics((awaited(known),), 0.5)) == gone
    await host.api.call(CreateTopic(TopicSpec(name=NAME)))
    assert await host.api.call(AwaitTopics((awaited(known),), 0.5)) == gone, "that is another one"


async def test_waiting_for_too_much_is_refused(testbed: Testbed) -> None:
    host = await testbed.single()
    for topics, ids in ((AWAITED_AT_ONCE_MAX + 1, 0), (2, IDS_MAX // 2 + 1)):
        one = AwaitedTopic(name=NAME, topic_uid=1, above=0, ids=tuple(range(ids)))
        with pytest.raises(InvalidArgument, match="at most 1000"):
            await host.api.call(AwaitTopics((one,) * topics, 0.5))
