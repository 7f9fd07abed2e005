"""The followers of one open segment: a replicate stream to each, and a leader that hears of it when one is lost."""

import asyncio
import logging
from collections.abc import Callable

from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.broker.segment.replicate import FollowerLink
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import Fenced, NotFound, SeaweedMQError
from seaweedmq.model.messages.replication import ReplicateOpen, SegmentRef
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

NOTIFY_INTERVAL_S = 2.0
"""How long a leader that was told of a broken segment has before it, or its successor, is told again."""


class FollowerSet:
    """All of them, from ``start`` to ``close``. Reads the segment's log."""

    def __init__(
        self,
        topic: Topic,
        segment: Segment,
        segment_log: SegmentLog,
        context: SegmentContext,
        *,
        appended: Signal,
        on_held: Callable[[int], None],
        on_lost: Callable[[str, SeaweedMQError], None],
    ) -> None:
        """
        Args:
            appended: fires when there is more in the log.
            on_held: called with the offset below which every follower holds everything.
            on_lost: called with a follower's id, and what became of it. It does not come back.
        """
        self._segment = segment
        self._context = context
        self._on_held = on_held
        self._on_lost = on_lost
        self._ref = SegmentRef.of(topic, segment)
        opening = ReplicateOpen(ref=self._ref, primary=segment.primary)
        self._links = [
            FollowerLink(
                follower=follower,
                dial=context.dial,
                opening=opening,
                log=segment_log,
                appended=appended,
                on_held=self._held,
                timeout_s=context.config.replica_timeout_s,
                progress=context.progress_of(follower),
                memory=context.relaying,
            )
            for follower in segment.replicas[1:]
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Open a replicate stream to every follower."""
        spawn = self._context.spawn
        self._tasks += [
            spawn(self._keep(link), f"replicate {self._segment} to {link.follower}") for link in self._links
        ]

    def on_flushed(self) -> None:
        """What is both committed and fsynced may have become more."""
        for link in self._links:
            link.on_flushed()

    def leave(self) -> None:
        """Replicate no more. The leader that is sealing the segment may die before it has done it: the next is told."""
        self._cancel()
        self._tasks.append(self._context.spawn(self._follow_up_seal(), f"seal {self._segment}"))

    async def close(self) -> None:
        """Replicate no more and tell nobody. On return nothing of it runs."""
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _held(self) -> None:
        self._on_held(min(link.held for link in self._links))

    async def _keep(self, link: FollowerLink) -> None:
        """Nothing is committed once a follower is lost: the leader seals the segment, and it goes on elsewhere."""
        try:
            await link.run()
        except Fenced as error:
            log.warning("%s: %s", self._segment, error)
            self._on_lost(link.follower, error)
            await self._follow_up_seal()
        except SeaweedMQError as error:
            # Nothing failed if the follower left in good order, or its topic was deleted.
            level = logging.INFO if isinstance(error, NotFound) else logging.WARNING
            self._context.lost_followers.add(level, self._segment, f"lost follower {link.follower}: {error}")
            self._on_lost(link.follower, error)
            await self._ask_for_successor(link.follower, str(error))

    async def _follow_up_seal(self) -> None:
        await asyncio.sleep(NOTIFY_INTERVAL_S)
        await self._ask_for_successor("", "it was sealed or fenced, and has no successor yet")

    async def _ask_for_successor(self, suspect: str, reason: str) -> None:
        """Until cancelled: a leader that has heard may die before it has done it."""
        while True:
            self._context.suspicions.tell(self._ref, suspect, reason)
            await asyncio.sleep(NOTIFY_INTERVAL_S)
