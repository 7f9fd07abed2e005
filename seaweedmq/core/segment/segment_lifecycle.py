"""The fate of one open segment on its primary, from the first record to the end: a table of stages, and what follows.

Events go in, actions come out; ``broker.segment.primary`` performs them, and nobody else changes the segment's log.
How far the high watermark may rise in a stage that commits is the rule in ``commit``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.core.segment.commit_rule import (
    CheckFence,
    Positions,
    RaiseHighWatermark,
    ReportLeaseDoubt,
    RequestFsync,
    RetrySoon,
    commit_rule,
)
from seaweedmq.errors import Fenced, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.segment import Segment


class SegmentStage(StrEnum):
    """Where a segment stands on its primary."""

    SERVING = "serving"
    """Takes records and acknowledges them."""
    DOUBTFUL = "doubtful"
    """A follower is lost: nothing new is held by all, and the leader is to replace the segment."""
    DRAINING = "draining"
    """Takes nothing more, and acknowledges what it has: its only replica leaves the cluster."""
    FENCED = "fenced"
    """Others take its files for all it has."""
    SEALING = "sealing"
    """Takes and acknowledges nothing more; what it has is being written and fsynced."""
    SEALED = "sealed"
    """All it has is fsynced."""
    CLOSED = "closed"
    """Nothing is written any more."""


class Event(StrEnum):
    """What moves a segment from one stage to another."""

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
        Event.FENCE_FOUND: SegmentStage.FENCED,  # by a look that began before
        Event.SEAL: SegmentStage.SEALING,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.DRAINING: {
        Event.SEAL: SegmentStage.SEALING,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.FENCED: {
        Event.FOLLOWER_LOST: SegmentStage.FENCED,
        Event.CLOSE: SegmentStage.CLOSED,
    },
    SegmentStage.SEALING: {
        Event.FOLLOWER_LOST: SegmentStage.SEALING,
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
    SegmentStage.CLOSED: {
        Event.FOLLOWER_LOST: SegmentStage.CLOSED,
        Event.CLOSE: SegmentStage.CLOSED,
    },
}
"""What is not here can not happen."""

COMMITTING = frozenset({SegmentStage.SERVING, SegmentStage.DOUBTFUL, SegmentStage.DRAINING})
"""Stages in which the high watermark may rise."""
UNDISPUTED = frozenset({SegmentStage.SERVING, SegmentStage.DOUBTFUL})
"""Stages in which nobody can have ended it, while the lease lives."""


@dataclass(frozen=True, slots=True)
class OnlyFsynced:
    """Only what is fsynced may be committed from here on."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing is committed from here on: no look, no timer."""


@dataclass(frozen=True, slots=True)
class LeaveFollowers:
    """Replicate no more, and write also what followers do not hold."""


@dataclass(frozen=True, slots=True)
class NotifyPublishers:
    """Publishers are to hear of ``failure``."""


Action: TypeAlias = (
    RaiseHighWatermark | RequestFsync | CheckFence | RetrySoon | OnlyFsynced | Halt | LeaveFollowers | NotifyPublishers
)


class SegmentLifecycle:
    """One machine for each open segment. Reads the segment's log and changes nothing of it."""

    def __init__(self, segment: Segment, log: Positions) -> None:
        self.stage = SegmentStage.SERVING
        self.refusal: SeaweedMQError | None = None
        """Why it takes no records any more."""
        self.failure: SeaweedMQError | None = None
        """Why nothing is committed at the moment."""
        self._segment = segment
        self._log = log
        self._stuck: SeaweedMQError | None = self._waits("it has no followers") if len(segment.replicas) == 1 else None
        """What keeps it from going on without the lease."""
        self._looked_for: int | None = None
        """What the look that is under way is for."""

    # --- while it goes on ---------------------------------------------------------------------------------------------

    def progressed(self, *, lease_alive: bool) -> Sequence[Action]:
        """Something was written or fsynced, a look has ended, or it is time to come again."""
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
            looking=self._looked_for is not None,
        ):
            if isinstance(action, ReportLeaseDoubt):
                actions += self._fail(self._stuck)
            else:
                actions.append(action)
            if isinstance(action, CheckFence):
                self._looked_for = action.flushed
        return actions

    def follower_lost(self, follower: str, error: SeaweedMQError) -> Sequence[Action]:
        """While the lease lives the leader hears of it and publishers go on elsewhere soon.

        What the follower held is fsynced at once: it may be in the page cache of this machine only.
        """
        self._move(Event.FOLLOWER_LOST)
        if self.stage not in COMMITTING:
            return ()
        if isinstance(error, Fenced):
            self._stuck = self._sealed_by_others(f"follower {follower} was fenced")
        else:
            self._stuck = self._waits(f"follower {follower} can not be replaced ({error})")
        return OnlyFsynced(), RequestFsync()

    def looked(self, *, fenced: bool) -> Sequence[Action]:
        """A look has ended: whether the storage shows a fence."""
        flushed, self._looked_for = self._looked_for, None
        if self.stage not in COMMITTING:
            return ()
        assert flushed is not None, "a look ended that never began"
        if fenced:
            self._move(Event.FENCE_FOUND)
            return Halt(), *self._fail(self._sealed_by_others("its files are taken for all it has"))
        self.failure = None
        return (RaiseHighWatermark(flushed),) if flushed > self._log.committed else ()

    def look_fails(self, error: SeaweedMQError) -> Sequence[Action]:
        """The storage does not answer; the look goes on."""
        return self._fail(error) if self.stage in COMMITTING else ()

    # --- the end ------------------------------------------------------------------------------------------------------

    def drain(self, why: SeaweedMQError) -> Sequence[Action]:
        """Take nothing more, commit what is there."""
        self._move(Event.DRAIN)
        self.refusal = why
        return ()

    def seal(self) -> Sequence[Action]:
        """Take nothing more and commit nothing more. Again is no error."""
        before = self.stage
        self._move(Event.SEAL)
        if self.stage is before:
            return ()
        self.refusal = StaleMetadata(f"{self._segment} is being sealed: go on in its successors")
        self.failure = None
        return Halt(), LeaveFollowers()

    def all_flushed(self) -> Sequence[Action]:
        """All it has is fsynced."""
        self._move(Event.ALL_FLUSHED)
        return ()

    def close(self, why: SeaweedMQError) -> Sequence[Action]:
        """Nothing is written any more. Again is no error."""
        self._move(Event.CLOSE)
        self.refusal = why
        return (Halt(),)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _move(self, event: Event) -> None:
        following = STAGES[self.stage].get(event)
        assert following is not None, f"{self._segment} is {self.stage}: {event} can not be"
        self.stage = following

    def _fail(self, failure: SeaweedMQError | None) -> Sequence[Action]:
        assert failure is not None
        if type(failure) is type(self.failure):
            return ()  # told already; a new wording of the same makes no difference to publishers
        self.failure = failure
        return (NotifyPublishers(),)

    def _waits(self, why: str) -> Unavailable:
        return Unavailable(
            f"{self._segment}: this broker could not renew its lease, etcd is out of reach; nothing is acknowledged "
            f"until it is back, because {why}"
        )

    def _sealed_by_others(self, how: str) -> StaleMetadata:
        return StaleMetadata(
            f"{self._segment}: others seal it while this broker can not reach etcd ({how}); nothing is acknowledged "
            "here any more: go on in its successors"
        )
