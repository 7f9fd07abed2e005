"""Where a time begins in a segment. Timestamps are the publishers' and need not rise: bisection would miss some.

Tables are pruned by the statistics of their row groups, log files by the headers of their frames.
"""

import asyncio
from contextlib import aclosing, closing

import numpy as np
import pyarrow as pa

from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.payload.batch import decode_frame, full_batch, schema_from_bytes
from seaweedmq.core.files.cover import cover
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput, SegmentStore
from seaweedmq.storage.read.reader import read_segment

CHUNK_BYTES = 1024 * 1024


async def find_offset_by_time(
    store: SegmentStore, topic: Topic, segment: int, timestamp_us: int, end_offset: int
) -> int:
    """Offset of the first kept record at or after a time, microseconds since 1970 UTC; ``end_offset`` if there is none.

    Raises:
        Corrupt, StorageFailed: as ``reader.read_segment``.
    """
    files = await store.list_files(topic.name, segment)
    position = min((f.base_offset for f in files), default=end_offset)
    for piece in cover(files, position, end_offset):
        found = None
        searched = False
        if piece.table is not None:
            try:
                source = await store.open_input(piece.table)
                found = await asyncio.to_thread(
                    _search_table, source, piece.table, topic, timestamp_us, piece.start, piece.end
                )
                searched = True
            except (NotFound, Corrupt):
                searched = False  # the reader knows how to go on without a file, or names what is lost
        if not searched:
            found = await _search_frames(store, topic, segment, timestamp_us, piece.start, piece.end)
        if found is not None:
            return found
    return end_offset


def _search_table(
    source: BlockingInput, file: SegmentFile, topic: Topic, timestamp_us: int, start: int, end: int
) -> int | None:
    # Imported here: a broker that reads no tables does without some 10 MB.
    from seaweedmq.storage.tables.opener import open_table, table_error

    with closing(source), open_table(source, file, topic) as table:
        column = table.schema_arrow.get_field_index("_timestamp")
        following = file.base_offset
        for i in range(table.metadata.num_row_groups):
            group = table.metadata.row_group(i)
            base, following = following, following + group.num_rows
            statistics = group.column(column).statistics
            latest = None if statistics is None or not statistics.has_min_max else statistics.max_raw
            if following <= start or base >= end or (latest is not None and latest < timestamp_us):
                continue
            try:
                values = table.read_row_group(i, columns=["_timestamp"], use_threads=False).column(0).combine_chunks()
            except (pa.ArrowException, OSError) as e:
                raise table_error(file, e) from e
            found = _first_from(values, timestamp_us, max(0, start - base))
            if found is not None and base + found < end:
                return base + found
    return None


async def _search_frames(
    store: SegmentStore, topic: Topic, segment: int, timestamp_us: int, start: int, end: int
) -> int | None:
    schema = None if topic.schema is None else schema_from_bytes(topic.schema)
    async with aclosing(read_segment(store, topic, segment, start, end, chunk_bytes=CHUNK_BYTES)) as chunks:
        async for chunk in chunks:
            for frame in split_frames(chunk.data, verify=False):  # the reader did
                header = frame.header
                if header.timestamp_max < timestamp_us:
                    continue
                typed = schema if header.schema_version else None
                batch = full_batch(decode_frame(frame, typed), header, typed)
                found = _first_from(batch.column("_timestamp"), timestamp_us, max(0, start - header.base_offset))
                if found is not None and header.base_offset + found < end:
                    return header.base_offset + found
    return None


def _first_from(timestamps: pa.Array, timestamp_us: int, first: int) -> int | None:
    """Index of the first value at or after the time, from ``first`` on."""
    # Not with Arrow's own functions: they import pandas where it is installed, see ``codec.arrays``.
    begin = (timestamps.offset + first) * np.dtype(np.int64).itemsize
    values = np.frombuffer(timestamps.buffers()[1], np.int64, len(timestamps) - first, begin)
    reached = values >= timestamp_us
    return first + int(reached.argmax()) if reached.any() else None
