"""Creation, alteration and deletion of topics for Kafka clients, by calls to the cluster's leader.

Clients query the same broker for metadata a moment later, so every change is awaited in this broker's live view.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import (
    AlreadyExists,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
)
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.model.messages.calls import AlterTopic, CreateTopics, DeleteTopic, RaiseLowWatermark
from seaweedmq.model.topic import TOPICS_AT_ONCE_MAX, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.ports import BrokerApi
from seaweedmq.runtime.retrying import backoff, retrying
from seaweedmq.runtime.turns import Turn

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

PATIENCE_S_MIN, PATIENCE_S_MAX = 1.0, 60.0
RETRY_S_FIRST, RETRY_S_MAX = 0.02, 0.5
CALLS_AT_ONCE = 32
"""Maximum number of concurrent calls of one request."""


def patience_s(timeout_ms: int) -> float:
    """Return the seconds that a client with this timeout may wait, from ``PATIENCE_S_MIN`` to ``PATIENCE_S_MAX``."""
    return min(max(timeout_ms / 1_000, PATIENCE_S_MIN), PATIENCE_S_MAX)


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[R]], turn: Turn) -> list[R]:
    """Do the work for each item, ``CALLS_AT_ONCE`` at a time; return the results in their order."""
    todo = list(items)
    left = iter(enumerate(todo))
    made: list[R] = [None] * len(todo)  # type: ignore[list-item]  # each is set before it is returned

    async def work_on() -> None:
        for number, item in left:
            await turn.pause()  # also before the first: all tasks begin in one iteration of the loop
            made[number] = await work(item)

    # Not a task for each item: there may be thousands.
    await asyncio.gather(*(work_on() for _ in range(min(CALLS_AT_ONCE, len(todo)))))
    return made


async def by_key(items: Iterable[T], key: Callable[[T], K], turn: Turn) -> dict[K, list[T]]:
    """Group items by key, in the order in which the keys first occur."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
        await turn.pause()
    return found


@asynccontextmanager
async def _deadline(timeout_s: float, context: CallContext) -> AsyncIterator[CallContext]:
    """Limit a block's time; the value is the context of its calls. Raises TimeoutError."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    async with asyncio.timeout_at(deadline_s):
        yield context.until(deadline_s)


class TopicChanges:
    """The changes that admin requests and auto-creation make to topics."""

    def __init__(self, api: BrokerApi, view: ClusterView, rng: random.Random) -> None:
        self._api = api
        self._view = view
        self._rng = rng

    async def create(
        self, specs: Sequence[TopicSpec], timeout_s: float, context: CallContext
    ) -> list[Topic | SeaweedMQError]:
        """Create topics; return the topic or the error of each, in order. One error does not affect the others."""
        outcomes: list[Topic | SeaweedMQError] = []
        try:
            async with _deadline(timeout_s, context) as limited:
                for at in range(0, len(specs), TOPICS_AT_ONCE_MAX):
                    outcomes += await self._create(specs[at : at + TOPICS_AT_ONCE_MAX], limited)
        except TimeoutError:
            late = DeadlineExceeded(f"not created within {timeout_s:g} s and may still be created: look for the topic")
            outcomes += [late] * (len(specs) - len(outcomes))
        return outcomes

    async def alter(
        self, topic: Topic, change: Callable[[Topic], TopicChange], timeout_s: float, context: CallContext
    ) -> None:
        """Change the leader's current state of a topic.

        Concurrent changes through other brokers are not lost: the leader rejects a change of an old revision, and this
        method makes it again from the new one.

        ``topic`` is as this broker's view has it; ``change`` makes the change from the current one.

        Raises:
            DeadlineExceeded: If the change is not done in time; it may still happen.
            SeaweedMQError: If ``calls.AlterTopic`` or ``change`` raises it.
        """

        async def altered() -> TopicDescription:
            found = await self._api.call(AlterTopic(topic.name, TopicChange(), topic.uid), limited)
            changed = AlterTopic(topic.name, change(found.topic), topic.uid, found.revision)
            return await self._api.call(changed, limited)

        again = retrying(backoff(self._rng, RETRY_S_FIRST, RETRY_S_MAX), on=StaleMetadata)
        try:
            async with _deadline(timeout_s, context) as limited:
                await self._view.wait_version((await again(altered)).revision)
        except TimeoutError:
            raise DeadlineExceeded(f"{topic.name} was not changed within {timeout_s:g} s: check it and retry") from None

    async def delete(self, topic: Topic, timeout_s: float, context: CallContext) -> None:
        """Delete a topic with all its records. Raises as :meth:`alter`."""
        try:
            async with _deadline(timeout_s, context) as limited:
                await self._api.call(DeleteTopic(topic.name, topic.uid), limited)
                await self._until(lambda: self._uid(topic.name) != topic.uid)
        except TimeoutError:
            raise DeadlineExceeded(f"{topic.name} was not deleted within {timeout_s:g} s: check it and retry") from None

    async def delete_records(
        self, topic: Topic, before: Mapping[int, int], timeout_s: float, context: CallContext
    ) -> Mapping[int, int]:
        """Delete the records below an offset of each partition; return the new low watermarks.

        Raises:
            OutOfRange: If an offset is above the high watermark; no record was deleted.
            DeadlineExceeded: If the deletion is not done in time; it may still happen.
            SeaweedMQError: If ``calls.RaiseLowWatermark`` raises it.
        """
        try:
            async with _deadline(timeout_s, context) as limited:
                low = await self._api.call(RaiseLowWatermark(topic.name, before, topic.uid), limited)
                await self._until(lambda: self._uid(topic.name) != topic.uid or self._knows(topic.name, low))
        except TimeoutError:
            raise DeadlineExceeded(f"records of {topic.name} were not deleted within {timeout_s:g} s: retry") from None
        return low

    async def known(self, name: TopicName, timeout_s: float) -> None:
        """Wait until the view has a topic that another broker created.

        Raises:
            DeadlineExceeded: If the view does not have it in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(lambda: name in self._view.topics)
        except TimeoutError:
            raise DeadlineExceeded(f"{name} exists but is not known here after {timeout_s:g} s: retry") from None

    async def _create(self, specs: Sequence[TopicSpec], context: CallContext) -> list[Topic | SeaweedMQError]:
        try:
            made = await self._api.call(CreateTopics(tuple(specs)), context)
        except (AlreadyExists, InvalidArgument, ResourceExhausted) as error:
            if len(specs) == 1:
                return [error]
            # One by one, which finds the topics that fail.
            return [outcome for spec in specs for outcome in await self._create([spec], context)]
        except SeaweedMQError as error:
            return [error] * len(specs)
        await self._view.wait_version(max(description.revision for description in made))
        return [description.topic for description in made]

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._view.wait_change(self._view.changes)

    def _knows(self, name: TopicName, low: Mapping[int, int]) -> bool:
        marks = dict(enumerate(self._view.topics[name].low_watermarks))
        return all(marks.get(partition, 0) >= offset for partition, offset in low.items())

    def _uid(self, name: TopicName) -> int | None:
        topic = self._view.topics.get(name)
        return None if topic is None else topic.uid
