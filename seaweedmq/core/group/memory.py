"""Account of the memory that the groups of a leader hold: groups, their members and what they committed.

Streams of members have memory of their own. What is there counts even above the bound; what would add to it is
rejected then.
"""

from collections.abc import Mapping

from seaweedmq.core.group.events import Outcome
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.groups import GroupCommit

GROUP_BYTES = 16 * 1024
"""A group that is served: its coordinator, with its tasks."""
RECORD_BYTES = 1024
"""The record of a group, without members and owners."""
MEMBER_BYTES = 1024
OWNER_BYTES = 512
COMMITTED_BYTES = 1024
"""A committed offset, also while it is written and assigned."""
DELIVERY_BYTES = 256
"""A number of deliveries that was committed, the same."""


def record_bytes(record: GroupRecord) -> int:
    """Return what the record of a group costs."""
    return RECORD_BYTES + len(record.members) * MEMBER_BYTES + len(record.owners) * OWNER_BYTES


def committed_bytes(committed: CommittedOffset) -> int:
    """Return what the committed offset of a segment costs."""
    return COMMITTED_BYTES + len(committed.deliveries) * DELIVERY_BYTES


class GroupMemory:
    """Bytes that all groups hold together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def count(self, more_bytes: int) -> None:
        """Count what is held more, or (negative) less."""
        self.used += more_bytes
        assert self.used >= 0

    def check(self, more_bytes: int, what: str) -> None:
        """Whether ``what`` may be taken.

        Raises:
            ResourceExhausted: If that would be more than the bound.
        """
        if more_bytes > 0 and self.used + more_bytes > self.bytes_max:
            raise ResourceExhausted(
                f"{what} is rejected: the groups of the leader hold {self.used:,} of {self.bytes_max:,} bytes: delete "
                "groups (`seaweedmq group delete`), have fewer members, or raise memory_bytes_max"
            )


class GroupSize:
    """Bytes of one group that is served. Invariant: they are counted in ``memory`` from the start to ``close``."""

    def __init__(self, memory: GroupMemory, record: GroupRecord, committed: Mapping[int, CommittedOffset]) -> None:
        self._memory = memory
        self._record_bytes = record_bytes(record)
        self._committed_bytes = {segment: committed_bytes(one) for segment, one in committed.items()}
        self._bytes = GROUP_BYTES + self._record_bytes + sum(self._committed_bytes.values())
        self._is_served = True
        memory.count(self._bytes)

    def changed(self, outcome: Outcome) -> None:
        """Count what an event changed, while the group is served."""
        if not self._is_served:
            return
        more = 0
        if outcome.record is not None:
            now = record_bytes(outcome.record)
            more += now - self._record_bytes
            self._record_bytes = now
        for segment, committed in outcome.committed.items():
            more -= self._committed_bytes.pop(segment, 0)
            if committed is not None:
                now = self._committed_bytes[segment] = committed_bytes(committed)
                more += now
        self._bytes += more
        self._memory.count(more)

    def check_member(self) -> None:
        """Raise ResourceExhausted unless another member may come."""
        self._memory.check(MEMBER_BYTES, "another member")

    def check_commit(self, commit: GroupCommit) -> None:
        """Raise ResourceExhausted unless a commit may be taken. One that adds nothing always is."""
        more = sum(
            COMMITTED_BYTES + len(one.deliveries) * DELIVERY_BYTES - self._committed_bytes.get(one.segment, 0)
            for one in commit.positions
        )
        self._memory.check(more, "the commit")

    def close(self) -> None:
        """The group is served no longer. May be called again."""
        if self._is_served:
            self._is_served = False
            self._memory.count(-self._bytes)
