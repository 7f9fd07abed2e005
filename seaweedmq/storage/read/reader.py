"""Catch-up reads: the committed records of a segment as frames, from log files and Parquet tables.

A log is preferred to a table of the same records, since its bytes are sent without conversion.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from seaweedmq.codec.frame import Frame
from seaweedmq.codec.payload.batch import clip_frame, schema_from_bytes
from seaweedmq.core.files.cover import file_at
from seaweedmq.core.files.holes import missing_records
from seaweedmq.errors import Corrupt, DataLoss, NotFound, OutOfRange
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic
from seaweedmq.ports import StoredFiles
from seaweedmq.storage.logs.log_index import LogIndex
from seaweedmq.storage.logs.log_scan import CHUNKS_AT_ONCE, READ_BYTES, Chunk, LogScanner

logger = logging.getLogger(__name__)

FRUITLESS_LISTINGS_MAX = 6
"""Consecutive listings without progress after which the missing offset is an error."""
RELIST_DELAY_S = 0.02
"""Base of the delay between listings, doubled each time: a network file system may list files with a delay."""


class _Unusable(Exception):
    """An error of a damaged file; another file may hold the same records."""

    def __init__(self, file: SegmentFile, error: Corrupt) -> None:
        super().__init__(str(error))
        self.file = file
        self.error = error


@dataclass(frozen=True, slots=True)
class _Reading:
    """The common parameters of the reads of a segment's files."""

    store: StoredFiles
    topic: Topic
    chunk_bytes: int
    index: LogIndex


