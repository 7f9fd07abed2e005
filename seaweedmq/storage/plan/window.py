"""Window of a read: requested offsets and timestamps, from options and filters. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seaweedmq.model.segment import Segment

EARLIEST = -2
"""Offset that stands for the earliest retained one, as in Kafka's options."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of whole numbers ``[lo, hi)``; None leaves that side unbounded."""

    lo: int | None = None
    hi: int | None = None

    def narrow(self, lo: int | None, hi: int | None) -> "Interval":
        """Return the intersection with ``[lo, hi)``."""
        return Interval(
            max((b for b in (self.lo, lo) if b is not None), default=None),
            min((b for b in (self.hi, hi) if b is not None), default=None),
        )

    def overlaps(self, lowest: int, highest: int) -> bool:
        """Whether any number from ``lowest`` to ``highest``, both included, may be in the interval."""
        return (self.lo is None or highest >= self.lo) and (self.hi is None or lowest < self.hi)

    def contains(self, lowest: int, highest: int) -> bool:
        """Whether all numbers from ``lowest`` to ``highest``, both included, are in the interval."""
        return (self.lo is None or lowest >= self.lo) and (self.hi is None or highest < self.hi)

    @property
    def is_bounded(self) -> bool:
        """Whether the interval has a bound."""
        return self.lo is not None or self.hi is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """The requested first or last offsets: one for all segments, except those named."""

    default: int | None
    """EARLIEST, or None for latest."""
    by_segment: Mapping[int, int | None] = field(default_factory=dict)

    def of(self, segment: int) -> int | None:
        """Return the offset for a segment: EARLIEST, or None for latest."""
        return self.by_segment.get(segment, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWindow:
    """The records to read. Starts are inclusive, ends exclusive. Timestamps are microseconds since 1970 UTC."""

    starting: Offsets = Offsets(default=EARLIEST)
    ending: Offsets = Offsets(default=None)
    starting_times: Offsets | None = None
    """Times that stand for the starting offsets; None if ``starting`` has these."""
    ending_times: Offsets | None = None
    ranges: Mapping[int, tuple[tuple[int, int], ...]] | None = None
    """Offset ranges to read by segment, and no other segments; None if the other attributes decide."""
    offsets: Interval = Interval()
    """Bounds on offsets from filters."""
    timestamps: Interval = Interval()
    segments: Interval = Interval()
    partitions: Interval = Interval()
    slots: frozenset[int] | None = None
    """Slots of the requested keys, in a whole ring; None for any.

    In topics with partitions, keys determine no slot: clients choose partitions freely, and partitions are added.
    """

    def wants(self, segment: Segment) -> bool:
        """Whether any record of the segment may match."""
        return (
            self.segments.contains(segment.id, segment.id)
            and self.partitions.contains(segment.slots.lo, segment.slots.lo)
            and (self.slots is None or any(slot in segment.slots for slot in self.slots))
        )

    def parts_of(self, segment: Segment) -> tuple[tuple[int, int | None], ...]:
        """Return the offset ranges requested of a segment; ranges from :meth:`of` or several planned ones."""
        if self.ranges is None:
            wanted = self.of(segment)
            return () if wanted is None else (wanted,)
        parts = []
        for lo, hi in self.ranges.get(segment.id, ()) if self.wants(segment) else ():
            part = self.offsets.narrow(lo, hi)
            if part.lo is not None and part.hi is not None and part.lo < part.hi:
                parts.append((part.lo, part.hi))
        return tuple(parts)

    def of(self, segment: Segment) -> tuple[int, int | None] | None:
        """Return the offsets ``[start, end)`` requested of a segment, or None; an end of None is open."""
        start = self.starting.of(segment.id)
        if start is None or not self.wants(segment):
            return None
        interval = self.offsets.narrow(max(start, 0), self.ending.of(segment.id))
        assert interval.lo is not None, "an interval that was narrowed from below has no lower bound"
        return None if interval.hi is not None and interval.hi <= interval.lo else (interval.lo, interval.hi)
