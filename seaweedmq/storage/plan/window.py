"""Which offsets and timestamps a read wants: options and pushed filters, narrowed into one value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from seaweedmq.codec.timestamps import us_of
from seaweedmq.model.ring import slot_of
from seaweedmq.model.segment import Segment

EARLIEST = -2
"""In place of an offset: what retention kept, wherever that begins. As in Kafka's options."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers ``[lo, hi)``; None: no bound on that side."""

    lo: int | None = None
    hi: int | None = None

    def narrow(self, lo: int | None, hi: int | None) -> "Interval":
        """What lies in both."""
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
        return self.lo is not None or self.hi is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """One end of the offsets asked for: the same for all segments but those named."""

    default: int | None
    """EARLIEST, or None for latest."""
    by_segment: Mapping[int, int | None] = field(default_factory=dict)

    def of(self, segment: int) -> int | None:
        return self.by_segment.get(segment, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWindow:
    """What to read. Starts are inclusive, ends exclusive. Timestamps are microseconds since 1970 UTC."""

    starting: Offsets = Offsets(default=EARLIEST)
    ending: Offsets = Offsets(default=None)
    ranges: Mapping[int, tuple[tuple[int, int], ...]] | None = None
    """By segment, the offsets that are read, and of no other segment any; None: all that the rest of this says."""
    offsets: Interval = Interval()
    """From pushed filters."""
    timestamps: Interval = Interval()
    segments: Interval = Interval()
    partitions: Interval = Interval()
    slots: frozenset[int] | None = None
    """Of the keys asked for, in a whole ring; None: any. Keys of topics with partitions tell nothing: their clients put
    them where they like, and partitions are added."""

    def wants(self, segment: Segment) -> bool:
        """Whether anything of the segment may be wanted."""
        return (
            self.segments.contains(segment.id, segment.id)
            and self.partitions.contains(segment.slots.lo, segment.slots.lo)
            and (self.slots is None or any(slot in segment.slots for slot in self.slots))
        )

    def parts_of(self, segment: Segment) -> tuple[tuple[int, int | None], ...]:
        """As :meth:`of`, but there may be several."""
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
        """Offsets ``[start, end)`` wanted of a segment, the end None if it is what there is; None if there are none."""
        start = self.starting.of(segment.id)
        if start is None or not self.wants(segment):
            return None
        interval = self.offsets.narrow(max(start, 0), self.ending.of(segment.id))
        if interval.lo is None:
            raise AssertionError("an interval that was narrowed from below has no lower bound")
        return None if interval.hi is not None and interval.hi <= interval.lo else (interval.lo, interval.hi)

    def narrowed(self, filters: Iterable[Filter], names: Mapping[str, str]) -> "ReadWindow":
        """With comparisons of some columns to constants taken in; other filters change nothing.

        Args:
            names: column as Spark calls it -> ``offset``, ``timestamp``, ``segment``, ``partition`` or ``key``.
        """
        window = self
        for found in filters:
            attribute: tuple[str, ...] = getattr(found, "attribute", ())
            what = names.get(".".join(attribute))
            if what is None:
                continue
            if what == "key":
                slots = _slots(found)
                if slots is not None:
                    window = replace(window, slots=slots if window.slots is None else window.slots & slots)
                continue
            bounds = _bounds(found)
            if bounds is None:
                continue
            if what == "offset":
                window = replace(window, offsets=window.offsets.narrow(*bounds))
            elif what == "timestamp":
                window = replace(window, timestamps=window.timestamps.narrow(*bounds))
            elif what == "partition":
                window = replace(window, partitions=window.partitions.narrow(*bounds))
            else:
                window = replace(window, segments=window.segments.narrow(*bounds))
        return window


def _bounds(found: Filter) -> tuple[int | None, int | None] | None:
    """Every row that passes the filter has a value in these bounds; None if the filter says nothing we understand."""
    if isinstance(found, In):
        values = [_number(v) for v in found.value]
        if not values or any(v is None for v in values):
            return None
        numbers = [v for v in values if v is not None]
        return min(numbers), max(numbers) + 1
    if not isinstance(found, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    number = _number(found.value)
    if number is None:
        return None
    if isinstance(found, EqualTo | EqualNullSafe):
        return number, number + 1
    if isinstance(found, GreaterThan | GreaterThanOrEqual):
        return (number if isinstance(found, GreaterThanOrEqual) else number + 1), None
    return None, (number if isinstance(found, LessThan) else number + 1)


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return us_of(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _slots(found: Filter) -> frozenset[int] | None:
    """Slots of the keys that pass; None if the filter does not name them."""
    if isinstance(found, EqualTo | EqualNullSafe):
        keys = (found.value,)
    elif isinstance(found, In):
        keys = found.value
    else:
        return None
    if not all(isinstance(key, bytes | bytearray) for key in keys):
        return None
    return frozenset(slot_of(bytes(key)) for key in keys)
