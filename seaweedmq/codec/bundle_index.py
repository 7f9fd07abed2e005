"""Format of the index of a bundle: arrays of fixed-width rows, each array complete before the next begins.

The order is sections, runs, frames, tails, producers, recent frames. A row that has rows in a later array states their
number, and takes the next ones of it.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, TypeVar

from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.bundle import BundledFrame, BundleRun, BundleSection, SegmentTail
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState

_SECTION = struct.Struct("<QII")
"""Number of the bundle, runs, 0."""
_RUN = struct.Struct("<QIIQQQQ")
"""Topic uid, segment, frames, base offset, end offset, position, length."""
_FRAME = struct.Struct("<QIQI")
"""Producer, epoch, first sequence, records."""
_TAIL = struct.Struct("<QIIQ")
"""Topic uid, segment, producers, end offset."""
_PRODUCER = struct.Struct("<QIIQ")
"""Producer, epoch, recent frames, next sequence."""
_RECENT = struct.Struct("<QQII")
"""First sequence, base offset, records, 0."""

assert (_SECTION.size, _RUN.size, _FRAME.size, _TAIL.size, _PRODUCER.size, _RECENT.size) == (16, 48, 24, 24, 24, 24)

T = TypeVar("T")


class IndexCounts(NamedTuple):
    """Numbers of the rows that no other row counts; the header has them."""

    sections: int
    tails: int


def index_length(sections: Sequence[BundleSection], tails: Sequence[SegmentTail]) -> int:
    """Return the bytes of an index."""
    runs = [run for section in sections for run in section.runs]
    producers = [state for tail in tails for state in tail.producers]
    return (
        _SECTION.size * len(sections)
        + _RUN.size * len(runs)
        + _FRAME.size * sum(len(run.frames) for run in runs)
        + _TAIL.size * len(tails)
        + _PRODUCER.size * len(producers)
        + _RECENT.size * sum(len(state.recent) for state in producers)
    )


def index_to_bytes(sections: Sequence[BundleSection], tails: Sequence[SegmentTail]) -> tuple[bytes, IndexCounts]:
    """Return the bytes of an index and its counts; raises InvalidArgument if a number does not fit its width."""
    runs = [run for section in sections for run in section.runs]
    producers = [state for tail in tails for state in tail.producers]
    try:
        rows = (
            *(_SECTION.pack(section.number, len(section.runs), 0) for section in sections),
            *(
                _RUN.pack(r.topic_uid, r.segment, len(r.frames), r.base_offset, r.end_offset, r.position, r.length)
                for r in runs
            ),
            *(_FRAME.pack(*frame) for run in runs for frame in run.frames),
            *(_TAIL.pack(t.topic_uid, t.segment, len(t.producers), t.end_offset) for t in tails),
            *(_PRODUCER.pack(p.producer_id, p.producer_epoch, len(p.recent), p.next_sequence) for p in producers),
            *(_RECENT.pack(a.first_sequence, a.base_offset, a.record_count, 0) for p in producers for a in p.recent),
        )
    except struct.error as error:
        raise InvalidArgument(f"index of a bundle: a field does not fit its width ({error})") from error
    return b"".join(rows), IndexCounts(len(sections), len(tails))


def index_from_bytes(
    content: bytes, counts: IndexCounts, where: str
) -> tuple[tuple[BundleSection, ...], tuple[SegmentTail, ...]]:
    """Read an index whose checksum is right.

    Raises Corrupt, with the place ``where`` it begins, if its rows do not fill it exactly, are not those of a bundle,
    or do not count the records of their runs.
    """
    reader = _Rows(content, where)
    section_rows = reader.take(_SECTION, counts.sections)
    run_rows = reader.take(_RUN, sum(row[1] for row in section_rows))
    frame_rows = iter(reader.take(_FRAME, sum(row[2] for row in run_rows)))
    tail_rows = reader.take(_TAIL, counts.tails)
    producer_rows = reader.take(_PRODUCER, sum(row[2] for row in tail_rows))
    recent_rows = iter(reader.take(_RECENT, sum(row[2] for row in producer_rows)))
    reader.finish()
    runs = iter([_run(row, frame_rows, where) for row in run_rows])
    states = iter([_state(row, recent_rows) for row in producer_rows])
    sections = tuple(BundleSection(number=number, runs=_next(runs, count)) for number, count, _ in section_rows)
    if any(a.number >= b.number for a, b in pairwise(sections[1:])):
        raise Corrupt(f"{where}: the sections are not in ascending order; another program wrote it")
    tails = tuple(
        SegmentTail(topic_uid=uid, segment=segment, end_offset=end, producers=_next(states, count))
        for uid, segment, count, end in tail_rows
    )
    return sections, tails


def _run(row: tuple[int, ...], frame_rows: Iterator[tuple[int, ...]], where: str) -> BundleRun:
    uid, segment, count, base, end, position, length = row
    frames = tuple(map(BundledFrame._make, islice(frame_rows, count)))
    records = sum(frame.record_count for frame in frames)
    if not base < end or (frames and records != end - base):
        raise Corrupt(
            f"{where}: run of topic {uid}, segment {segment} has offsets [{base}, {end}) and frames of {records} "
            "records; another program wrote it"
        )
    return BundleRun(
        topic_uid=uid,
        segment=segment,
        base_offset=base,
        end_offset=end,
        length=length,
        position=position,
        frames=frames,
    )


def _state(row: tuple[int, ...], recent_rows: Iterator[tuple[int, ...]]) -> ProducerState:
    producer_id, epoch, count, next_sequence = row
    recent = tuple(FrameAck(first, records, base) for first, base, records, _ in islice(recent_rows, count))
    return ProducerState(producer_id=producer_id, producer_epoch=epoch, next_sequence=next_sequence, recent=recent)


def _next(items: Iterator[T], count: int) -> tuple[T, ...]:
    return tuple(islice(items, count))


class _Rows:
    """Arrays of rows, one after the other, to their end."""

    def __init__(self, content: bytes, where: str) -> None:
        self._content = content
        self._where = where
        self._at = 0

    def take(self, row: struct.Struct, count: int) -> list[tuple[int, ...]]:
        """Return the next ``count`` rows."""
        end = self._at + row.size * count
        if end > len(self._content):
            raise Corrupt(
                f"{self._where}: {count} rows end {end - len(self._content)} bytes beyond the index; "
                "another program wrote it"
            )
        rows = list(row.iter_unpack(self._content[self._at : end]))
        self._at = end
        return rows

    def finish(self) -> None:
        """Raise Corrupt if bytes are left."""
        if self._at != len(self._content):
            raise Corrupt(
                f"{self._where}: {len(self._content) - self._at} bytes are left behind the last row; "
                "another program wrote it"
            )
