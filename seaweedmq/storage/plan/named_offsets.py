"""Offsets that a user named for a segment, held against where it ends. One number for all segments is clamped to each:
that is how a limit is said. One that is named for a segment is meant, and rows that are missing would tell nobody."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.segment import Segment
from seaweedmq.storage.plan.log_ends import end_in_files
from seaweedmq.storage.plan.scan_ranges import BrokerOffsets
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.snapshot import TopicSnapshot, list_files

_LISTINGS_MAX: Final = 3
"""Of files of which one was gone when it was looked into."""


def refuse_beyond(window: ReadWindow, root: Path | None, snapshot: TopicSnapshot, known: BrokerOffsets | None) -> None:
    """Raise if an offset is named beyond the end of its segment, as far as that is known.

    Without brokers the logs of open segments are looked into, of those alone that are named.

    Raises:
        InvalidArgument: there is no such segment.
        OutOfRange: an offset lies beyond the end.
        Corrupt, StorageFailed: the logs can not be looked into.
    """
    ends: dict[int, tuple[int, str] | None] = {}
    for option, number, offset in _named(window):
        segment = snapshot.segment(number)
        if number not in ends:
            ends[number] = _end(root, snapshot, segment, known)
        end = ends[number]
        if end is not None and offset > end[0]:
            more = "" if segment.end_offset is not None or known is not None else ", or 'bootstrap' to ask brokers, too"
            raise OutOfRange(
                f"option {option!r} asks for offset {offset} of {segment}, which {end[1]} {end[0]}: give that or a "
                f"lower one{more}, or set failOnDataLoss to false to read what is there"
            )


def _named(window: ReadWindow) -> Iterator[tuple[str, int, int]]:
    """Option, segment and offset; words are none."""
    for option, offsets in (("startingOffsets", window.starting), ("endingOffsets", window.ending)):
        for number, offset in offsets.by_segment.items():
            if offset is not None and offset >= 0:
                yield option, number, offset


def _end(
    root: Path | None, snapshot: TopicSnapshot, segment: Segment, known: BrokerOffsets | None
) -> tuple[int, str] | None:
    """Where the segment ends, and in what way; None: nobody knows."""
    if segment.end_offset is not None:
        return segment.end_offset, "ends at"
    if known is not None:
        committed = known.ends.get(segment.id)
        return None if committed is None else (committed, "is committed up to")
    if root is None:
        raise AssertionError("a read has a storage, or brokers")
    end = _end_in_files(root, snapshot, segment.id)
    if end is None:
        if snapshot.topic.has_retention:
            return None  # it may have had files
        end = segment.start_offset
    return end, "is in files up to"


def _end_in_files(root: Path, snapshot: TopicSnapshot, number: int) -> int | None:
    for attempt in range(_LISTINGS_MAX):
        try:
            return end_in_files(root, snapshot, number)
        except NotFound:
            if attempt == _LISTINGS_MAX - 1:
                raise
            snapshot = replace(snapshot, files=list_files(root, snapshot.topic.name, [number]))
    raise AssertionError("the last attempt returns or raises")
