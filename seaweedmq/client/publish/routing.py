"""Which segment a key slot goes to, as one publisher sees it. Pure.

The table changes only when a publisher has taken back what a sealed segment did not keep, so it may lag behind the
cluster. That is on purpose: were it to run ahead, new records of a key would overtake older ones.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seaweedmq.errors import Unavailable
from seaweedmq.model.ring import KeyRange, covers_ring
from seaweedmq.model.segment import Segment


class _Stretch(NamedTuple):
    slots: KeyRange
    segment: int


class Routes:
    """Stretches of the ring and the segment that takes each. Invariant: they partition the ring.

    A stretch may be narrower than its segment's range: after a merge the sides are handed over one by one.
    """

    def __init__(self, ring: KeyRange, stretches: Iterable[tuple[KeyRange, int]]) -> None:
        self.ring = ring
        self._stretches = sorted(_Stretch(slots, segment) for slots, segment in stretches)
        if not covers_ring((s.slots for s in self._stretches), ring):
            raise Unavailable(f"the open segments do not cover the key ring: {self._stretches}; metadata is changing")
        self._edges = np.array([s.slots.lo for s in self._stretches[1:]], dtype=np.uint32)
        self._segments = np.array([s.segment for s in self._stretches], dtype=np.int64)

    @classmethod
    def to_open(cls, ring: KeyRange, segments: Iterable[Segment]) -> "Routes":
        """Raises Unavailable if the open ones are not a partition, which a cluster shows only in passing."""
        return cls(ring, ((s.slots, s.id) for s in segments if s.is_open))

    @property
    def segments(self) -> frozenset[int]:
        return frozenset(s.segment for s in self._stretches)

    def whole(self) -> int | None:
        """The segment that takes everything, if one does."""
        return self._stretches[0].segment if len(self._stretches) == 1 else None

    def segment_of(self, slot: int) -> int:
        return int(self._segments[np.searchsorted(self._edges, slot, side="right")])

    def partition(self, slots: npt.NDArray[np.uint16]) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Row numbers by segment, ascending within each; segments without rows are left out."""
        stretch_of_row = np.searchsorted(self._edges, slots, side="right").astype(np.uint16)
        segments = self._segments[stretch_of_row]
        order = np.argsort(stretch_of_row, kind="stable")
        if len(self.segments) != len(self._stretches):
            order = np.argsort(segments, kind="stable")
        ordered = segments[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        ends = np.append(starts[1:], len(ordered))
        return [(int(ordered[lo]), order[lo:hi]) for lo, hi in zip(starts, ends, strict=True)]

    def grow(self, ring: KeyRange, segments: Iterable[Segment]) -> "Routes":
        """The same with the slots that the ring has got, which go to those of the open segments that lie there.

        Raises:
            Unavailable: they do not cover them.
        """
        more = [(s.slots, s.id) for s in segments if s.is_open and s.slots.lo >= self.ring.hi]
        return Routes(ring, [*self._stretches, *more])

    def replace(self, sealed: int, successors: Iterable[Segment]) -> "Routes":
        """Give the stretches of ``sealed`` to its successors, and what several of them have to the newest: after a
        merge the other side may have gone on, to where slots are that this side knows an older segment for.

        Raises:
            Unavailable: they do not cover them.
        """
        heirs = sorted(successors, key=lambda successor: successor.id, reverse=True)
        stretches: list[tuple[KeyRange, int]] = []
        for stretch in self._stretches:
            if stretch.segment != sealed:
                stretches.append(stretch)
                continue
            left = [stretch.slots]
            for successor in heirs:
                stretches += [
                    (part, successor.id) for slots in left if (part := slots.within(successor.slots)) is not None
                ]
                left = [part for slots in left for part in slots.without(successor.slots)]
        return Routes(self.ring, stretches)


class Trail:
    """Segments that one publisher has left, and what came after each: where it still has an older one, it may come to
    them again."""

    def __init__(self) -> None:
        self._successors: dict[int, tuple[int, ...]] = {}

    def leave(self, segment: int, heirs: Iterable[int], routes: Routes) -> None:
        """Note it, and forget what nobody can come to any more from where ``routes`` are now: ids only rise."""
        oldest = min(routes.segments)
        kept = {**self._successors, segment: tuple(heirs)}
        self._successors = {number: next_ids for number, next_ids in kept.items() if number > oldest}

    def follow(self, segments: Iterable[int]) -> set[int]:
        """These segments, and in place of those that were left the ones that came after them.

        Each is looked up once: over splits and merges in turn the ways through the lineage double with every pair.
        """
        seen = set(segments)
        waiting = list(seen)
        while waiting:
            new = set(self._successors.get(waiting.pop(), ())) - seen
            seen |= new
            waiting += new
        return seen - self._successors.keys()
