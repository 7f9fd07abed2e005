"""Plan of a read: the scan ranges that hold the requested records of a topic.

One offset for all segments is a limit, and is clamped to each segment. An offset named for a segment is exact: without
an error if it lies beyond the end, missing rows would go unnoticed.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.segment import Segment
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.log_ends import end_in_files
from seaweedmq.storage.plan.scan_ranges import ScanRange, plan_ranges
from seaweedmq.storage.plan.time_offsets import with_offsets
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.snapshot import TopicSnapshot, list_files

_LISTINGS_MAX: Final = 3
"""Maximum number of listings, made again if a file disappears before it is read."""


def plan_read(source: TopicSource, window: ReadWindow, *, fail_on_data_loss: bool = True) -> list[ScanRange]:
    """Return the scan ranges of a window: :func:`scan_ranges.plan_ranges`, with offsets in place of times.

    Raises OutOfRange if an offset is named beyond the end of its segment, or requested offsets were removed;
    InvalidArgument if offsets are given for a segment that does not exist; DataLoss if records are lost; Unavailable if
    no broker answers.
    """
    if fail_on_data_loss:
        _reject_beyond_end(window, source)
    window = with_offsets(window, source)
    return plan_ranges(source.snapshot, window, source.known, fail_on_data_loss=fail_on_data_loss)


def _reject_beyond_end(window: ReadWindow, source: TopicSource) -> None:
    """Raise if an offset is named beyond the end of its segment, as far as the end is known.

    Without brokers, the log files of the named open segments are read, and no others. Raises InvalidArgument if no such
    segment exists; OutOfRange if an offset lies beyond the end.
    """
    snapshot, known = source.snapshot, source.known
    ends: dict[int, tuple[int, str] | None] = {}
    for option, number, offset in _named(window):
        segment = snapshot.segment(number)
        if number not in ends:
            ends[number] = _end(source, segment)
        end = ends[number]
        if end is not None and offset > end[0]:
            more = "" if segment.end_offset is not None or known is not None else ", or 'bootstrap' to query brokers"
            raise OutOfRange(
                f"option {option!r} is offset {offset} of {segment}, which {end[1]} {end[0]}: give that or a "
                f"lower one{more}, or set failOnDataLoss to false to read what exists"
            )


def _named(window: ReadWindow) -> Iterator[tuple[str, int, int]]:
    """Yield option, segment and offset of each named number, but not of ``earliest`` and ``latest``."""
    for option, offsets in (("startingOffsets", window.starting), ("endingOffsets", window.ending)):
        for number, offset in offsets.by_segment.items():
            if offset is not None and offset >= 0:
                yield option, number, offset


def _end(source: TopicSource, segment: Segment) -> tuple[int, str] | None:
    """Return the end of the segment and the words that describe it; None if the end is unknown."""
    if segment.end_offset is not None:
        return segment.end_offset, "ends at"
    if source.known is not None:
        committed = source.known.ends.get(segment.id)
        return None if committed is None else (committed, "is committed up to")
    end = _end_in_files(source.storage, source.snapshot, segment.id)
    if end is None:
        if source.snapshot.topic.has_retention:
            return None  # it may have had files
        end = segment.start_offset
    return end, "is in files up to"


def _end_in_files(place: Place, snapshot: TopicSnapshot, number: int) -> int | None:
    for attempt in range(_LISTINGS_MAX):
        try:
            return end_in_files(place, snapshot, number)
        except NotFound:
            if attempt == _LISTINGS_MAX - 1:
                raise
            snapshot = replace(snapshot, files=list_files(place, snapshot.topic.name, [number]))
    raise AssertionError("the last attempt returns or raises")
