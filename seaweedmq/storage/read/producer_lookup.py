"""What the files say of a producer that brokers have forgotten: how far it got in one segment. Blocking.

Log files name the producer of every frame, and at their beginning those who were remembered then; tables do neither.
So what can be said ends where a log file is gone already, none that follows remembers the producer, and a table that
was made since it began has the records: they may be the producer's, or others'.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.store.directory import scan_segment
from seaweedmq.storage.store.faults import storage_failed
from seaweedmq.storage.store.file_handles import open_input

SLACK_US = 60_000_000
"""Times of files are those of several machines."""
LISTINGS_MAX = 3
"""A log file may become a table while it is looked at."""


class _Found(NamedTuple):
    """What one log file says."""

    covers: tuple[int, int]
    """Offsets that it was seen to hold."""
    sequence: int
    """Behind the producer's last record in it, or before it; 0 if there is none."""
    is_remembered: bool
    """Whether it says at its beginning how far the producer was, be it in an earlier epoch: then no record before is
    of any matter."""


def stored_sequence(
    root: Path,
    topic: Topic,
    segment: Segment,
    producer: tuple[int, int],
    *,
    since_us: int,
    sequence: int,
    offset: int,
) -> int:
    """The sequence behind the producer's last record in the segment.

    Args:
        producer: id and epoch.
        since_us: it has published nothing before, by the clock of the storage; microseconds.
        sequence, offset: of what is known to be stored: anything later has a higher sequence and is at the offset or
            behind it. 0 and 0: nothing is known.

    Raises:
        OutOfRange: records that may be the producer's are in tables alone, which do not say whose they are.
        Corrupt, StorageFailed: a file that would say it can not be read.
    """
    start = max(offset, segment.start_offset)
    for _ in range(LISTINGS_MAX):
        try:
            files = scan_segment(root, topic.name, segment.id)
        except OSError as error:
            raise storage_failed("list files of", str(segment), error) from error
        young = _young(files, since_us - SLACK_US)
        logs = [f for f in young if f.kind is FileKind.LOG]
        try:
            found = [_scan(root, topic, f, segment, producer, start) for f in logs]
        except NotFound:
            continue
        sequence = max(sequence, *(each.sequence for each in found), 0)
        known = max((each.covers[0] for each in found if each.is_remembered), default=start)
        unseen = _unseen(young, [each.covers for each in found], max(start, known), segment.end_offset)
        if unseen is None:
            return sequence
        raise OutOfRange(
            f"{segment}: what was published from offset {unseen[0]} to {unseen[1]} is in tables alone, which do not "
            f"say who published it: nobody can tell whether rows of the batch from its row {sequence} for this segment "
            "on are among them"
        )
    raise OutOfRange(f"{segment}: its log files go while they are looked at; start again")


def _young(files: Sequence[SegmentFile], since_us: int) -> list[SegmentFile]:
    """Return the files that may have been written since a moment. A segment is written in the order of its offsets: no
    file is older than one that begins before it, though a clock that was set back dated it."""
    ordered = sorted(files, key=lambda f: f.base_offset)
    dated_us = accumulate((f.modified_us for f in ordered), max)
    return [f for f, us in zip(ordered, dated_us, strict=True) if us >= since_us]


def _scan(
    root: Path, topic: Topic, file: SegmentFile, segment: Segment, producer: tuple[int, int], start: int
) -> _Found:
    scanner = LogScanner(topic, file, skip_below=start)
    found = 0
    with closing(open_input(root, file)) as source:
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
    """The first offsets that young tables hold and no log that was seen."""
    for table in sorted((f for f in young if f.kind is FileKind.TABLE), key=lambda f: f.base_offset):
        assert table.end_offset is not None
        at, stop = max(table.base_offset, start), table.end_offset if end is None else min(table.end_offset, end)
        for lo, hi in sorted(seen):
            if lo <= at < hi:
                at = hi
        if at < stop:
            return at, stop
    return None
