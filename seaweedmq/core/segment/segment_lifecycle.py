"""The lifecycle of one open segment on its primary: a table of stages and the actions that follow.

Events go in, actions come out. Only ``broker.segment.primary`` performs them, and only it changes the segment's log.
``commit_rule`` decides how far the high watermark may rise in a stage that commits, and ``memory_rule`` on an object
store. There no fence check is needed: the sequence of bundles itself ends at a fence, and what is flushed was below it.
So flushed frames are committed without a lease, and a lost follower never stops them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.core.segment.commit_rule import (
    CheckFence,
    RaiseHighWatermark,
    ReportLeaseDoubt,
    RequestFsync,
    RetrySoon,
    commit_rule,
)
from seaweedmq.core.segment.memory_rule import BundleSoon, memory_rule
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import Fenced, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.segment import Segment


class SegmentStage(StrEnum):
    """A stage of a segment on its primary."""

    SERVING = "serving"
    """Accepts records and acknowledges them."""
    DOUBTFUL = "doubtful"
    """A follower is lost: no new frame is held by all replicas, and the leader has to replace the segment."""
    DRAINING = "draining"
    """Accepts nothing more, and acknowledges what it has: its only replica leaves the cluster."""
    FENCED = "fenced"
    """Recovered by the leader from its files, or on an object store from its bundles."""
    SEALING = "sealing"
    """Accepts and acknowledges nothing more; its frames are being written and flushed."""
    SEALED = "sealed"
    """Everything it has is flushed."""
    CLOSED = "closed"
    """Nothing is written any longer."""


class Event(StrEnum):
    """An event that moves a segment from one stage to another."""

    FOLLOWER_LOST = "follower lost"
    FENCE_FOUND = "fence found"
    DRAIN = "drain"
    SEAL = "seal"
    ALL_FLUSHED = "all flushed"
    CLOSE = "close"


STAGES: Mapping[SegmentStage, Mapping[Event, SegmentStage]] = {
    SegmentStage.SERVING: {
        Event.FOLLOWER_LOST: SegmentStage.DOUBTFUL,
        Event.FENCE_FOUND: SegmentStage.FENCED,
        Event.DRAIN: SegmentStage.DRAINING,
        Event.SEAL: SegmentStage.SEALING,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.DOUBTFUL: {
        Event.FOLLOWER_LOST: SegmentStage.DOUBTFUL,
        Event.FENCE_FOUND: SegmentStage.FENCED,  # found by a check that began before
        Event.SEAL: SegmentStage.SEALING,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.DRAINING: {
        Event.FENCE_FOUND: SegmentStage.FENCED,  # on an object store only
        Event.SEAL: SegmentStage.SEALING,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.FENCED: {Event.FOLLOWER_LOST: SegmentStage.FENCED, Event.CLOSE: SegmentStage.CLOSED},
    SegmentStage.SEALING: {
        Event.FOLLOWER_LOST: SegmentStage.SEALING,
        Event.FENCE_FOUND: SegmentStage.FENCED,  # on an object store only
        Event.SEAL: SegmentStage.SEALING,
        Event.ALL_FLUSHED: SegmentStage.SEALED,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.SEALED: {
        Event.FOLLOWER_LOST: SegmentStage.SEALED,
        Event.SEAL: SegmentStage.SEALED,
        Event.ALL_FLUSHED: SegmentStage.SEALED,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.CLOSED: {Event.FOLLOWER_LOST: SegmentStage.CLOSED, Event.CLOSE: SegmentStage.CLOSED},
}
"""Next stage for each stage and event; an absent pair cannot occur."""

COMMITTING = frozenset({SegmentStage.SERVING, SegmentStage.DOUBTFUL, SegmentStage.DRAINING})
"""Stages in which the high watermark may rise."""
UNDISPUTED = frozenset({SegmentStage.SERVING, SegmentStage.DOUBTFUL})
"""Stages in which no other broker can have ended the segment while the lease lives."""


@dataclass(frozen=True, slots=True)
class CommitFlushedOnly:
    """An action: commit only flushed frames from now on."""


@dataclass(frozen=True, slots=True)
class Halt:
    """An action: commit nothing from now on, and stop the fence check and the timer."""


@dataclass(frozen=True, slots=True)
class LeaveFollowers:
    """An action: stop replicating, and also write frames that followers do not hold."""


@dataclass(frozen=True, slots=True)
class NotifyPublishers:
    """An action: report ``failure`` to publishers."""


Action: TypeAlias = (
    RaiseHighWatermark
    | RequestFsync
    | CheckFence
    | RetrySoon
    | CommitFlushedOnly
    | Halt
    | LeaveFollowers
    | NotifyPublishers
)


class SegmentLifecycle:
    """The state machine of one open segment. It reads the segment's log and never changes it."""

    def __init__(self, segment: Segment, log: SegmentLog) -> None:
        self.stage = SegmentStage.SERVING
        self.rejection: SeaweedMQError | None = None
        """Reason why the segment accepts no records, None while it does."""
        self.failure: SeaweedMQError | None = None
        """Reason why nothing is committed at present, None while frames are committed."""
        self._segment = segment
        self._log = log
        self._stuck: SeaweedMQError | None = self._waits("it has no followers") if len(segment.replicas) == 1 else None
        """Reason why the segment cannot commit without the lease, None if it can."""
        self._checked_up_to: int | None = None
        """Offset that the running fence check is for, None if none runs."""

    def progressed(self, *, lease_alive: bool) -> Sequence[Action]:
        """Return the actions after a write, an fsync, a fence check or a ``RetrySoon``."""
        if self.stage not in COMMITTING:
            return ()
        if lease_alive:
            self.failure = None
        actions: list[Action] = []
        for action in commit_rule(
            self._log,
            lease_alive=lease_alive,
            stuck=self._stuck is not None,
            follower_lost=self.stage is SegmentStage.DOUBTFUL,
            is_checking=self._checked_up_to is not None,
        ):
            if isinstance(action, ReportLeaseDoubt):
                actions += self._fail(self._stuck)
            else:
                actions.append(action)
            if isinstance(action, CheckFence):
                self._checked_up_to = action.flushed
        return actions

    def follower_lost(self, follower: str, error: SeaweedMQError) -> Sequence[Action]:
        """Record the loss of a follower.

        While the lease lives, the leader learns of the loss and publishers soon continue in the successor. The frames
        that the follower held are flushed at once: the page cache of this machine may be their only copy.
        """
        self._move(Event.FOLLOWER_LOST)
        if self.stage not in COMMITTING:
            return ()
        if isinstance(error, Fenced):
            self._stuck = self._sealed_by_others(f"follower {follower} was fenced")
        else:
            self._stuck = self._waits(f"follower {follower} cannot be replaced ({error})")
        return CommitFlushedOnly(), RequestFsync()

    def fence_checked(self, *, fenced: bool) -> Sequence[Action]:
        """Record the result of a fence check: whether the storage shows a fence."""
        flushed, self._checked_up_to = self._checked_up_to, None
        if self.stage not in COMMITTING:
            return ()
        assert flushed is not None, "a fence check ended that never began"
        if fenced:
            self._move(Event.FENCE_FOUND)
            return Halt(), *self._fail(self._sealed_by_others("the leader recovers it from its files"))
        self.failure = None
        return (RaiseHighWatermark(flushed),) if flushed > self._log.committed else ()

    def fence_check_failed(self, error: SeaweedMQError) -> Sequence[Action]:
        """Record that the storage does not answer. The fence check continues."""
        return self._fail(error) if self.stage in COMMITTING else ()

    def drain(self, why: SeaweedMQError) -> Sequence[Action]:
        """Accept nothing more, and commit what is there."""
        self._move(Event.DRAIN)
        self.rejection = why
        return ()

    def seal(self) -> Sequence[Action]:
        """Accept nothing more and commit nothing more. A repeated call has no effect."""
        before = self.stage
        self._move(Event.SEAL)
        if self.stage is before:
            return ()
        self.rejection = StaleMetadata(f"{self._segment} is being sealed: continue in its successors")
        self.failure = None
        return Halt(), LeaveFollowers()

    def all_flushed(self) -> Sequence[Action]:
        """Record that every frame is flushed."""
        self._move(Event.ALL_FLUSHED)
        return ()

    def close(self, why: SeaweedMQError) -> Sequence[Action]:
        """Write nothing more. A repeated call has no effect."""
        self._move(Event.CLOSE)
        self.rejection = why
        return (Halt(),)

    def _move(self, event: Event) -> None:
        following = STAGES[self.stage].get(event)
        assert following is not None, f"{self._segment} is {self.stage}: {event} cannot happen"
        self.stage = following

    def _fail(self, failure: SeaweedMQError | None) -> Sequence[Action]:
        assert failure is not None
        if type(failure) is type(self.failure):
            return ()  # already reported: another wording of the same failure does not matter to publishers
        self.failure = failure
        return (NotifyPublishers(),)

    def _waits(self, why: str) -> Unavailable:
        return Unavailable(
            f"{self._segment}: this broker cannot renew its lease because etcd is unreachable, and acknowledges "
            f"nothing until it can: {why}"
        )

    def _sealed_by_others(self, how: str) -> StaleMetadata:
        return StaleMetadata(
            f"{self._segment}: the leader seals it while this broker cannot reach etcd ({how}), and nothing is "
            "acknowledged here: continue in its successors"
        )


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
