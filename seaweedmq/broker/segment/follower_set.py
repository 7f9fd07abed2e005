"""The followers of one open segment: a replicate stream to each, and a report to the leader when one is lost."""

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
"""Interval in seconds at which a segment that needs a successor is reported to the current leader."""


class FollowerSet:
    """The replicate streams of one segment, from ``start`` to ``close``. They read the segment's log."""

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
        """Prepare a link to every follower; ``start`` opens them.

        ``appended`` fires when the log has grown. ``on_held`` is called with the offset below which every follower
        holds everything, and ``on_lost`` with a follower's id and the error that ended its stream, which never resumes.
        """
        self._segment = segment
        self._spawn = context.spawn
        self._replication = context.replication
        self._on_held = on_held
        self._on_lost = on_lost
        self._ref = SegmentRef.of(topic, segment)
        opening = ReplicateOpen(ref=self._ref, primary=segment.primary)
        self._links = [
            FollowerLink(
                follower=follower,
                opening=opening,
                log=segment_log,
                context=context.replication,
                appended=appended,
                on_held=self._held,
            )
            for follower in segment.replicas[1:]
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Open a replicate stream to every follower."""
        self._tasks += [
            self._spawn(self._keep(link), f"replicate {self._segment} to {link.follower}") for link in self._links
        ]

    def on_flushed(self) -> None:
        """Note that more offsets may be both committed and flushed, and notify the followers."""
        for link in self._links:
            link.on_flushed()

    def leave(self) -> None:
        """Stop replicating, and report the segment until it has a successor: the sealing leader may die first."""
        self._cancel()
        self._tasks.append(self._spawn(self._follow_up_seal(), f"seal {self._segment}"))

    async def close(self) -> None:
        """Stop replicating and reporting. On return no task runs."""
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _held(self) -> None:
        self._on_held(min(link.held for link in self._links))

    async def _keep(self, link: FollowerLink) -> None:
        """Replicate to one follower until it is lost, then report that to the leader.

        Without the follower nothing is committed: the leader seals the segment and opens a successor.
        """
        try:
            await link.run()
        except Fenced as error:
            log.warning("%s: %s", self._segment, error)
            self._on_lost(link.follower, error)
            await self._follow_up_seal()
        except SeaweedMQError as error:
            # Not a failure: the follower left in good order, or its topic was deleted.
            level = logging.INFO if isinstance(error, NotFound) else logging.WARNING
            self._replication.lost_followers.add(level, self._segment, f"follower {link.follower} lost: {error}")
            self._on_lost(link.follower, error)
            await self._ask_for_successor(link.follower, str(error))

    async def _follow_up_seal(self) -> None:
        await asyncio.sleep(NOTIFY_INTERVAL_S)
        await self._ask_for_successor("", "the segment was sealed or fenced and has no successor yet")

    async def _ask_for_successor(self, suspect: str, reason: str) -> None:
        """Report the segment until cancelled: a leader that received the report may die before it acts."""
        while True:
            self._replication.suspicions.add(self._ref, suspect, reason)
            await asyncio.sleep(NOTIFY_INTERVAL_S)
