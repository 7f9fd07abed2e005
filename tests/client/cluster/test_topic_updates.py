"""Topic updates from brokers: one call at a time, for all topics that the client waits for."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from seaweedmq.client.cluster.topic_updates import GATHER_S, PATIENCE_S, TOPICS_PER_S, TopicUpdates
from seaweedmq.errors import Unavailable
from seaweedmq.model.description import IDS_MAX, AwaitedTopic, TopicDescription, UpdatedTopics
from seaweedmq.model.messages.calls import AWAITED_AT_ONCE_MAX, AwaitTopics
from seaweedmq.model.topic import TopicName
from tests.support.segments import make_topic


class View:
    """The client's view of one topic: at revision 1, or at that of the last update."""

    def __init__(self, number: int, ids: int = 1) -> None:
        self.name = TopicName("shop", f"t-{number}")
        self.uid = number + 1
        self.revision = 1
        self.confirmed = 0
        self._ids = tuple(range(ids))

    def awaited(self) -> AwaitedTopic:
        return AwaitedTopic(name=self.name, topic_uid=self.uid, above=self.revision, ids=self._ids)

    def update(self, description: TopicDescription) -> bool:
        self.revision = description.revision
        return True

    def confirm(self) -> None:
        self.confirmed += 1


class Broker:
    """A broker that answers with the changed topics, or when the call's patience ends."""

    def __init__(self) -> None:
        self.asked: list[AwaitTopics] = []
        self.revisions: dict[int, int] = {}
        """Revision by topic uid."""
        self.deleted: set[int] = set()
        """Uids of deleted topics."""
        self.changed = asyncio.Event()
        self.failures = 0

    def change(self, view: View, revision: int) -> None:
        self.revisions[view.uid] = revision
        self.changed.set()

    async def __call__(self, call: AwaitTopics) -> UpdatedTopics:
        self.asked.append(call)
        if self.failures:
            self.failures -= 1
            raise Unavailable("frozen")
        try:
            async with asyncio.timeout(call.patience_s):
                while not (newer := [a for a in call.topics if self.revisions.get(a.topic_uid, 0) > a.above]):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return UpdatedTopics(unknown=tuple(a.topic_uid for a in call.topics if a.topic_uid in self.deleted))
        changed = tuple(
            TopicDescription(
                topic=replace(make_topic(uid=a.topic_uid), name=a.name),
                segments=(),
                addresses={},
                revision=self.revisions[a.topic_uid],
            )
            for a in newer
        )
        return UpdatedTopics(changed)

    def names(self) -> list[list[str]]:
        """Return the topic names of each call."""
        return [[a.name.name for a in call.topics] for call in self.asked]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def wanting(broker: Broker, *views: View, for_s: float = 3.0) -> TopicUpdates:
    updates = TopicUpdates(broker, random.Random(1))
    for view in views:
        updates.want(view, in_s(for_s))
    return updates


def in_s(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.001)


async def test_many_topics_are_asked_about_in_one_call_and_told_of_as_they_change(broker: Broker) -> None:
    first, _, third = views = [View(n) for n in range(3)]
    updates = wanting(broker, *views)
    await asyncio.sleep(0.1)
    assert broker.names() == [["t-0", "t-1", "t-2"]]
    broker.change(first, 5)
    broker.change(third, 6)
    await until(lambda: third.revision == 6)
    assert [view.revision for view in views] == [5, 1, 6]
    assert [view.confirmed for view in views] == [0, 1, 0], "of the second nothing is newer"
    broker.change(first, 7)
    await until(lambda: first.revision == 7)
    assert [a.above for a in broker.asked[1].topics] == [5, 1, 6]
    assert len(broker.asked) <= 3, "the client does not repeat its call"
    await updates.close()


