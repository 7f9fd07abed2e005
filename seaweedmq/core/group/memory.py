"""Account of the memory that the groups of a leader hold: groups, their members and their commits.

Streams of members have their own account. Existing groups count even above the limit; the limit rejects additions.
"""

from collections.abc import Mapping

from seaweedmq.core.group.events import Outcome
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.messages.groups import GroupCommit

GROUP_BYTES = 16 * 1024
"""A served group: its coordinator, with its tasks."""
RECORD_BYTES = 1024
"""The record of a group, without members and owners."""
MEMBER_BYTES = 1024
OWNER_BYTES = 512
COMMITTED_BYTES = 1024
"""A committed offset, also while it is written and assigned."""
DELIVERY_BYTES = 256
"""A committed number of deliveries, also while it is written and assigned."""


def record_bytes(record: GroupRecord) -> int:
    """Return the memory of a group's record."""
    return RECORD_BYTES + len(record.members) * MEMBER_BYTES + len(record.owners) * OWNER_BYTES


def committed_bytes(committed: CommittedOffset) -> int:
    """Return the memory of a segment's committed offset."""
    return COMMITTED_BYTES + len(committed.deliveries) * DELIVERY_BYTES


class GroupMemory:
    """Bytes that all groups hold together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def count(self, more_bytes: int) -> None:
        """Count more bytes, or (negative) fewer."""
        self.used += more_bytes
        assert self.used >= 0

    def check(self, more_bytes: int, what: str) -> None:
        """Raise ResourceExhausted, about ``what``, if the total would exceed the limit."""
        if more_bytes > 0 and self.used + more_bytes > self.bytes_max:
            raise ResourceExhausted(
                f"{what} is rejected: the groups of the leader hold {self.used:,} of {self.bytes_max:,} bytes: delete "
                "groups (`seaweedmq group delete`), use fewer members, or raise memory_bytes_max"
            )


class GroupSize:
    """Bytes of one served group. Invariant: they are counted in ``memory`` from the start to ``close``."""

    def __init__(self, memory: GroupMemory, record: GroupRecord, committed: Mapping[int, CommittedOffset]) -> None:
        self._memory = memory
        self._record_bytes = record_bytes(record)
        self._committed_bytes = {segment: committed_bytes(one) for segment, one in committed.items()}
        self._bytes = GROUP_BYTES + self._record_bytes + sum(self._committed_bytes.values())
        self._is_served = True
        memory.count(self._bytes)

    def changed(self, outcome: Outcome) -> None:
        """Count the changes of an event, while the group is served."""
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
        """Raise ResourceExhausted if no other member fits."""
        self._memory.check(MEMBER_BYTES, "another member")

    def check_commit(self, commit: GroupCommit) -> None:
        """Raise ResourceExhausted if a commit does not fit; one that adds nothing always does."""
        more = sum(
            COMMITTED_BYTES + len(one.deliveries) * DELIVERY_BYTES - self._committed_bytes.get(one.segment, 0)
            for one in commit.positions
        )
        self._memory.check(more, "the commit")

    def close(self) -> None:
        """Release the bytes, as the group is served no longer; idempotent."""
        if self._is_served:
            self._is_served = False
            self._memory.count(-self._bytes)
