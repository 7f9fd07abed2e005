"""End offsets of an open segment's log files, found from frame headers while the driver plans a read.

Planning them here spares executors a task for an empty log file.
"""

from collections import deque
from contextlib import closing

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_index import Mark
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import TopicSnapshot

_READ_BYTES = 16 * KIB
"""Bytes per read: the scan reads mostly headers, and skips the payloads of large frames."""
_VERIFIED_BYTES = 64 * MIB
"""Bytes at the end of a log file whose payloads are verified as well.

After power loss, unflushed data may have holes; the log file ends at the first one.
"""
_ALL = 2**63 - 1


def end_in_files(place: Place, snapshot: TopicSnapshot, segment_id: int) -> int | None:
    """Return the end of a segment's files, tables and logs; None if it has no files.

    Reads only the last files. The reader of earlier files reports what is missing there. Raises Corrupt if a file is
    damaged otherwise than by a torn tail.
    """
    limit = snapshot.segment(segment_id).end_offset
    mine = {f.base_offset for f in snapshot.files if f.segment == segment_id}
    bases = sorted(base for base in mine if limit is None or base < limit)
    # From the last but one: it shows whether the last file continues where the previous one ends.
    pieces = snapshot.plan(segment_id, bases[-2:][0], missing=[]) if bases else ()
    if not pieces:
        return None
    last = pieces[-1]
    if last.kind is FileKind.TABLE and last.end_offset is not None:
        return last.end_offset
    return end_of_logs(place, snapshot.topic, last)


def end_of_logs(place: Place, topic: Topic, piece: SnapshotPiece) -> int:
    """Return the end of the contiguous offsets that the piece's log files hold from its start, at least that start."""
    position = piece.start_offset
    for file in piece.files:
        if file.base_offset <= position:
            position = max(position, _end_of(place, topic, file, piece.end_offset))
        if piece.end_offset is not None and position >= piece.end_offset:
            return piece.end_offset
    return position


def _end_of(place: Place, topic: Topic, file: SegmentFile, limit: int | None) -> int:
    with closing(place.open_input(file)) as source:
        marks: deque[Mark | None] = deque([None])
        """Positions where the second pass may begin; None is the start of the file."""
        scanner = LogScanner(topic, file, skip_below=_ALL, read_bytes=_READ_BYTES)
        for _ in scanner.runs(source):
            if limit is not None and scanner.next_offset >= limit:
                return limit
            if scanner.mark is not None and scanner.mark != marks[-1]:
                marks.append(scanner.mark)
            while len(marks) > 1 and (following := marks[1]) is not None:
                if following.position > file.size_bytes - _VERIFIED_BYTES:
                    break
                marks.popleft()
        if scanner.foreign:
            return file.base_offset
        scanner = LogScanner(topic, file, begin=marks[0])
        deque(scanner.runs(source), maxlen=0)
        return scanner.next_offset
