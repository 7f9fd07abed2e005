"""Search of a segment by time: its first record at or after a time, and its latest record.

Publishers set timestamps, which need not rise, so bisection would miss records. The search skips row groups of tables
by their statistics, and frames of log files by their headers.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.codec.payload.batch import decode_frame, full_batch, schema_from_bytes
from seaweedmq.core.files.cover import CoverPiece, cover
from seaweedmq.errors import Corrupt, DataLoss, NotFound
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput, StoredFiles
from seaweedmq.storage.read.reader import read_segment

CHUNK_BYTES = 1024 * 1024

Times: TypeAlias = npt.NDArray[np.int64]


class RecordAt(NamedTuple):
    """The offset and timestamp of a record."""

    offset: int
    timestamp_us: int


async def find_offset_by_time(
    store: StoredFiles,
    topic: Topic,
    segment: int,
    timestamp_us: int,
    end_offset: int,
    *,
    start_offset: int = 0,
    skip_missing: bool = False,
) -> RecordAt | None:
    """Return the first stored record of ``[start_offset, end_offset)`` at or after a time; None if there is none.

    The result may be among lost records. Then the first lost offset is returned with the time, so that its reader
    reports the gap; with ``skip_missing`` the search continues after it. Raises Corrupt if a file is damaged and no
    other holds the records.
    """
    search = _Search(store, topic, segment)
    position = start_offset
    while position < end_offset:
        try:
            for piece in await search.pieces(position, end_offset):
                found = await search.first_from(timestamp_us, piece)
                if found is not None:
                    return found
            return None
        except DataLoss as loss:
            if loss.start_offset is None or loss.end_offset is None:
                raise
            if not skip_missing:
                return RecordAt(loss.start_offset, timestamp_us)
            position = loss.end_offset
    return None


async def find_latest_time(
    store: StoredFiles, topic: Topic, segment: int, end_offset: int, *, start_offset: int = 0
) -> RecordAt | None:
    """Return the first stored record of ``[start_offset, end_offset)`` with the highest timestamp; None if none."""
    search = _Search(store, topic, segment)
    latest: RecordAt | None = None
    for piece in reversed(await search.pieces(start_offset, end_offset)):  # newest first, so that most are skipped
        found = await search.latest(piece, -math.inf if latest is None else latest.timestamp_us)
        if found is not None and (latest is None or found.timestamp_us >= latest.timestamp_us):
            latest = found
    return latest


class _Group(NamedTuple):
    """A row group of an open table, limited to the searched offsets."""

    base: int
    bound: float
    """Upper bound of its timestamps."""
    times: Callable[[], Times]
    """Function that returns the timestamps from ``base``."""


GroupSearch: TypeAlias = Callable[[Sequence[_Group]], RecordAt | None]


class _Search:
    """A search through the files of one segment."""

    def __init__(self, store: StoredFiles, topic: Topic, segment: int) -> None:
        self._store = store
        self._topic = topic
        self._segment = segment
        self._schema = None if topic.schema is None else schema_from_bytes(topic.schema)

    async def pieces(self, start: int, end: int) -> Sequence[CoverPiece]:
        """Return the stored offsets as pieces, by the files that hold them."""
        topic = self._topic
        removed = await self._store.removed(topic.name, topic.uid)
        files = await self._store.list_files(topic.name, self._segment, uid=topic.uid)
        lowest = min((f.base_offset for f in files), default=end) if topic.expires else 0
        return cover(files, max(start, lowest, removed.get(self._segment, 0)), end)

    async def first_from(self, timestamp_us: int, piece: CoverPiece) -> RecordAt | None:
        """Return the first record of a piece at or after a time."""
        searched, found = await self._in_table(piece, lambda groups: _first_of_groups(groups, timestamp_us))
        if searched:
            return found
        async with aclosing(self._frames(piece)) as frames:
            async for frame in frames:
                if frame.header.timestamp_max >= timestamp_us:
                    found = _first_from(*self._times(frame, piece), timestamp_us)
                    if found is not None:
                        return found
        return None

    async def latest(self, piece: CoverPiece, floor: float) -> RecordAt | None:
        """Return the first record of a piece with its highest timestamp, if that is at least ``floor``."""
        searched, found = await self._in_table(piece, lambda groups: _latest_of_groups(groups, floor))
        if searched:
            return found
        kept: Frame | None = None
        position = piece.start
        while position < piece.end:
            try:
                async with aclosing(self._frames(replace(piece, start=position))) as frames:
                    async for frame in frames:
                        bound = frame.header.timestamp_max
                        if frame.header.base_offset < piece.start or frame.header.end_offset > piece.end:
                            bound = _latest(*self._times(frame, piece)).timestamp_us
                        if bound > floor or (bound == floor and kept is None):
                            kept, floor = frame, bound
                break
            except DataLoss as loss:  # the result is the highest of the stored records
                if loss.end_offset is None:
                    raise
                position = loss.end_offset
        return None if kept is None else _latest(*self._times(kept, piece))

    async def _in_table(self, piece: CoverPiece, search_groups: GroupSearch) -> tuple[bool, RecordAt | None]:
        """Return whether the piece has a readable table, and the record found in it."""
        if piece.table is None:
            return False, None
        try:
            source = await self._store.open_input(piece.table)
            return True, await asyncio.to_thread(_search_table, source, piece.table, self._topic, piece, search_groups)
        except (NotFound, Corrupt):
            return False, None  # the reader continues without the file, or reports the loss

    async def _frames(self, piece: CoverPiece) -> AsyncGenerator[Frame, None]:
        reading = read_segment(self._store, self._topic, self._segment, piece.start, piece.end, chunk_bytes=CHUNK_BYTES)
        async with aclosing(reading) as chunks:
            async for chunk in chunks:
                for frame in split_frames(chunk.data, verify=False):  # verified by the reader
                    yield frame

    def _times(self, frame: Frame, piece: CoverPiece) -> tuple[int, Times]:
        """Return the timestamps of the records of a frame in a piece, after the offset of the first."""
        header = frame.header
        typed = self._schema if header.schema_version else None
        batch = full_batch(decode_frame(frame, typed), header, typed)
        base = max(header.base_offset, piece.start)
        times = _values(batch.column("_timestamp"))
        return base, times[base - header.base_offset : piece.end - header.base_offset]


def _search_table(
    source: BlockingInput, file: SegmentFile, topic: Topic, piece: CoverPiece, search_groups: GroupSearch
) -> RecordAt | None:
    # Lazy import: a broker that reads no tables saves some 10 MB.
    from seaweedmq.storage.tables.opener import open_table, table_error
    from seaweedmq.storage.tables.row_groups import row_groups

    with closing(source), open_table(source, file, topic) as table:

        def times(number: int, first: int, last: int) -> Times:
            try:
                read = table.read_row_group(number, columns=["_timestamp"], use_threads=False)
            except (pa.ArrowException, OSError) as e:
                raise table_error(file, e) from e
            return _values(read.column(0).combine_chunks())[first:last]

        groups: list[_Group] = []
        for group in row_groups(file, table):
            base = group.base_offset
            if group.end_offset > piece.start and base < piece.end:
                bound = math.inf if group.timestamps is None else group.timestamps[1]
                first = max(base, piece.start)
                groups.append(_Group(first, bound, partial(times, group.index, first - base, piece.end - base)))
        return search_groups(groups)


def _first_of_groups(groups: Sequence[_Group], timestamp_us: int) -> RecordAt | None:
    for group in groups:
        if group.bound >= timestamp_us:
            found = _first_from(group.base, group.times(), timestamp_us)
            if found is not None:
                return found
    return None


def _latest_of_groups(groups: Sequence[_Group], floor: float) -> RecordAt | None:
    latest: RecordAt | None = None
    for group in sorted(groups, key=lambda g: (-g.bound, g.base)):
        if group.bound < floor:
            break
        found = _latest(group.base, group.times())
        is_first = found.timestamp_us == floor and (latest is None or found.offset < latest.offset)
        if found.timestamp_us > floor or is_first:
            latest, floor = found, found.timestamp_us
    return latest


def _values(timestamps: pa.Array) -> Times:
    # Not by Arrow's functions, which import pandas if it is installed: see ``codec.arrays``.
    begin = timestamps.offset * np.dtype(np.int64).itemsize
    return np.frombuffer(timestamps.buffers()[1], np.int64, len(timestamps), begin)


def _first_from(base: int, times: Times, timestamp_us: int) -> RecordAt | None:
    """Return the first record at or after a time; ``base`` is the offset of ``times[0]``."""
    reached = times >= timestamp_us
    index = int(reached.argmax())
    return RecordAt(base + index, int(times[index])) if reached[index] else None


def _latest(base: int, times: Times) -> RecordAt:
    index = int(times.argmax())
    return RecordAt(base + index, int(times[index]))
