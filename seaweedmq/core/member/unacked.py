"""The bound on what a member handed out and did not see acknowledged: in records, and in bytes that are kept for it."""

from collections.abc import Mapping
from typing import Any

from seaweedmq.core.member.held_segment import HeldSegment


class Unacked:
    """Counts generously, and anew only when that would be too much: counting looks at every frame that is held.

    Invariant: never less is counted than there is.
    """

    def __init__(self, assigned: Mapping[int, HeldSegment[Any, Any]], records_max: int, bytes_max: int) -> None:
        self._assigned = assigned
        self.records_max = records_max
        self.bytes_max = bytes_max
        self.records = 0
        self.size_bytes = 0
        self.blocks = False
        """Delivery waits; what is assigned is watched, so that acknowledgements are heard of."""

    def arrive(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes

    def hand_out(self, count: int) -> None:
        self.records += count

    def room(self, wanted: int) -> int:
        """How many more records may go out; exactly only if there are fewer than ``wanted``."""
        if self.records + wanted > self.records_max:
            self.records = sum(assigned.ledger.unacked() for assigned in self._assigned.values())
        return self.records_max - self.records

    def check(self) -> bool:
        """Whether no more rows may be taken in now."""
        self.blocks = self._is_full()
        if self.blocks:
            for assigned in self._assigned.values():
                assigned.watch(True)
            self.blocks = self._is_full()  # once more: from here on, who acknowledges says so
        return self.blocks

    def _is_full(self) -> bool:
        if self.size_bytes > self.bytes_max:
            for assigned in self._assigned.values():
                assigned.ledger.position()
            self.size_bytes = sum(assigned.ledger.size_bytes() for assigned in self._assigned.values())
        return self.size_bytes > self.bytes_max or self.room(1) <= 0
