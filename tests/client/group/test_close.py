"""A cancelled ``close()`` of a member leaves neither its membership nor its tasks behind."""

import asyncio
from collections.abc import Awaitable

import pytest

from seaweedmq.client.client import Client
from seaweedmq.client.group.dead_letter import DeadLetters
from seaweedmq.client.group.subscriber import GroupSubscriber
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.errors import Unavailable
from tests.client.fake_broker import FakeCluster

TOPIC = "shop/orders"
GROUP = "billing"
NAMES = "close ", "lease ", "commit ", "membership ", "reader "
"""First words of the names of a member's tasks."""
SETTLED_S = 60.0
"""Longer than any timeout of a close."""


class Joined:
    """A member that has read a record, and the tasks that existed before it."""

    def __init__(self, cluster: FakeCluster, subscriber: GroupSubscriber, before: set["asyncio.Task[object]"]) -> None:
        self.subscriber = subscriber
        self.coordinator = cluster.coordinator(GROUP, TOPIC)
        self._before = before

    def tasks(self) -> set["asyncio.Task[object]"]:
        """Return the unfinished tasks that the member started."""
        return asyncio.all_tasks() - self._before - {asyncio.current_task()}

    async def has_left(self) -> bool:
        """Return whether the member has left the group, after checking that no task outlives all timeouts."""
        await asyncio.sleep(SETTLED_S)
        assert not self.tasks()
        return self.subscriber.is_closed and not self.coordinator.group.record.members


@pytest.fixture
async def joined(client: Client, cluster: FakeCluster) -> Joined:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        for number in range(10):
            await publisher.send(b"%d" % number)
    before = asyncio.all_tasks()
    subscriber = await client.subscriber(TOPIC, group=GROUP, start="earliest", max_deliveries=3)
    member = Joined(cluster, subscriber, before)
    assert set(member.coordinator.group.record.members) == {subscriber.member}
    await asyncio.sleep(0.05)  # a reader begins
    assert {task.get_name().partition(" ")[0] + " " for task in member.tasks()} > set(NAMES[1:])
    return member


async def cancel_after(steps: int, call: Awaitable[None]) -> None:
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("steps", range(1, 13))
async def test_a_close_that_is_cancelled_at_any_step_commits_and_leaves(joined: Joined, steps: int) -> None:
    subscriber = joined.subscriber
    (await anext(aiter(subscriber))).ack()
    await cancel_after(steps, subscriber.close())
    assert await joined.has_left()
    assert joined.coordinator.committed == {0: 1}
    await subscriber.close()


async def test_closes_that_are_cancelled_one_after_another_leave(joined: Joined) -> None:
    for _ in range(3):
        await cancel_after(1, joined.subscriber.close())
    assert await joined.has_left()


async def test_a_close_that_runs_out_of_time_ends_though_the_coordinator_is_silent(joined: Joined) -> None:
    (await anext(aiter(joined.subscriber))).ack()
    joined.coordinator.is_silent = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await joined.subscriber.close()
    assert await joined.has_left(), "the coordinator sees that the stream has ended"


async def test_a_close_that_is_cancelled_waits_for_handlers_and_commits_what_they_did(joined: Joined) -> None:
    began, may_return = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        began.set()
        await may_return.wait()

    handling = asyncio.create_task(joined.subscriber.handle(handle))
    await began.wait()
    await cancel_after(1, joined.subscriber.close())
    may_return.set()
    await handling
    assert await joined.has_left()
    assert joined.coordinator.committed == {0: 1}


async def test_a_member_whose_handling_and_close_are_cancelled_leaves(joined: Joined) -> None:
    began = asyncio.Event()

    async def handle(message: Message) -> None:
        began.set()
        await asyncio.Event().wait()

    async def work() -> None:
        try:
            await joined.subscriber.handle(handle)
        finally:
            await joined.subscriber.close()

    working = asyncio.create_task(work())
    await began.wait()
    working.cancel()
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})
    assert await joined.has_left()
    assert joined.coordinator.committed == {0: 0}


@pytest.mark.parametrize("steps", range(1, 13))
@pytest.mark.parametrize("cancelled", [NAMES[:1], NAMES])
async def test_nothing_is_left_if_the_task_behind_a_close_is_cancelled(
    joined: Joined, steps: int, cancelled: tuple[str, ...]
) -> None:
    """``asyncio.run`` finally cancels every task, including the one behind an earlier cancelled ``close()``."""
    await cancel_after(steps, joined.subscriber.close())
    for task in joined.tasks():
        if task.get_name().startswith(cancelled):
            task.cancel()
    assert await joined.has_left()


async def test_what_a_cancelled_close_failed_with_is_raised_by_the_next_one(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(letters: DeadLetters) -> None:
        raise Unavailable("a letter was not kept")

    monkeypatch.setattr(DeadLetters, "close", close)
    await cancel_after(1, joined.subscriber.close())
    assert await joined.has_left()
    with pytest.raises(Unavailable, match="a letter"):
        await joined.subscriber.close()
