"""Routes from key slots to segments, as one publisher sees them. Pure.

The routes change only when the publisher has taken back the frames that a sealed segment does not hold, so they may lag
behind the cluster. That is intended: if they ran ahead, new records of a key would overtake older ones.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seaweedmq.errors import Unavailable
from seaweedmq.model.ring import KeyRange, covers_ring
from seaweedmq.model.segment import Segment


class _SlotRange(NamedTuple):
    slots: KeyRange
    segment: int


class Routes:
    """Slot ranges and the segment that takes each. Invariant: they partition the ring (else Unavailable).

    A slot range may be narrower than its segment's: after a merge the two sides are handed over one by one.
    """

    def __init__(self, ring: KeyRange, slot_ranges: Iterable[tuple[KeyRange, int]]) -> None:
        self.ring = ring
        self._slot_ranges = sorted(_SlotRange(slots, segment) for slots, segment in slot_ranges)
        if not covers_ring((s.slots for s in self._slot_ranges), ring):
            raise Unavailable(
                f"the open segments do not cover the key ring: {self._slot_ranges}: metadata changes, retry"
            )
        self._edges = np.array([s.slots.lo for s in self._slot_ranges[1:]], dtype=np.uint32)
        self._segments = np.array([s.segment for s in self._slot_ranges], dtype=np.int64)

    @classmethod
    def to_open(cls, ring: KeyRange, segments: Iterable[Segment]) -> "Routes":
        """Make the routes to the open segments; Unavailable, which is transient, if they do not partition the ring."""
        return cls(ring, ((s.slots, s.id) for s in segments if s.is_open))

    @property
    def segments(self) -> frozenset[int]:
        """The segments that take slots."""
        return frozenset(s.segment for s in self._slot_ranges)

    def whole(self) -> int | None:
        """Return the segment that takes all slots; None if there are several."""
        return self._slot_ranges[0].segment if len(self._slot_ranges) == 1 else None

    def segment_of(self, slot: int) -> int:
        """Return the segment that takes a slot."""
        return int(self._segments[np.searchsorted(self._edges, slot, side="right")])

    def partition(self, slots: npt.NDArray[np.uint16]) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Return the row numbers of each segment that gets rows, ascending within each."""
        range_of_row = np.searchsorted(self._edges, slots, side="right").astype(np.uint16)
        segments = self._segments[range_of_row]
        order = np.argsort(range_of_row, kind="stable")
        if len(self.segments) != len(self._slot_ranges):
            order = np.argsort(segments, kind="stable")
        ordered = segments[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        ends = np.append(starts[1:], len(ordered))
        return [(int(ordered[lo]), order[lo:hi]) for lo, hi in zip(starts, ends, strict=True)]

    def grow(self, ring: KeyRange, segments: Iterable[Segment]) -> "Routes":
        """Return these routes extended to a larger ring, whose new slots go to the open segments there.

        Raises Unavailable if these do not cover the new slots.
        """
        more = [(s.slots, s.id) for s in segments if s.is_open and s.slots.lo >= self.ring.hi]
        return Routes(ring, [*self._slot_ranges, *more])

    def replace(self, sealed: int, successors: Iterable[Segment]) -> "Routes":
        """Return these routes with the slot ranges of ``sealed`` given to its successors, or raise Unavailable.

        The successors must cover the slot ranges. Slots of several successors go to the newest: after a merge the other
        side may have moved on already, while this side still has an older segment for the same slots.
        """
        newest_first = sorted(successors, key=lambda successor: successor.id, reverse=True)
        slot_ranges: list[tuple[KeyRange, int]] = []
        for slot_range in self._slot_ranges:
            if slot_range.segment != sealed:
                slot_ranges.append(slot_range)
                continue
            left = [slot_range.slots]
            for successor in newest_first:
                slot_ranges += [
                    (part, successor.id) for slots in left if (part := slots.within(successor.slots)) is not None
                ]
                left = [part for slots in left for part in slots.without(successor.slots)]
        return Routes(self.ring, slot_ranges)


class SuccessorMap:
    """The segments that one publisher left, with their successors: it may meet them again through an older segment."""

    def __init__(self) -> None:
        self._successors: dict[int, tuple[int, ...]] = {}

    def record(self, segment: int, successors: Iterable[int], routes: Routes) -> None:
        """Record a segment that was left, and drop those that cannot be reached from ``routes``: ids only rise."""
        oldest = min(routes.segments)
        kept = {**self._successors, segment: tuple(successors)}
        self._successors = {number: next_ids for number, next_ids in kept.items() if number > oldest}

    def resolve(self, segments: Iterable[int]) -> set[int]:
        """Return the segments, with those that were left replaced by their current successors.

        Each segment is visited once: alternating splits and merges double the paths through the lineage each time.
        """
        seen = set(segments)
        waiting = list(seen)
        while waiting:
            new = set(self._successors.get(waiting.pop(), ())) - seen
            seen |= new
            waiting += new
        return seen - self._successors.keys()
