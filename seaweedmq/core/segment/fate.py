"""The fate of one open segment on its primary, from the first record to the end: a table of stages, and what follows.

Events go in, actions come out; ``broker.segment.primary`` performs them, and nobody else changes the segment's log.
How far the high watermark may rise in a stage that commits is the rule in ``commit``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.core.segment.commit import ComeAgain, Commit, Look, Positions, Sync, Wait, commit_rule
from seaweedmq.errors import Fenced, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.segment import Segment


class Stage(StrEnum):
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


STAGES: Mapping[Stage, Mapping[Event, Stage]] = {
    Stage.SERVING: {
        Event.FOLLOWER_LOST: Stage.DOUBTFUL,
        Event.FENCE_FOUND: Stage.FENCED,
        Event.DRAIN: Stage.DRAINING,
        Event.SEAL: Stage.SEALING,
        Event.CLOSE: Stage.CLOSED,
    },
    Stage.DOUBTFUL: {
        Event.FOLLOWER_LOST: Stage.DOUBTFUL,
        Event.FENCE_FOUND: Stage.FENCED,  # by a look that began before
        Event.SEAL: Stage.SEALING,
        Event.CLOSE: Stage.CLOSED,
    },
    Stage.DRAINING: {
        Event.SEAL: Stage.SEALING,
        Event.CLOSE: Stage.CLOSED,
    },
    Stage.FENCED: {
        Event.FOLLOWER_LOST: Stage.FENCED,
        Event.CLOSE: Stage.CLOSED,
    },
    Stage.SEALING: {
        Event.FOLLOWER_LOST: Stage.SEALING,
        Event.SEAL: Stage.SEALING,
        Event.ALL_FLUSHED: Stage.SEALED,
        Event.CLOSE: Stage.CLOSED,
    },
    Stage.SEALED: {
        Event.FOLLOWER_LOST: Stage.SEALED,
        Event.SEAL: Stage.SEALED,
        Event.ALL_FLUSHED: Stage.SEALED,
        Event.CLOSE: Stage.CLOSED,
    },
    Stage.CLOSED: {
        Event.FOLLOWER_LOST: Stage.CLOSED,
        Event.CLOSE: Stage.CLOSED,
    },
}
"""What is not here can not happen."""

COMMITTING = frozenset({Stage.SERVING, Stage.DOUBTFUL, Stage.DRAINING})
"""Stages in which the high watermark may rise."""
UNDISPUTED = frozenset({Stage.SERVING, Stage.DOUBTFUL})
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
class Tell:
    """Publishers are to hear of ``failure``."""


Action: TypeAlias = Commit | Sync | Look | ComeAgain | OnlyFsynced | Halt | LeaveFollowers | Tell


class SegmentFate:
    """One machine for each open segment. Reads the segment's log and changes nothing of it."""

    def __init__(self, segment: Segment, log: Positions) -> None:
        self.stage = Stage.SERVING
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
            follower_lost=self.stage is Stage.DOUBTFUL,
            looking=self._looked_for is not None,
        ):
            if isinstance(action, Wait):
                actions += self._fail(self._stuck)
            else:
                actions.append(action)
            if isinstance(action, Look):
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
        return OnlyFsynced(), Sync()

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
        return (Commit(flushed),) if flushed > self._log.committed else ()

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
        return (Tell(),)

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
