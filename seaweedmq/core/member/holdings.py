"""Which segments a member of a group holds, from their assignment to their release, and what it commits of them.

| segment | event | then |
|---|---|---|
| not held | assigned | held: it is to be read |
| held | its assignment was withdrawn, or replaced by one of another generation | revoked: read and handed out no more |
| held | the coordinator refused a commit of it | revoked, and no commit of it is tried again |
| held | the membership is over | revoked |
| revoked | nothing of it is out, and its last position was answered | not held: it is to be reported as released |

A segment that was assigned anew meanwhile is held again as soon as it was released.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from seaweedmq.core.member.commits import CommitQueue
from seaweedmq.core.member.held_segment import HeldSegment, M, R
from seaweedmq.core.member.record_dispatch import RecordDispatch
from seaweedmq.model.groups import GroupAssignment, GroupCommitted, Ownership


@dataclass(frozen=True, slots=True)
class Instructions(Generic[R, M]):
    """What the shell is to do."""

    begin: list[HeldSegment[R, M]] = field(default_factory=list)
    """Read these."""
    stop: list[HeldSegment[R, M]] = field(default_factory=list)
    """Read these no more."""
    release: dict[int, int] = field(default_factory=dict)
    """Report these to the coordinator: segment -> generation."""


class Holdings(Generic[R, M]):
    """Of one member. The loop's thread only, with the shell's lock, except for ``commits``, which needs none."""

    def __init__(self, dispatch: RecordDispatch[R, M]) -> None:
        self._dispatch = dispatch
        self.commits = CommitQueue()
        self.is_over = False
        """Nothing is read or committed any more."""
        self._newest: dict[int, Ownership] = {}
        """What the newest assignment gives."""

    @property
    def held(self) -> Mapping[int, int]:
        """Segment -> generation of what is read, or was not committed for the last time."""
        return {assigned.segment: assigned.generation for assigned in self._dispatch.assigned.values()}

    @property
    def is_resting(self) -> bool:
        """Whether nothing will have to be committed unless something arrives, or is assigned."""
        return self.is_over or not any(assigned.is_live for assigned in self._dispatch.assigned.values())

    def assign(self, assignment: GroupAssignment) -> Instructions[R, M]:
        """The coordinator said what to read from now on."""
        self._newest = {given.segment: given for given in assignment.owned}
        withdrawn = []
        for assigned in self._dispatch.assigned.values():
            given = self._newest.get(assigned.segment)
            if given is None or given.generation != assigned.generation:
                withdrawn.append(assigned)
        return Instructions(stop=self._revoke(withdrawn), begin=self._begin())

    def answered(self, committed: GroupCommitted) -> Instructions[R, M]:
        """The coordinator answered a commit."""
        self.commits.answered(committed)
        refused = [a for s in committed.refused if (a := self._dispatch.assigned.get(s)) is not None]
        for assigned in refused:
            assigned.refuse_commits()
        return Instructions(stop=self._revoke(refused))

    def end(self) -> Instructions[R, M]:
        """The membership is over."""
        self.is_over = True
        return Instructions(stop=self._revoke(list(self._dispatch.assigned.values())))

    def look_after(self, is_time: bool) -> Instructions[R, M]:
        """Commit what others wait for and, when it ``is_time``, everything; release what is dealt with."""
        if self.is_over:
            return Instructions()
        drained = []
        for assigned in self._dispatch.assigned.values():
            is_urgent = assigned.is_revoked or assigned.is_read
            assigned.watch(is_urgent or self._dispatch.unacked.blocks)
            # Acknowledgements take no lock: first that nothing is out, then the position, which is the last one.
            is_over = assigned.is_revoked and not assigned.ledger.is_out()
            if (is_time or is_urgent) and not assigned.is_refused:
                position = assigned.position()
                if position is not None:
                    self.commits.want(position)
            if is_over and not self.commits.is_pending(assigned.segment):
                drained.append(assigned)
        for assigned in drained:
            self._release(assigned)
        return Instructions(
            release={assigned.segment: assigned.generation for assigned in drained},
            begin=self._begin() if drained else [],
        )

    def _begin(self) -> list[HeldSegment[R, M]]:
        """What is new, unless what came before it of the same segment is still held."""
        if self.is_over:
            return []
        held = self._dispatch.assigned
        return [self._dispatch.assign(given) for segment, given in self._newest.items() if segment not in held]

    def _revoke(self, some: list[HeldSegment[R, M]]) -> list[HeldSegment[R, M]]:
        revoked = [assigned for assigned in some if not assigned.is_revoked]
        for assigned in revoked:
            self._dispatch.revoke(assigned)
        return revoked

    def _release(self, assigned: HeldSegment[R, M]) -> None:
        self._dispatch.release(assigned)
        given = self._newest.get(assigned.segment)
        if given is not None and given.generation == assigned.generation:  # refused before the assignment said so
            del self._newest[assigned.segment]
        self.commits.forget(assigned.segment)
