"""The limit of a member's unacknowledged deliveries: in records, and in bytes that are held for them."""

from collections.abc import Mapping
from typing import Any

from seaweedmq.core.member.held_segment import HeldSegment


class Unacked:
    """A counter never too low, and exact only at the limit: an exact count visits every held frame."""

    def __init__(self, assigned: Mapping[int, HeldSegment[Any, Any]], records_max: int, bytes_max: int) -> None:
        self._assigned = assigned
        self.records_max = records_max
        self.bytes_max = bytes_max
        self.records = 0
        self.size_bytes = 0
        self.blocks = False
        """Whether delivery waits; then held segments are watched, so that acknowledgements are reported."""

    def arrive(self, size_bytes: int) -> None:
        """Count the bytes of rows that arrived."""
        self.size_bytes += size_bytes

    def deliver(self, count: int) -> None:
        """Count records that were delivered."""
        self.records += count

    def room(self, wanted: int) -> int:
        """Return the number of records that may still be delivered; exact only if it is below ``wanted``."""
        if self.records + wanted > self.records_max:
            self.records = sum(assigned.ledger.unacked() for assigned in self._assigned.values())
        return self.records_max - self.records

    def check(self) -> bool:
        """Whether no more rows may arrive now."""
        self.blocks = self._is_full()
        if self.blocks:
            for assigned in self._assigned.values():
                assigned.watch(True)
            self.blocks = self._is_full()  # again: acknowledgements are reported only from now on
        return self.blocks

    def _is_full(self) -> bool:
        if self.size_bytes > self.bytes_max:
            for assigned in self._assigned.values():
                assigned.ledger.position()
            self.size_bytes = sum(assigned.ledger.size_bytes() for assigned in self._assigned.values())
        return self.size_bytes > self.bytes_max or self.room(1) <= 0
