"""The plan of a snapshot: pieces of a segment that can be read independently, on many machines.

Every offset is in exactly one piece, from Parquet if possible, else from logs. The plan follows from file names and the
segment's metadata alone, so that planning opens no files. (``cover`` serves a single reader that goes through a segment
in order and knows its end.)
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seaweedmq.core.files.holes import first_kept, missing_records
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPiece:
    """Offsets ``[start_offset, end_offset)`` of a segment and the files that hold them."""

    segment: int
    start_offset: int
    end_offset: int | None
    """Offset after the last one; None for the end of what the log files hold."""
    files: tuple[SegmentFile, ...]
    """One table; or log files, the most promising first. Where one of them ends early, another may continue: the
    writers of a segment follow one another, and frames in several files are identical. Where none continues, the piece
    ends."""
    complete: bool
    """Whether every offset up to ``end_offset`` is known to exist, so that finding fewer is damage."""

    @property
    def kind(self) -> FileKind:
        """Kind of the files."""
        return self.files[0].kind

    @property
    def size_bytes(self) -> int:
        """Estimated bytes to read, for balancing work."""
        file = self.files[0]
        if self.end_offset is None:
            return sum(f.size_bytes for f in self.files)
        if file.end_offset is None:
            return file.size_bytes
        return file.size_bytes * (self.end_offset - self.start_offset) // (file.end_offset - file.base_offset)


def plan_snapshot(
    topic: Topic,
    segment: Segment,
    files: Iterable[SegmentFile],
    start: int = 0,
    end: int | None = None,
    *,
    removed_below: int = 0,
    missing: list[range] | None = None,
) -> tuple[SnapshotPiece, ...]:
    """Return the pieces of the segment's offsets in ``[start, end)``, as :func:`plan_offsets` does.

    ``end`` is None for the end of the segment, ``removed_below`` what retention recorded.
    """
    lowest = max(segment.start_offset, topic.low_watermark(segment.slots), removed_below)
    return plan_offsets(topic, segment.id, segment.end_offset, files, start, end, lowest=lowest, missing=missing)


def plan_offsets(
    topic: Topic,
    segment: int,
    sealed_at: int | None,
    files: Iterable[SegmentFile],
    start: int = 0,
    end: int | None = None,
    *,
    lowest: int = 0,
    missing: list[range] | None = None,
) -> tuple[SnapshotPiece, ...]:
    """Return the pieces of a segment's offsets in ``[start, end)``, in order, without gap or overlap.

    Records that retention or a low watermark removed at the beginning are left out silently, and so is what files hold
    beyond the segment's end. A log file's name does not show its end. So a piece of logs ends where the next file
    begins, and the last one is unbounded. The last piece has the last two files: the end of the earlier one may have
    waited for its fsync when the later one was begun, and after a power loss the segment ends there.

    ``sealed_at`` is the end of the segment, or an offset up to which all its records exist; None if it is open. ``end``
    is None for the end of the segment. Below ``lowest`` the segment never had records, or they are known to be removed.
    ``missing`` receives the ranges of lost offsets, so that the plan continues after them; with None DataLoss is raised
    if offsets are in no file although nothing removed them. The last file of an open segment proves nothing.
    """
    limit = _least(end, sealed_at)
    mine = sorted(
        (f for f in files if f.segment == segment and f.topic == topic.name), key=lambda f: (f.base_offset, f.writer)
    )
    if sealed_at is not None:
        mine = [f for f in mine if f.base_offset < sealed_at]
    needed = max(start, first_kept(topic, mine, lowest, sealed_at))
    if not mine:
        if sealed_at is not None and limit is not None and needed < limit:
            _lose(topic, segment, range(needed, limit), missing)
        return ()
    tables = [f for f in mine if f.kind is FileKind.TABLE]
    logs = [f for f in mine if f.kind is FileKind.LOG]
    stored = sealed_at
    last: list[SegmentFile] = []
    """Logs that may begin after lost records."""
    if stored is None:
        tables_end = max((_end(t) for t in tables), default=0)
        bases = sorted({f.base_offset for f in logs})
        last = [f for f in logs if len(bases) > 1 and f.base_offset == bases[-1] > tables_end]
        stored = max([tables_end, *(bases[:-1] if last else bases)])
    position = needed
    begun: dict[str, SegmentFile] = {}
    """Logs that begin at or before ``position``. In an open segment only the last one of each writer, whose files
    follow one another. In a sealed one, an earlier log may continue beyond the next: after a failed fsync, the writer
    died before it had written its frames again."""
    tables_begun = logs_begun = 0
    table: SegmentFile | None = None
    """The table that reaches furthest among those that begin at or before ``position``."""
    pieces: list[SnapshotPiece] = []
    while limit is None or position < limit:
        while tables_begun < len(tables) and tables[tables_begun].base_offset <= position:
            table = max((table, tables[tables_begun]), key=_end)
            tables_begun += 1
        while logs_begun < len(logs) and logs[logs_begun].base_offset <= position:
            log = logs[logs_begun]
            begun[log.writer if sealed_at is None else log.path] = log
            logs_begun += 1
        if table is not None and _end(table) > position:
            found: tuple[SegmentFile, ...] = (table,)
            stop = _least(_end(table), limit)
        else:
            found = tuple(sorted(begun.values(), key=lambda f: f.base_offset, reverse=True))
            following = [
                f.base_offset for f in (*tables[tables_begun : tables_begun + 1], *logs[logs_begun : logs_begun + 1])
            ]
            if found and last and following == [last[0].base_offset]:
                found += tuple(last)
                following = []
            stop = _least(*following, limit)
            if not found:
                if position >= stored:
                    break
                gap = range(position, min(o for o in (*following, stored, limit) if o is not None))
                _lose(topic, segment, gap, missing)
                position = gap.stop
                continue
        pieces.append(
            SnapshotPiece(
                segment=segment,
                start_offset=position,
                end_offset=stop,
                files=found,
                complete=stop is not None and stop <= stored,
            )
        )
        if stop is None:
            break
        position = stop
    return tuple(pieces)


def _lose(topic: Topic, segment: int, gap: range, missing: list[range] | None) -> None:
    if missing is None:
        raise missing_records(topic, segment, gap.start, gap.stop)
    missing.append(gap)


def _end(table: SegmentFile | None) -> int:
    return -1 if table is None or table.end_offset is None else table.end_offset


def _least(*offsets: int | None) -> int | None:
    return min((o for o in offsets if o is not None), default=None)
