"""Recovery of a segment from its files: its end offset, its producer state, and its earliest offset."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from seaweedmq.codec.frame import FrameHeader
from seaweedmq.codec.logfile import LogPreamble
from seaweedmq.core.files.holes import first_needed
from seaweedmq.core.files.retention import broker_of
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.errors import Corrupt, NotFound, StorageFailed
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import StoredFiles
from seaweedmq.storage.logs.log_scan import LogFrame, LogScanner, check_joins

_PREAMBLE_READ_BYTES = 64 * 1024
LISTINGS_MAX = 6
"""Limit of consecutive listings whose files were deleted before they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The end of a segment and its producer state, by its files."""

    end_offset: int
    producers: tuple[ProducerState, ...]
    """Producer states, the longest idle first."""
    producers_complete: bool = True
    """Whether log files reach the end, so that a missing producer has stored nothing that it may still repeat."""
    begins_at: int = field(default=0, compare=False)
    """Offset of the first frame that was read; the end if there is no log file.

    Producer state below it comes only from a preamble, which omits idle producers.
    """


async def recover_segment(store: StoredFiles, topic: Topic, segment: Segment) -> Recovered:
    """Recover a segment's end and producer state from its newest log files.

    The oldest log read is one below which nothing can be missing: its preamble has the producer state before it, and
    verified frames give the rest. The end is the first offset that no file continues. Frames after a gap are ignored:
    the missing ones would have been flushed before them. Torn tails were never flushed and are ignored. Frames that
    several files hold count once. Raises Corrupt if a file has damage other than a torn tail, files contradict each
    other, or records are missing that were certainly flushed, and names file and position.
    """
    files = await store.list_files(topic.name, segment.id, uid=topic.uid)
    # A frozen broker may have written after its segment was sealed: those frames are not part of it.
    limit = math.inf if segment.end_offset is None else segment.end_offset
    logs = [f for f in files if f.kind is FileKind.LOG and f.base_offset <= limit]
    tables_end = max((f.end_offset or 0 for f in files if f.kind is FileKind.TABLE), default=0)
    known = _Durable(tables_end, "a table")
    known.learn(segment.start_offset, "its metadata")
    known.learn(segment.end_offset or 0, "its metadata")
    newest, start = await _newest_logs(store, topic, logs, known)
    end = max(start, segment.start_offset)
    producers = ProducerTable(states=next((p.producers for log, p in newest if log.base_offset == start), ()))
    damage: list[tuple[int, Corrupt]] = []
    torn = ""
    for log, _ in newest:
        if log.base_offset > end:
            break  # the records in between are lost
        scanner = LogScanner(topic, log, skip_below=end)
        try:
            async for frames in _frames(store, log, scanner):
                for found in frames:
                    if found.frame.header.end_offset > limit:
                        break
                    check_joins(log, found, end)
                    _record(producers, found.frame.header)
                    end = found.frame.header.end_offset
                if end == limit:
                    scanner.stop()
        except Corrupt as e:
            if scanner.next_offset >= start:
                damage.append((end, e))
        torn = scanner.torn or torn
    for offset, error in damage:
        if offset >= end:
            raise error  # no other file reaches further
    is_complete = end >= (tables_end if segment.end_offset is None else segment.end_offset)
    if newest and end < known.offset:
        last = max((log for log, _ in newest if log.base_offset <= end), key=lambda f: f.base_offset)
        raise Corrupt(
            f"{topic.name}#{segment.id}: {known.source} shows that records up to {known.offset} were flushed, but the "
            f"log files end at offset {end}, {last.path} was damaged or cut{f' ({torn})' if torn else ''}: restore "
            "it from a copy"
        )
    return Recovered(
        end_offset=max(end, tables_end),
        producers=producers.snapshot(),
        producers_complete=is_complete,
        begins_at=max(start, segment.start_offset) if newest else max(end, tables_end),
    )


async def earliest_offset(store: StoredFiles, topic: Topic, segment: Segment) -> int:
    """Return the offset from which the segment's records must exist; retention and low watermarks removed those below.

    It is the end offset if the segment is sealed and all its records were removed. Records missing above it are lost.
    Raises StorageFailed if the storage fails, or listed files are deleted again and again before they are read.
    """
    low = max(topic.low_watermark(segment.slots), segment.start_offset)
    if segment.end_offset is not None and low >= segment.end_offset:
        return segment.end_offset
    removed = (await store.removed(topic.name, topic.uid)).get(segment.id, 0)
    if not topic.expires:
        return first_needed(topic, segment, (), removed)
    for _ in range(LISTINGS_MAX):
        files = await store.list_files(topic.name, segment.id, uid=topic.uid)
        try:
            return first_needed(topic, segment, await _first_sound(store, topic, files), removed)
        except NotFound:
            continue  # deleted after the listing: a table has its records, or retention removed them
    raise StorageFailed(
        f"{topic.name}#{segment.id}: files were deleted right after {LISTINGS_MAX} consecutive listings: "
        "stop the other process that deletes files"
    )


async def _first_sound(store: StoredFiles, topic: Topic, files: Sequence[SegmentFile]) -> Sequence[SegmentFile]:
    """Return the first file that may hold records, if any; torn logs and those of an earlier topic hold none."""
    for file in files:
        if file.kind is FileKind.TABLE:
            return (file,)
        try:
            if await _preamble_of(store, topic, file) is not None:
                return (file,)
        except Corrupt:
            return (file,)  # its reader reports the damage
    return ()


@dataclass(slots=True)
class _Durable:
    """An offset below which everything was certainly flushed."""

    offset: int
    source: str
    """Source of the offset, for the error message."""

    def learn(self, offset: int, source: str) -> None:
        """Raise the offset if another source shows a higher one."""
        if offset > self.offset:
            self.offset, self.source = offset, source


async def _newest_logs(
    store: StoredFiles, topic: Topic, logs: Sequence[SegmentFile], known: _Durable
) -> tuple[list[tuple[SegmentFile, LogPreamble]], int]:
    """Return the log files to read with their preambles, ordered by base offset, and the base offset to begin with.

    Everything below that base was flushed, so its preamble is complete. ``known`` learns from every preamble read. The
    oldest log is always trusted. A file that begins before everything below it is flushed has a predecessor that
    survives power loss (``broker.segment.segment_files``); if that file is deleted, tables hold all its records.

    Files that begin earlier may reach further, since a broker writes unflushed records again from the last flushed
    offset. So the files of each broker at its next lower base are also read.
    """
    newest: list[tuple[SegmentFile, LogPreamble]] = []
    start: int | None = None
    reached_below: dict[str, int] = {}
    for log in sorted(logs, key=lambda f: f.base_offset, reverse=True):
        broker = broker_of(log.writer)
        below = start is not None and log.base_offset < start
        if below and reached_below.get(broker, log.base_offset) != log.base_offset:
            continue
        preamble = await _preamble_of(store, topic, log)
        if preamble is None:
            continue
        newest.append((log, preamble))
        known.learn(preamble.flushed or 0, log.path)
        if below:
            reached_below[broker] = log.base_offset
        elif log.base_offset <= known.offset:
            start = log.base_offset
    if start is None:
        start = min((log.base_offset for log, _ in newest), default=0)
        known.learn(start, "the oldest log file")
    return sorted(newest, key=lambda entry: (entry[0].base_offset, entry[0].writer)), start


async def _preamble_of(store: StoredFiles, topic: Topic, log: SegmentFile) -> LogPreamble | None:
    """Return the preamble of a log; None if it is torn, or the file is of an earlier topic of the same name."""
    scanner = LogScanner(topic, log, read_bytes=_PREAMBLE_READ_BYTES)
    reader = await store.open(log)
    try:
        while scanner.preamble is None and (wanted := scanner.wants()) is not None:
            scanner.feed(await reader.read(*wanted))
    finally:
        await reader.close()
    return None if scanner.foreign else scanner.preamble


async def _frames(
    store: StoredFiles, log: SegmentFile, scanner: LogScanner
) -> AsyncGenerator[Sequence[LogFrame], None]:
    """Yield the verified frames of one read at a time."""
    reader = await store.open(log)
    try:
        while (wanted := scanner.wants()) is not None:
            run = await asyncio.to_thread(scanner.feed, await reader.read(*wanted))
            yield run.frames
    finally:
        await reader.close()


def _record(producers: ProducerTable, header: FrameHeader) -> None:
    ack = FrameAck(header.first_sequence, header.record_count, header.base_offset)
    producers.floor = header.base_offset  # frames read are stored, and only frames in flight are repeated
    producers.follow(header.producer_id, header.producer_epoch, ack)
