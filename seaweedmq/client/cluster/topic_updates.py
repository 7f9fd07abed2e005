"""Topic updates pushed by brokers: one call at a time, for all topics that have subscribers.

When a broker dies, every segment it served waits for its successor. Polling topic by topic took a client of 450 topics
two fifths of its CPU, and cost the brokers as much as the successors themselves.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Protocol

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.description import IDS_MAX, AwaitedTopic, TopicDescription, UpdatedTopics
from seaweedmq.model.messages.calls import AWAITED_AT_ONCE_MAX, AwaitTopics
from seaweedmq.runtime.retrying import backoff, retrying

GATHER_S = 0.02
"""Minimum time between two calls, in which more topics are subscribed and more changes arrive."""
TOPICS_PER_S = 5_000
"""Limit of topics that calls name in a second. Each call names all topics: while thousands change one after another, a
call per change would cost the square of their number."""
PATIENCE_S = 1.0
"""Time that a broker waits for a change. A frozen broker is noticed that much later."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
"""Bounds of the random pause after a broker that does not answer; the upper bound of a pause doubles."""


def pause_s(topics: int) -> float:
    """Return the pause in seconds before a call that names ``topics`` topics."""
    return max(GATHER_S, topics / TOPICS_PER_S)


class UpdateSubscriber(Protocol):
    """A subscriber to updates of one topic."""

    def awaited(self) -> AwaitedTopic:
        """Return the state that the subscriber has."""

    def update(self, description: TopicDescription) -> bool:
        """Take in a broker's description if it is newer. Return whether it was taken in."""

    def confirm(self) -> None:
        """Note that a broker has nothing newer."""


class TopicUpdates:
    """The subscribed topics. A task queries updates while there are any."""

    def __init__(self, call: Callable[[AwaitTopics], Awaitable[UpdatedTopics]], rng: random.Random) -> None:
        """Make an empty set; ``call`` makes the call at one broker."""
        self._call = call
        self._rng = rng
        self._wanted: dict[UpdateSubscriber, float] = {}
        """Subscriber -> loop time at which its subscription ends; the least recently queried first."""
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def want(self, subscriber: UpdateSubscriber, until: float) -> None:
        """Send updates to a subscriber until a loop time, which replaces the previous one."""
        if subscriber not in self._wanted:
            self._more.set()
        self._wanted[subscriber] = until
        self._begin()

    def forget(self, subscriber: UpdateSubscriber) -> None:
        """End the updates to a subscriber."""
        self._wanted.pop(subscriber, None)
        if not self._wanted and self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End all subscriptions and the task."""
        self._wanted.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="topic updates")
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.result()
        if self._wanted:  # Subscribed after the task was cancelled.
            self._begin()

    async def _run(self) -> None:
        # Errors are not reported here: without updates every subscriber queries its topic itself and gets the error.
        repeated = retrying(backoff(self._rng, PAUSE_S_MIN, PAUSE_S_MAX), on=SeaweedMQError)
        while self._still_wanted():
            await asyncio.sleep(pause_s(len(self._wanted)))
            await repeated(self._call_once)

    def _still_wanted(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._wanted = {subscriber: until for subscriber, until in self._wanted.items() if until > now}
        return bool(self._wanted)

    async def _call_once(self) -> None:
        """Make one call. It is cancelled when more topics are subscribed: the next call includes them."""
        if not self._still_wanted():
            return
        self._more.clear()
        chosen = self._next()
        call = asyncio.ensure_future(self._call(AwaitTopics(_merged(chosen.values()), PATIENCE_S)))
        more = asyncio.create_task(self._more.wait(), name="wait for more topics")
        try:
            await asyncio.wait({call, more}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (call, more):
                task.cancel()
            await asyncio.wait({call, more})
        if call.cancelled():
            return
        updates = call.result()
        changed = {description.topic.uid: description for description in updates.changed}
        for subscriber, awaited in chosen.items():
            if awaited.topic_uid in changed:
                subscriber.update(changed[awaited.topic_uid])
            elif awaited.topic_uid not in updates.unknown:
                subscriber.confirm()

    def _next(self) -> dict[UpdateSubscriber, AwaitedTopic]:
        """Return the topics of one call, up to its limits. The next call begins with the others."""
        chosen: dict[UpdateSubscriber, AwaitedTopic] = {}
        ids = 0
        for subscriber, until in list(self._wanted.items()):
            awaited = subscriber.awaited()
            ids += len(awaited.ids)
            if chosen and (len(chosen) == AWAITED_AT_ONCE_MAX or ids > IDS_MAX):
                break
            chosen[subscriber] = awaited
            del self._wanted[subscriber]
            self._wanted[subscriber] = until
        return chosen


def _merged(awaited: Iterable[AwaitedTopic]) -> tuple[AwaitedTopic, ...]:
    """Merge the subscribers of each topic: all their ids, and the lowest revision."""
    topics: dict[int, AwaitedTopic] = {}
    for one in awaited:
        other = topics.get(one.topic_uid, one)
        ids = tuple(sorted({*one.ids, *other.ids}))
        topics[one.topic_uid] = replace(one, above=min(one.above, other.above), ids=ids)
    return tuple(topics.values())
