"""The lifecycle of an open segment whose storage is an object store: ``segment_lifecycle`` with ``memory_rule``.

No fence check is needed: the sequence of bundles itself ends at a fence, and what is flushed was below it. So flushed
frames are committed without a lease, and a lost follower never stops them.
"""

from collections.abc import Sequence

from seaweedmq.core.segment.commit_rule import RaiseHighWatermark, RequestFsync, RetrySoon
from seaweedmq.core.segment.memory_rule import BundleSoon, memory_rule
from seaweedmq.core.segment.segment_lifecycle import (
    COMMITTING,
    Action,
    CommitFlushedOnly,
    Event,
    Halt,
    SegmentLifecycle,
    SegmentStage,
)
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import SeaweedMQError, StaleMetadata
from seaweedmq.model.segment import Segment


class WrittenEnds:
    """The ends of a log for ``memory_rule``: a frame counts as replicated once it was also given to the bundler.

    So a store that takes no more frames also holds up acknowledgements by memory.
    """

    __slots__ = ("_log",)

    def __init__(self, log: SegmentLog) -> None:
        self._log = log

    @property
    def committed(self) -> int:
        """The high watermark."""
        return self._log.committed

    @property
    def flushed(self) -> int:
        """Offset below which bundles or log objects hold all frames."""
        return self._log.flushed

    @property
    def replicated(self) -> int:
        """Offset below which every follower holds all frames, and the bundler has them."""
        return self._log.written

    @property
    def end(self) -> int:
        """Next offset to assign."""
        return self._log.end


class ObjectLifecycle(SegmentLifecycle):
    """The state machine of one open segment on an object store. It reads the segment's log and never changes it."""

    def __init__(self, segment: Segment, log: SegmentLog) -> None:
        super().__init__(segment, log)
        self._ends = WrittenEnds(log)
        self._is_alone = len(segment.replicas) == 1

    def advanced(self, *, lease_left_s: float, ttl_s: float, unflushed_s: float) -> Sequence[Action]:
        """Return the actions after progress of the log or of its time; arguments as of ``memory_rule``."""
        if self.stage not in COMMITTING:
            return ()
        actions: list[Action] = []
        for action in memory_rule(
            self._ends,
            needs_flush=self._is_alone or self._log.waits_for_fsync,
            lease_left_s=lease_left_s,
            ttl_s=ttl_s,
            unflushed_s=unflushed_s,
        ):
            match action:
                case BundleSoon():
                    actions.append(RequestFsync())
                case RaiseHighWatermark() | RetrySoon():
                    actions.append(action)
        return actions

    def follower_lost(self, follower: str, error: SeaweedMQError) -> Sequence[Action]:
        """Record the loss of a follower: only flushed frames count from now on, and they are flushed at once."""
        del follower, error
        self._move(Event.FOLLOWER_LOST)
        return (CommitFlushedOnly(), RequestFsync()) if self.stage in COMMITTING else ()

    def sequence_ended(self) -> Sequence[Action]:
        """Record that another process ended the sequence of this broker's bundles: it recovers the segment."""
        if self.stage in (SegmentStage.FENCED, SegmentStage.SEALED, SegmentStage.CLOSED):
            return ()
        self._move(Event.FENCE_FOUND)
        self.rejection = StaleMetadata(
            f"{self._segment}: the leader fenced this broker and recovers the segment from the object store; nothing "
            "is acknowledged here: continue in its successors"
        )
        return Halt(), *self._fail(self.rejection)
