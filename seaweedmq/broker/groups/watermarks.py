"""High watermarks of open segments, queried from their primaries.

Each primary has one query of a topic at a time, which all callers share.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.messages.calls import LocalStats
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BrokerApi

ASK_TIMEOUT_S = 2.0
RETRY_S = 0.2


class Watermarks:
    """The high watermarks of open segments, by topic."""

    def __init__(self, view: ClusterView, dial: Callable[[str], BrokerApi]) -> None:
        self._view = view
        self._dial = dial
        self._asking: dict[tuple[TopicName, str], asyncio.Task[dict[int, int]]] = {}

    def segments(self, name: TopicName) -> Mapping[int, Segment]:
        """Return the segments of a topic by id."""
        return self._view.segments_of(name)

    async def ask(self, name: TopicName, segments: Iterable[int]) -> dict[int, int]:
        """Return high watermarks as of a moment after the call.

        Segments that are not open, and those whose primary does not answer in time, are left out.
        """
        known = self.segments(name)
        wanted = {s for s in segments if s in known and known[s].is_open}
        answers = await asyncio.gather(*(self._fresh(name, p) for p in sorted({known[s].primary for s in wanted})))
        return {s: mark for answer in answers for s, mark in answer.items() if s in wanted}

    async def all_open(self, name: TopicName, timeout_s: float) -> dict[int, int]:
        """Return the high watermark of every segment that stays open meanwhile, except unrecoverable ones.

        Raises Unavailable if a primary does not answer in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    marks = await self.ask(name, self._view.open_of(name))
                    if marks.keys() >= {n for n, segment in self._view.open_of(name).items() if not segment.problem}:
                        return marks
                    await self.pause()
        except TimeoutError:
            raise Unavailable(f"a segment of {name} is being moved, or its broker does not answer: retry") from None

    async def pause(self) -> None:
        """Wait until the metadata changes, or the next query is due."""
        try:
            async with asyncio.timeout(RETRY_S):
                await self._view.wait_change(self._view.changes)
        except TimeoutError:
            return

    async def _fresh(self, name: TopicName, broker: str) -> dict[int, int]:
        """Return the answer to a query sent after the call: one already under way may be older."""
        under_way = self._asking.get((name, broker))
        if under_way is not None:
            await asyncio.wait({under_way})
        task = self._asking.get((name, broker))
        if task is None or task is under_way:
            task = asyncio.create_task(self._ask(name, broker), name=f"query of {broker} for high watermarks of {name}")
            self._asking[name, broker] = task
            task.add_done_callback(lambda done: self._answered(name, broker, done))
        return await asyncio.shield(task)

    def _answered(self, name: TopicName, broker: str, task: "asyncio.Task[dict[int, int]]") -> None:
        if self._asking.get((name, broker)) is task:
            del self._asking[name, broker]

    async def _ask(self, name: TopicName, broker: str) -> dict[int, int]:
        topic = self._view.topics.get(name)
        uid = topic.uid if topic is not None else 0
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                stats = await self._dial(broker).call(LocalStats(name, uid))
                return {s.segment: s.high_watermark for s in stats}
        except (SeaweedMQError, TimeoutError):
            return {}  # its segments are unknown, which the caller sees
