"""Topic updates for clients that wait for a change."""

import asyncio

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.description import IDS_MAX, AwaitedTopic, TopicDescription, UpdatedTopics
from seaweedmq.model.messages.calls import AWAITED_AT_ONCE_MAX, AwaitTopics, CreateTopic, DeleteTopic, SealSegment
from seaweedmq.model.topic import TopicName, TopicSpec
from tests.broker.testbed import NAME, Testbed

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