async def test_thousands_of_topics_that_change_one_after_another_take_few_calls(broker: Broker) -> None:
    views = [View(n) for n in range(1_000)]
    updates = wanting(broker, *views)
    for view in views[:100]:
        await asyncio.sleep(0.01)
        broker.change(view, 2)
    await until(lambda: views[99].revision == 2)
    assert len(broker.asked) <= 1 + 1.2 * TOPICS_PER_S / len(views)
    assert all(view.revision == 2 for view in views[:100])
    await updates.close()


async def test_what_a_broker_does_not_know_any_more_is_not_taken_for_unchanged(broker: Broker) -> None:
    gone, there = View(0), View(1)
    broker.deleted.add(gone.uid)
    updates = wanting(broker, gone, there)
    await until(lambda: there.confirmed)
    assert gone.confirmed == 0, "who waits for it must ask for it"
    await updates.close()


async def test_a_call_is_given_up_when_more_is_wanted(broker: Broker) -> None:
    first, second = View(0), View(1)
    updates = wanting(broker, first)
    await asyncio.sleep(2 * GATHER_S)
    updates.want(second, in_s(3))
    broker.change(second, 2)
    began = asyncio.get_running_loop().time()
    await until(lambda: second.revision == 2)
    assert asyncio.get_running_loop().time() - began < PATIENCE_S
    assert broker.names()[:2] == [["t-0"], ["t-0", "t-1"]]
    updates.want(first, in_s(3))
    await asyncio.sleep(2 * GATHER_S)
    asked = len(broker.asked)
    updates.want(first, in_s(3))
    await asyncio.sleep(2 * GATHER_S)
    assert len(broker.asked) == asked, "that was wanted already"
    await updates.close()


async def test_nobody_is_asked_once_nothing_is_wanted(broker: Broker) -> None:
    view, other = View(0), View(1)
    here = asyncio.all_tasks()
    updates = wanting(broker, view, for_s=0.5)
    await asyncio.sleep(0.5 + 2 * PATIENCE_S)
    assert len(broker.asked) == 1
    assert asyncio.all_tasks() == here
    updates.want(view, in_s(60))
    updates.want(other, in_s(60))
    await asyncio.sleep(2 * GATHER_S)
    updates.forget(view)
    await asyncio.sleep(2 * PATIENCE_S)
    assert broker.names()[-1] == ["t-1"]
    updates.forget(other)
    updates.want(view, in_s(60))
    broker.change(view, 2)
    await until(lambda: view.revision == 2)
    await updates.close()
    assert asyncio.all_tasks() == here


async def test_a_broker_that_fails_is_not_the_last_one_asked(broker: Broker) -> None:
    view = View(0)
    broker.failures = 3
    updates = wanting(broker, view)
    broker.change(view, 2)
    await until(lambda: view.revision == 2)
    assert len(broker.asked) >= 4
    await updates.close()


@pytest.mark.parametrize(
    ("count", "ids", "most"), [(AWAITED_AT_ONCE_MAX + 1, 1, AWAITED_AT_ONCE_MAX), (5, IDS_MAX // 2, 2), (2, IDS_MAX, 1)]
)
async def test_more_than_one_call_takes_is_asked_for_in_turn(broker: Broker, count: int, ids: int, most: int) -> None:
    views = [View(n, ids) for n in range(count)]
    updates = wanting(broker, *views, for_s=60.0)
    for view in views:
        broker.change(view, 2)
    await until(lambda: all(view.revision == 2 for view in views))
    assert max(len(call.topics) for call in broker.asked) == most
    await updates.close()


async def test_two_subscribers_of_a_topic_get_one_description_with_the_segments_of_both(broker: Broker) -> None:
    first, second = View(0, ids=2), View(0, ids=5)
    second.revision = 3
    updates = wanting(broker, first, second)
    broker.change(first, 4)
    await until(lambda: first.revision == second.revision == 4)
    assert broker.asked[0].topics == (AwaitedTopic(name=first.name, topic_uid=1, above=1, ids=(0, 1, 2, 3, 4)),)
    await updates.close()
