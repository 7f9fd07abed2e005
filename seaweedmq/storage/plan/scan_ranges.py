"""Planner of scan ranges: the offsets of a read, divided between files and brokers. Pure."""

import logging
from dataclasses import dataclass, replace
from typing import TypeAlias

from seaweedmq.core.files.holes import loss_text
from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import OutOfRange
from seaweedmq.model.segment import Segment
from seaweedmq.storage.plan.topic_source import BrokerOffsets
from seaweedmq.storage.plan.window import EARLIEST, ReadWindow
from seaweedmq.storage.snapshot import TopicSnapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRange:
    """Committed offsets ``[start_offset, end_offset)`` of a segment that were in no file at planning time."""

    segment: int
    start_offset: int
    end_offset: int
    from_earliest: bool = False
    """Whether the range begins at the earliest retained offset, ``start_offset`` or above."""
    size_bytes: int = 0
    """Always 0: the size is unknown, and small unless there are no files."""


ScanRange: TypeAlias = SnapshotPiece | BrokerRange


def plan_ranges(
    snapshot: TopicSnapshot, window: ReadWindow, known: BrokerOffsets | None = None, *, fail_on_data_loss: bool = True
) -> list[ScanRange]:
    """Return the scan ranges of a window, each record once, in order within a segment.

    What is in no file below the ends that brokers report (``known``) is a ``BrokerRange``. Lost records, and offsets
    requested by number that retention removed, are an error if ``fail_on_data_loss``; otherwise each gap is logged, and
    the plan continues behind it. Raises InvalidArgument if offsets are given for a segment that does not exist;
    OutOfRange if offsets requested by number were removed; DataLoss if records are lost.
    """
    for segment_id in (*window.starting.by_segment, *window.ending.by_segment):
        if fail_on_data_loss or segment_id not in snapshot.topic.pruned:
            snapshot.segment(segment_id)
    if window.ranges is not None and (gone := window.ranges.keys() - {s.id for s in snapshot.segments}):
        raise OutOfRange(
            f"segments {sorted(gone)} of topic {snapshot.topic.name} were removed after the read was planned"
        )
    pieces: list[ScanRange] = []
    for segment in snapshot.segments:
        for start, end in window.parts_of(segment):
            pieces += _pieces_of(snapshot, segment, start, end, window, known, fail_on_data_loss)
    return pieces


def _pieces_of(
    snapshot: TopicSnapshot,
    segment: Segment,
    start: int,
    end: int | None,
    window: ReadWindow,
    known: BrokerOffsets | None,
    fail_on_data_loss: bool,
) -> list[ScanRange]:
    committed = None if known is None else known.ends.get(segment.id)
    if known is not None and committed is None:
        return []  # opened after the call
    limit = min((e for e in (end, committed, segment.end_offset) if e is not None), default=None)
    if limit is not None and limit <= start:
        return []
    is_all = known is not None and known.is_all
    gaps: list[range] = []
    files = () if is_all else snapshot.plan(segment.id, start, limit, missing=None if fail_on_data_loss else gaps)
    for gap in gaps:
        log.warning(
            "%s; skipped, since failOnDataLoss is false", loss_text(snapshot.topic, segment.id, gap.start, gap.stop)
        )
    pieces: list[ScanRange] = [*files]
    position = max(start, segment.start_offset)
    if files and files[-1].end_offset is not None:
        position = files[-1].end_offset
    elif not files and known is not None:
        position = max(position, known.begins.get(segment.id, 0), snapshot.topic.low_watermark(segment.slots))
    position = max((position, *(gap.stop for gap in gaps)))
    is_in_memory = known is not None and (known.is_all or segment.is_open or bool(files))
    if is_in_memory and limit is not None and position < limit:  # a sealed segment is in files
        from_start = (
            window.starting.of(segment.id) == EARLIEST if window.ranges is None else start <= segment.start_offset
        )
        earliest = known is not None and known.is_all and from_start
        pieces.append(BrokerRange(segment=segment.id, start_offset=position, end_offset=limit, from_earliest=earliest))
    _refuse_loss(segment, start, limit, pieces, window, fail_on_data_loss)
    if window.ranges is not None:
        pieces = [replace(p, complete=True) if isinstance(p, SnapshotPiece) else p for p in pieces]
    return pieces


def _refuse_loss(
    segment: Segment,
    start: int,
    limit: int | None,
    pieces: list[ScanRange],
    window: ReadWindow,
    fail_on_data_loss: bool,
) -> None:
    """Raise if offsets requested by number do not begin where they should."""
    if not fail_on_data_loss:
        return
    if window.ranges is None:
        named = window.starting.of(segment.id)
        if named is None or named == EARLIEST:
            return
    due = max(start, segment.start_offset)
    if limit is not None and due >= limit:
        return
    if pieces:
        found: int | None = pieces[0].start_offset
    elif limit is not None and (segment.end_offset is not None or window.ranges is not None):
        found = None
    else:
        return  # an open segment that has not reached the start yet
    if found is not None and found <= due:
        return
    kept = "none are left" if found is None else f"the lowest left is {found}"
    remedy = (
        "read again"
        if window.ranges is not None
        else "begin there or at earliest, or set failOnDataLoss to false to begin at the lowest left"
    )
    raise OutOfRange(f"{segment}: offsets from {due} on were removed by retention, {kept}: {remedy}")
