"""Lookup in files of a producer that brokers no longer know: its last sequence in one segment. Blocking.

Log files name the producer of every frame, and their preambles the producers known at that time; tables do neither. The
lookup is inconclusive if three conditions hold. A log file is deleted, no later preamble has the producer, and a table
written since the producer began has the records: any producer may have sent them.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from typing import NamedTuple

from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.storage.faults import failing
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.place import Place

SLACK_US = 60_000_000
"""Tolerance for file dates, which come from several machines; microseconds."""
LISTINGS_MAX = 3
"""Limit of the listings: a log file may be converted to a table while it is read."""


class _Found(NamedTuple):
    """The result of scanning one log file."""

    covers: tuple[int, int]
    """Offsets [start, end) that the log holds."""
    sequence: int
    """Sequence after the producer's last record in the log or its preamble; 0 if there is none."""
    is_remembered: bool
    """Whether the preamble has the producer, even in an earlier epoch, so that earlier records are irrelevant."""


def stored_sequence(
    place: Place,
    topic: Topic,
    segment: Segment,
    producer: tuple[int, int],
    *,
    since_us: int,
    sequence: int,
    offset: int,
) -> int:
    """Return the sequence after the producer's last record in the segment.

    ``producer`` is its id and epoch; it published nothing before ``since_us``, by the storage's clock. ``sequence`` and
    ``offset`` are those after the last record known to be stored; 0 if none is known. Raises OutOfRange if records that
    may be the producer's are only in tables, which do not name producers.
    """
    start = max(offset, segment.start_offset)
    for _ in range(LISTINGS_MAX):
        with failing("list files of", segment):
            files = place.segment_files(topic.name, segment.id)
        young = _young(files, since_us - SLACK_US)
        logs = [f for f in young if f.kind is FileKind.LOG]
        try:
            found = [_scan(place, topic, f, segment, producer, start) for f in logs]
        except NotFound:
            continue
        sequence = max(sequence, *(each.sequence for each in found), 0)
        known = max((each.covers[0] for each in found if each.is_remembered), default=start)
        unseen = _unseen(young, [each.covers for each in found], max(start, known), segment.end_offset)
        if unseen is None:
            return sequence
        raise OutOfRange(
            f"{segment}: data from offset {unseen[0]} to {unseen[1]} is in tables alone, which do not name "
            f"producers: it is unknown whether they hold rows of the batch from its row {sequence} for this segment"
        )
    raise OutOfRange(f"{segment}: log files are deleted while they are read: retry")


def _young(files: Sequence[SegmentFile], since_us: int) -> list[SegmentFile]:
    """Return the files that may have been written since a time.

    A segment is written in the order of its offsets, so a file is at least as recent as each earlier one. Its date may
    be older, if a clock was set back.
    """
    ordered = sorted(files, key=lambda f: f.base_offset)
    dated_us = accumulate((f.modified_us for f in ordered), max)
    return [f for f, us in zip(ordered, dated_us, strict=True) if us >= since_us]


def _scan(
    place: Place, topic: Topic, file: SegmentFile, segment: Segment, producer: tuple[int, int], start: int
) -> _Found:
    scanner = LogScanner(topic, file, skip_below=start)
    found = 0
    with closing(place.open_input(file)) as source:
        while (wanted := scanner.wants()) is not None:
            position, length = wanted
            source.seek(position)
            for each in scanner.feed(source.read(length)).frames:
                header = each.frame.header
                is_kept = segment.end_offset is None or header.base_offset < segment.end_offset
                if is_kept and (header.producer_id, header.producer_epoch) == producer:
                    found = max(found, header.first_sequence + header.record_count)
    remembered = scanner.preamble.producers if scanner.preamble is not None else ()
    ours = next((p for p in remembered if p.producer_id == producer[0]), None)
    if ours is not None and ours.producer_epoch == producer[1]:
        found = max(found, ours.next_sequence)
    return _Found((file.base_offset, scanner.next_offset), found, ours is not None)


def _unseen(
    young: Sequence[SegmentFile], seen: Sequence[tuple[int, int]], start: int, end: int | None
) -> tuple[int, int] | None:
    """Return the first offsets that young tables hold and no scanned log."""
    for table in sorted((f for f in young if f.kind is FileKind.TABLE), key=lambda f: f.base_offset):
        assert table.end_offset is not None
        at, stop = max(table.base_offset, start), table.end_offset if end is None else min(table.end_offset, end)
        for lo, hi in sorted(seen):
            if lo <= at < hi:
                at = hi
        if at < stop:
            return at, stop
    return None
