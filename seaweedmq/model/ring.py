"""The ring of a topic's slots, and contiguous ranges of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import xxhash

from seaweedmq.errors import InvalidArgument

RING_SLOTS_MAX = 65_536
"""Highest number of slots, since frame headers hold slots in 16 bits; also the default."""
HISTOGRAM_BUCKETS = 16


def slot_of(key: bytes) -> int:
    """Return the slot of a partition key in a ring of ``RING_SLOTS_MAX``: the top 16 bits of XXH3-64 with seed 0."""
    return int(xxhash.xxh3_64_intdigest(key)) >> 48


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """A range of contiguous slots ``[lo, hi)``. Invariant: 0 <= lo < hi <= 65536."""

    lo: int
    hi: int

    def __post_init__(self) -> None:
        if not 0 <= self.lo < self.hi <= RING_SLOTS_MAX:
            raise InvalidArgument(
                f"key range [{self.lo}, {self.hi}) is not part of the ring: give 0 <= lo < hi <= {RING_SLOTS_MAX}"
            )

    @property
    def width(self) -> int:
        """The number of slots."""
        return self.hi - self.lo

    def __contains__(self, slot: int) -> bool:
        return self.lo <= slot < self.hi

    def covers(self, slot_min: int, slot_max: int) -> bool:
        """Whether every slot from ``slot_min`` to ``slot_max``, both included, lies in the range."""
        return self.lo <= slot_min <= slot_max < self.hi

    def overlaps(self, other: "KeyRange") -> bool:
        """Whether both ranges share a slot."""
        return self.lo < other.hi and other.lo < self.hi

    def within(self, other: "KeyRange") -> "KeyRange | None":
        """Return the slots of both ranges, or None."""
        return KeyRange(max(self.lo, other.lo), min(self.hi, other.hi)) if self.overlaps(other) else None

    def without(self, other: "KeyRange") -> list["KeyRange"]:
        """Return the slots that the other range lacks, in up to two ranges."""
        edges = (self.lo, min(self.hi, other.lo)), (max(self.lo, other.hi), self.hi)
        return [KeyRange(lo, hi) for lo, hi in edges if lo < hi]

    def split(self, at: int) -> tuple["KeyRange", "KeyRange"]:
        """Cut into ``[lo, at)`` and ``[at, hi)``, or raise InvalidArgument if one side would be empty."""
        if not self.lo < at < self.hi:
            raise InvalidArgument(
                f"cannot split [{self.lo}, {self.hi}) at slot {at}: choose a slot from {self.lo + 1} to {self.hi - 1}"
            )
        return KeyRange(self.lo, at), KeyRange(at, self.hi)

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi})"


WHOLE_RING = KeyRange(0, RING_SLOTS_MAX)
"""Ring with the highest number of slots. ``Topic.ring`` is the ring of a topic."""


def even_ranges(ring: KeyRange, count: int) -> tuple[KeyRange, ...]:
    """Cut a ring into ranges, equal within one slot; InvalidArgument unless ``count`` is 1 to the number of slots."""
    if not 1 <= count <= ring.width:
        raise InvalidArgument(f"{count} segments asked for: a topic has 1 to {ring.width}, at most one per slot")
    edges = [ring.lo + ring.width * i // count for i in range(count + 1)]
    return tuple(KeyRange(lo, hi) for lo, hi in pairwise(edges))


def covers_ring(ranges: Iterable[KeyRange], ring: KeyRange) -> bool:
    """Whether the ranges, in any order, cover the ring exactly once."""
    at = ring.lo
    for r in sorted(ranges):
        if r.lo != at:
            return False
        at = r.hi
    return at == ring.hi
