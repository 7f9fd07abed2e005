"""Which offsets and timestamps a read wants: options and pushed filters, narrowed into one value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from seaweedmq.codec.moment import us_of
from seaweedmq.model.segment import Segment


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
    """None: latest."""
    by_segment: Mapping[int, int | None] = field(default_factory=dict)

    def of(self, segment: int) -> int | None:
        return self.by_segment.get(segment, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWindow:
    """What to read. Starts are inclusive, ends exclusive. Timestamps are microseconds since 1970 UTC."""

    starting: Offsets = Offsets(default=0)
    ending: Offsets = Offsets(default=None)
    offsets: Interval = Interval()
    """From pushed filters."""
    timestamps: Interval = Interval()
    segments: Interval = Interval()

    def of(self, segment: Segment) -> tuple[int, int | None] | None:
        """Offsets ``[start, end)`` wanted of a segment, the end None if it is what there is; None if there are none."""
        start = self.starting.of(segment.id)
        if start is None or not self.segments.contains(segment.id, segment.id):
            return None
        interval = self.offsets.narrow(max(start, 0), self.ending.of(segment.id))
        if interval.lo is None:
            raise AssertionError("an interval that was narrowed from below has no lower bound")
        return None if interval.hi is not None and interval.hi <= interval.lo else (interval.lo, interval.hi)

    def narrowed(self, filters: Iterable[Filter], names: Mapping[str, str]) -> "ReadWindow":
        """With comparisons of offset, timestamp and segment to constants taken in; other filters change nothing.

        Args:
            names: column as Spark calls it -> ``offset``, ``timestamp`` or ``segment``.
        """
        window = self
        for found in filters:
            attribute: tuple[str, ...] = getattr(found, "attribute", ())
            what = names.get(".".join(attribute))
            if what is None:
                continue
            bounds = _bounds(found)
            if bounds is None:
                continue
            if what == "offset":
                window = replace(window, offsets=window.offsets.narrow(*bounds))
            elif what == "timestamp":
                window = replace(window, timestamps=window.timestamps.narrow(*bounds))
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
    if not isinstance(found, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    number = _number(found.value)
    if number is None:
        return None
    if isinstance(found, EqualTo):
        return number, number + 1
    if isinstance(found, GreaterThan | GreaterThanOrEqual):
        return (number if isinstance(found, GreaterThanOrEqual) else number + 1), None
    return None, (number if isinstance(found, LessThan) else number + 1)


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return us_of(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
