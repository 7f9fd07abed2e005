"""Catch-up: the committed records of a segment as frames, from log files and Parquet tables joined without a seam.

A log is read while it is there, even beside a table of the same records: its bytes are the ones that are sent.
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
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.logs.chunk import CHUNKS_AT_ONCE, Chunk
from seaweedmq.storage.logs.log_index import LogIndex
from seaweedmq.storage.logs.log_scan import READ_BYTES, LogScanner

logger = logging.getLogger(__name__)

FRUITLESS_LISTINGS_MAX = 6
"""Listings in a row that brought no record further before the missing offset is an error ..."""
RELIST_DELAY_S = 0.02
"""... with twice this delay each time: a network file system may show deleted files, and not new ones, for a while."""


class _Unusable(Exception):
    """A file is damaged; another may hold the same records."""

    def __init__(self, file: SegmentFile, error: Corrupt) -> None:
        super().__init__(str(error))
        self.file = file
        self.error = error


@dataclass(frozen=True, slots=True)
class _Reading:
    """What every file of a segment is read with."""

    store: SegmentStore
    topic: Topic
    chunk_bytes: int
    index: LogIndex


async def read_segment(
    store: SegmentStore,
    topic: Topic,
    segment: int,
    start_offset: int,
    end_offset: int,
    *,
    chunk_bytes: int,
    index: LogIndex | None = None,
) -> AsyncGenerator[Chunk, None]:
    """Verified frames that cover ``[start_offset, end_offset)``, in order, without gap or repeat, each file read once.

    The first frame may begin below ``start_offset`` and the last may end above ``end_offset``: frames are whole. Each
    chunk has about ``chunk_bytes``; it may be a view of the few MiB that were read at once. Files may be converted or
    deleted meanwhile. Everything asked for must have been written when the call is made. Whoever may stop early closes
    the generator (``contextlib.aclosing``).

    Args:
        index: of logs that were scanned before; learns from this reading. None: nothing is remembered.

    Raises:
        OutOfRange: retention removed ``start_offset``, or what a slow reader had yet to read.
        Corrupt: damage that no other file makes good; names the file and position.
        DataLoss: no file holds what comes next, and retention did not remove it.
        StorageFailed: the storage refused.
    """
    reading = _Reading(store, topic, chunk_bytes, LogIndex() if index is None else index)
    position, fruitless = start_offset, 0
    damaged: dict[str, Corrupt] = {}
    while position < end_offset:
        before, vanished = position, False
        files = await store.list_files(topic.name, segment)
        passed = set(damaged)
        try:
            while position < end_offset and (file := file_at(files, position, passed)) is not None:
                passed.add(file.path)
                exact = position > start_offset  # only the first frame given may begin below
                async with aclosing(_read_file(reading, file, position, end_offset, exact)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                        position = chunk.end_offset
        except NotFound:
            vanished = True
        except _Unusable as e:
            logger.error("%s; looking for another copy", e.error)
            damaged[e.file.path] = e.error
            continue
        if position > before:
            fruitless = 0
            continue
        fruitless += 1
        if damaged and not vanished:
            raise next(iter(damaged.values()))
        if fruitless == FRUITLESS_LISTINGS_MAX:
            await store.check()  # a storage that is gone shows no files either, and is another error
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
        kept = "nothing of it is kept" if lowest is None else f"the lowest that is kept is {max(lowest, needed)}"
        return OutOfRange(
            f"{topic.name}#{segment}: offset {position} was removed by retention, {kept}: start from the earliest"
        )
    cut = file_at(files, position, ())
    return missing_records(topic, segment, position, await _gap_end(reading, position, end, files), cut)


async def _gap_end(reading: _Reading, position: int, end: int, files: Sequence[SegmentFile]) -> int:
    """Return the lowest offset above a position that a file holds, ``end`` at the most."""
    for file in files:  # by base offset
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
    """What a file holds of ``[start, end)``, from ``start`` on; ``exact``: the first frame may not begin below."""
    if file.kind is FileKind.LOG:
        return _read_log(reading, file, start, end, exact)
    return _read_table(reading, file, start, min(end, file.end_offset or 0))


async def _read_table(reading: _Reading, file: SegmentFile, start: int, end: int) -> AsyncGenerator[Chunk, None]:
    # Imported here: a broker that reads no tables does without some 10 MB.
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
    """Frames from ``start`` on; ``exact`` cuts the first one off there if it begins below."""
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
    """The verified frames of one read that begin below ``end``, in chunks, as views of what was read; and the first."""
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
    """What ``produce`` gives until None, making one item while the one before it is used, unless that one is large."""
    making = asyncio.ensure_future(produce())
    try:
        while (item := await making) is not None:
            is_large = sum(len(chunk.data) for chunk in item) > 2 * CHUNKS_AT_ONCE * chunk_bytes
            if not is_large:
                making = asyncio.ensure_future(produce())
            yield item
            if is_large:
                del item  # before the next one is made
                making = asyncio.ensure_future(produce())
    finally:
        making.cancel()
        await asyncio.wait((making,))
        if not making.cancelled():
            making.exception()  # nobody wants the item any more, nor its error