async def read_segment(
    store: StoredFiles,
    topic: Topic,
    segment: int,
    start_offset: int,
    end_offset: int,
    *,
    chunk_bytes: int,
    index: LogIndex | None = None,
) -> AsyncGenerator[Chunk, None]:
    """Yield verified frames that cover ``[start_offset, end_offset)``, in order, without gap or repeat.

    Frames are whole, so the first may begin below ``start_offset`` and the last end above ``end_offset``. Each file is
    read once. Files may be converted or deleted meanwhile. All offsets must be written before the call. A caller that
    may stop early closes the generator (``contextlib.aclosing``). A chunk of about ``chunk_bytes`` may be a view of a
    read of a few MiB. The call extends the ``index`` of scanned logs.

    Raises:
        OutOfRange: If retention removed ``start_offset``, or records before a slow reader reached them.
        Corrupt: If a file is damaged and no other holds the records; the message names the file and position.
        DataLoss: If no file holds the next record, and retention did not remove it.
    """
    reading = _Reading(store, topic, chunk_bytes, LogIndex() if index is None else index)
    position, fruitless = start_offset, 0
    damaged: dict[str, Corrupt] = {}
    while position < end_offset:
        before, vanished = position, False
        covering = position if not fruitless and not damaged else None
        files = await store.list_files(topic.name, segment, uid=topic.uid, covering=covering)
        passed = set(damaged)
        try:
            while position < end_offset and (file := file_at(files, position, passed)) is not None:
                passed.add(file.path)
                exact = position > start_offset  # only the first yielded frame may begin below
                async with aclosing(_read_file(reading, file, position, end_offset, exact)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                        position = chunk.end_offset
        except NotFound:
            vanished = True
        except _Unusable as e:
            logger.error("file damaged: %s; trying another copy", e.error)
            damaged[e.file.path] = e.error
            continue
        if position > before:
            fruitless = 0
            continue
        fruitless += 1
        if damaged and not vanished:
            raise next(iter(damaged.values()))
        if fruitless == FRUITLESS_LISTINGS_MAX:
            await store.check()  # an unmounted storage also lists no files: another error
            raise await _missing(reading, segment, position, end_offset, files)
        await asyncio.sleep(RELIST_DELAY_S * 2**fruitless)


async def _missing(
    reading: _Reading, segment: int, position: int, end: int, files: Sequence[SegmentFile]
) -> OutOfRange | DataLoss:
    """Return the error for a position that no file holds."""
    store, topic = reading.store, reading.topic
    removed = (await store.removed(topic.name, topic.uid)).get(segment, 0)
    lowest = min((f.base_offset for f in files), default=None)
    needed = max(removed, lowest) if topic.expires and lowest is not None else removed
    if position < needed:
        kept = "nothing of it is kept" if lowest is None else f"the lowest retained is {max(lowest, needed)}"
        return OutOfRange(
            f"{topic.name}#{segment}: offset {position} was removed by retention, {kept}: start from the earliest"
        )
    cut = file_at(files, position, ())
    return missing_records(topic, segment, position, await _gap_end(reading, position, end, files), cut)


async def _gap_end(reading: _Reading, position: int, end: int, files: Sequence[SegmentFile]) -> int:
    """Return the lowest offset above a position that a file holds, at most ``end``."""
    for file in files:  # ordered by base offset
        if not position < file.base_offset < end:
            continue
        if file.kind is FileKind.TABLE or await _has_frames(reading, file):
            return file.base_offset
    return end


async def _has_frames(reading: _Reading, log: SegmentFile) -> bool:
    """Whether a log file of this topic has a frame, or is damaged, which the next read reports."""
    scanner = LogScanner(reading.topic, log)
    try:
        reader = await reading.store.open(log)
    except NotFound:
        return False
    try:
        while (wanted := scanner.wants()) is not None:
            if (await asyncio.to_thread(scanner.feed, await reader.read(*wanted))).frames:
                return True
    except NotFound:
        return False
    except Corrupt:
        return True
    finally:
        await reader.close()
    return False


def _read_file(reading: _Reading, file: SegmentFile, start: int, end: int, exact: bool) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a file in ``[start, end)``; if ``exact``, the first frame does not begin below ``start``."""
    if file.kind is FileKind.LOG:
        return _read_log(reading, file, start, end, exact)
    return _read_table(reading, file, start, min(end, file.end_offset or 0))


async def _read_table(reading: _Reading, file: SegmentFile, start: int, end: int) -> AsyncGenerator[Chunk, None]:
    # Lazy import: a broker that reads no tables saves some 10 MB.
    from seaweedmq.storage.tables.reader import TableReader

    chunk_bytes = reading.chunk_bytes
    source = await reading.store.open_input(file)
    table = TableReader(source, file, reading.topic, start, end, chunk_bytes=chunk_bytes)
    try:
        async with aclosing(_ahead(lambda: asyncio.to_thread(table.next), chunk_bytes)) as runs:
            async for run in runs:
                while run:
                    yield run.pop(0)
    except Corrupt as e:
        raise _Unusable(file, e) from e
    finally:
        await asyncio.to_thread(table.close)


async def _read_log(
    reading: _Reading, file: SegmentFile, start: int, end: int, exact: bool
) -> AsyncGenerator[Chunk, None]:
    """Yield frames from ``start``; ``exact`` clips the first one if it begins below."""
    topic, chunk_bytes, index = reading.topic, reading.chunk_bytes, reading.index
    begin = index.begin(topic.uid, file.path, start)
    scanner = LogScanner(topic, file, skip_below=start, read_bytes=min(READ_BYTES, 4 * chunk_bytes), begin=begin)
    reader = await reading.store.open(file)

    async def read_on() -> list[Chunk] | None:
        wanted = scanner.wants()
        if wanted is None:
            return None
        data = await reader.read(*wanted)
        chunks, first = await asyncio.to_thread(_cut, scanner, data, end, chunk_bytes)
        if scanner.mark is not None:
            index.note(topic.uid, file.path, scanner.mark)
        if exact and first is not None and first.header.base_offset < start:
            schema = None if topic.schema is None else schema_from_bytes(topic.schema)
            clipped = clip_frame(first, start, schema)
            rest = memoryview(chunks[0].data)[first.header.frame_bytes :]
            chunks[0] = Chunk(chunks[0].end_offset, b"".join((clipped, rest)))
        return chunks

    try:
        async with aclosing(_ahead(read_on, chunk_bytes)) as runs:
            async for run in runs:
                while run:
                    yield run.pop(0)
    except Corrupt as e:
        raise _Unusable(file, e) from e
    finally:
        await reader.close()


def _cut(scanner: LogScanner, data: Frames, end: int, chunk_bytes: int) -> tuple[list[Chunk], Frame | None]:
    """Return chunks, views of the read bytes, of the verified frames that begin below ``end``, and the first frame."""
    run = scanner.feed(data)
    chunks: list[Chunk] = []
    first = 0
    frames = [f for f in run.frames if f.frame.header.base_offset < end]
    for i, frame in enumerate(frames):
        if frame.end - frames[first].start >= chunk_bytes or i == len(frames) - 1:
            chunks.append(Chunk(frame.frame.header.end_offset, run.data[frames[first].start : frame.end]))
            first = i + 1
    if scanner.next_offset >= end:
        scanner.stop()
    return chunks, frames[0].frame if frames else None


async def _ahead(
    produce: Callable[[], Awaitable[list[Chunk] | None]], chunk_bytes: int
) -> AsyncGenerator[list[Chunk], None]:
    """Yield the items of ``produce`` until None; the next one is made while a small one is used."""
    making = asyncio.ensure_future(produce())
    try:
        while (item := await making) is not None:
            is_large = sum(len(chunk.data) for chunk in item) > 2 * CHUNKS_AT_ONCE * chunk_bytes
            if not is_large:
                making = asyncio.ensure_future(produce())
            yield item
            if is_large:
                del item  # freed before the next one is made
                making = asyncio.ensure_future(produce())
    finally:
        making.cancel()
        await asyncio.wait((making,))
        if not making.cancelled():
            making.exception()  # retrieved only: the reader has stopped
