"""The segments that a member of a group holds, from their assignment to their release, and their commits.

| segment | event | then |
|---|---|---|
| not held | assigned | held: to be read |
| held | its assignment was withdrawn, or replaced by one of another generation | revoked: no longer read |
| held | the coordinator rejected a commit of it | revoked, and none of its commits is retried |
| held | the membership ended | revoked |
| revoked | none of its records is in flight, and its last position was answered | not held: release to be reported |

A segment that was assigned again in the meantime is held again as soon as it was released.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from seaweedmq.core.member.commits import CommitQueue
from seaweedmq.core.member.held_segment import HeldSegment, M, R
from seaweedmq.core.member.record_dispatch import RecordDispatch
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted, Ownership


@dataclass(frozen=True, slots=True)
class Instructions(Generic[R, M]):
    """The instructions for the caller."""

    begin: list[HeldSegment[R, M]] = field(default_factory=list)
    """Segments to start reading."""
    stop: list[HeldSegment[R, M]] = field(default_factory=list)
    """Segments to stop reading."""
    release: dict[int, int] = field(default_factory=dict)
    """Segments whose release is to be reported to the coordinator: segment -> generation."""


class Holdings(Generic[R, M]):
    """The held segments of a member, for the loop's thread with the caller's lock; ``commits`` needs none."""

    def __init__(self, dispatch: RecordDispatch[R, M]) -> None:
        self._dispatch = dispatch
        self.commits = CommitQueue()
        self.is_over = False
        """Whether the membership ended, so that nothing is read or committed."""
        self._newest: dict[int, Ownership] = {}
        """Segments of the newest assignment."""

    @property
    def held(self) -> Mapping[int, int]:
        """Generation of each segment that is read, or whose last commit is pending."""
        return {assigned.segment: assigned.generation for assigned in self._dispatch.assigned.values()}

    @property
    def is_resting(self) -> bool:
        """Whether nothing will have to be committed until rows arrive or a segment is assigned."""
        return self.is_over or not any(assigned.is_live for assigned in self._dispatch.assigned.values())

    def assign(self, assignment: GroupAssignment) -> Instructions[R, M]:
        """Apply a new assignment from the coordinator."""
        self._newest = {given.segment: given for given in assignment.owned}
        withdrawn = []
        for assigned in self._dispatch.assigned.values():
            given = self._newest.get(assigned.segment)
            if given is None or given.generation != assigned.generation:
                withdrawn.append(assigned)
        return Instructions(stop=self._revoke(withdrawn), begin=self._begin())

    def answered(self, committed: GroupCommitted) -> Instructions[R, M]:
        """Apply the coordinator's answer to a commit."""
        self.commits.answered(committed)
        refused = [a for s in committed.refused if (a := self._dispatch.assigned.get(s)) is not None]
        for assigned in refused:
            assigned.refuse_commits()
        return Instructions(stop=self._revoke(refused))

    def end(self) -> Instructions[R, M]:
        """End the membership."""
        self.is_over = True
        return Instructions(stop=self._revoke(list(self._dispatch.assigned.values())))

    def maintain(self, commit_all: bool) -> Instructions[R, M]:
        """Commit positions that others wait for, and all of them if ``commit_all``; release finished segments."""
        if self.is_over:
            return Instructions()
        drained = []
        for assigned in self._dispatch.assigned.values():
            is_urgent = assigned.is_revoked or assigned.is_read
            assigned.watch(is_urgent or self._dispatch.unacked.blocks)
            # Acknowledgements take no lock: check that nothing is in flight before reading the position, which is then
            # final.
            is_over = assigned.is_revoked and not assigned.ledger.has_in_flight()
            if (commit_all or is_urgent) and not assigned.is_refused:
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
        """Begin new segments, unless an earlier generation of the same segment is still held."""
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
        # The coordinator rejected a commit before it withdrew the assignment.
        if given is not None and given.generation == assigned.generation:
            del self._newest[assigned.segment]
        self.commits.forget(assigned.segment)
