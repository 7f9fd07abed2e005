"""How far the logs of an open segment reach, found by their frames' headers: in the driver, while a read is planned.

What is not read then is asked for of no executor: an empty tail costs no task.
"""

from collections import deque
from contextlib import closing
from pathlib import Path

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.logs.log_index import Mark
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.snapshot import TopicSnapshot
from seaweedmq.storage.store.file_handles import open_input

_READ_BYTES = 16 * KIB
"""At once: mostly headers are looked at, and of large frames nothing else is read."""
_VERIFIED_BYTES = 64 * MIB
"""At the end of a log, payloads too: after power loss what was not fsynced may have holes, and the log ends there."""
_ALL = 2**63 - 1


def end_in_files(root: Path, snapshot: TopicSnapshot, segment_id: int) -> int | None:
    """Where the files of a segment end, tables and logs; None if there are none. Only the last files are looked at:
    what is missing before them is told by whoever reads it.

    Raises:
        NotFound, Corrupt: as :func:`end_of_logs`.
    """
    limit = snapshot.segment(segment_id).end_offset
    mine = {f.base_offset for f in snapshot.files if f.segment == segment_id}
    bases = sorted(base for base in mine if limit is None or base < limit)
    # From the last but one on: it says whether the last one goes on where what is before it ends.
    pieces = snapshot.plan(segment_id, bases[-2:][0], missing=[]) if bases else ()
    if not pieces:
        return None
    last = pieces[-1]
    if last.kind is FileKind.TABLE and last.end_offset is not None:
        return last.end_offset
    return end_of_logs(root, snapshot.topic, last)


def end_of_logs(root: Path, topic: Topic, piece: SnapshotPiece) -> int:
    """The end of what the piece's logs hold without gap from its start on; its start if they hold nothing of it.

    Raises:
        NotFound: a log was deleted meanwhile.
        Corrupt: damage that is not a torn tail.
    """
    position = piece.start_offset
    for file in piece.files:
        if file.base_offset <= position:
            position = max(position, _end_of(root, topic, file, piece.end_offset))
        if piece.end_offset is not None and position >= piece.end_offset:
            return piece.end_offset
    return position


def _end_of(root: Path, topic: Topic, file: SegmentFile, limit: int | None) -> int:
    with closing(open_input(root, file)) as source:
        marks: deque[Mark | None] = deque([None])
        """Where the second walk may begin; None: at the start of the file."""
        scanner = LogScanner(topic, file, skip_below=_ALL, read_bytes=_READ_BYTES)
        while (wanted := scanner.wants()) is not None:
            _feed(scanner, source, file, *wanted)
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
        while (wanted := scanner.wants()) is not None:
            _feed(scanner, source, file, *wanted)
        return scanner.next_offset


def _feed(scanner: LogScanner, source: BlockingInput, file: SegmentFile, position: int, length: int) -> None:
    source.seek(position)
    # What was appended after the listing is not part of the snapshot.
    scanner.feed(source.read(max(0, min(length, file.size_bytes - position))))
