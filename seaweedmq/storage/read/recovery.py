"""What the files alone tell of a segment: how far it goes, what its producers stored, and where a time begins."""

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
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.logs.log_scan import LogFrame, LogScanner, check_joins

_PREAMBLE_READ_BYTES = 64 * 1024
LISTINGS_MAX = 6
"""In a row, of which each showed a file that was gone when it was to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The end of a segment as its files have it."""

    end_offset: int
    producers: tuple[ProducerState, ...]
    """The longest idle first."""
    producers_complete: bool = True
    """Whether there are log files up to the end, so that a producer that is missing has stored nothing that it may
    still repeat."""
    begins_at: int = field(default=0, compare=False)
    """Offset of the first frame that was read; the end if there is no log file. What lies below is known from a
    preamble alone, which leaves out producers that were idle."""


async def recover_segment(store: SegmentStore, topic: Topic, segment: Segment) -> Recovered:
    """Read the newest log files, from one on below which nothing can be missing: its preamble holds all that came
    before, verified frames the rest.

    The end is where the frames of all files together no longer go on. What lies behind a gap does not count: had it
    been fsynced, what is missing would have been before it. Torn tails are what was never fsynced, and are ignored.
    Frames that several files hold count once.

    Raises:
        Corrupt: damage that is not a torn tail, files that contradict each other, or less than is known to have been
            fsynced; names file and position.
    """
    files = await store.list_files(topic.name, segment.id)
    # A broker that was frozen may have written on after its segment was sealed: that does not belong to it.
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
            break  # what is between was lost
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
            raise error  # no other file gets further
    is_complete = end >= (tables_end if segment.end_offset is None else segment.end_offset)
    if newest and end < known.offset:
        last = max((log for log, _ in newest if log.base_offset <= end), key=lambda f: f.base_offset)
        raise Corrupt(
            f"{topic.name}#{segment.id}: {known.witness} shows that records up to {known.offset} were stored, but the "
            f"log files end with offset {end}; {last.path} was damaged or cut{f' ({torn})' if torn else ''}, restore "
            "it from a copy"
        )
    return Recovered(
        end_offset=max(end, tables_end),
        producers=producers.snapshot(),
        producers_complete=is_complete,
        begins_at=max(start, segment.start_offset) if newest else max(end, tables_end),
    )


async def earliest_offset(store: SegmentStore, topic: Topic, segment: Segment) -> int:
    """Return the offset from which the segment's records must be there: retention and low watermarks removed all below.

    It is the end offset if the segment is sealed and all of it was removed. Records that are missing above it are lost.

    Raises:
        StorageFailed: If the storage refuses, or files vanish as fast as they are listed.
    """
    low = max(topic.low_watermark(segment.slots), segment.start_offset)
    if segment.end_offset is not None and low >= segment.end_offset:
        return segment.end_offset
    removed = (await store.removed(topic.name, topic.uid)).get(segment.id, 0)
    if not topic.expires:
        return first_needed(topic, segment, (), removed)
    for _ in range(LISTINGS_MAX):
        files = await store.list_files(topic.name, segment.id)
        try:
            return first_needed(topic, segment, await _first_sound(store, topic, files), removed)
        except NotFound:
            continue  # it went after it was listed: a table has its records, or retention took them
    raise StorageFailed(
        f"{topic.name}#{segment.id}: files vanish as fast as they are listed, {LISTINGS_MAX} times in a row: "
        "see who else deletes files there"
    )


async def _first_sound(store: SegmentStore, topic: Topic, files: Sequence[SegmentFile]) -> Sequence[SegmentFile]:
    """Return the first file that may hold records, if there is one: no torn log, and none of an earlier topic."""
    for file in files:
        if file.kind is FileKind.TABLE:
            return (file,)
        try:
            if await _preamble_of(store, topic, file) is not None:
                return (file,)
        except Corrupt:
            return (file,)  # its reader names the damage
    return ()


@dataclass(slots=True)
class _Durable:
    """Everything below ``offset`` was fsynced once."""

    offset: int
    witness: str
    """Where that is known from."""

    def learn(self, offset: int, witness: str) -> None:
        if offset > self.offset:
            self.offset, self.witness = offset, witness


async def _newest_logs(
    store: SegmentStore, topic: Topic, logs: Sequence[SegmentFile], known: _Durable
) -> tuple[list[tuple[SegmentFile, LogPreamble]], int]:
    """The log files to read, with their preambles, by base offset; and the one of those bases to begin with.

    All below that base was fsynced, so that its preamble tells what was there. ``known`` learns from every preamble
    that is read. The oldest log is always believed: a file that begins before all below it is fsynced has another one
    before it that power loss does not take (``broker.segment.files``); if that one is gone, tables hold all of it.

    Files that begin earlier may reach further, since what could not be fsynced is written again from the last fsynced
    offset on: of each broker those at the next lower base are read as well.
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


async def _preamble_of(store: SegmentStore, topic: Topic, log: SegmentFile) -> LogPreamble | None:
    """None if it is torn, or the file is of an earlier topic of the same name."""
    scanner = LogScanner(topic, log, read_bytes=_PREAMBLE_READ_BYTES)
    reader = await store.open(log)
    try:
        while scanner.preamble is None and (wanted := scanner.wants()) is not None:
            scanner.feed(await reader.read(*wanted))
    finally:
        await reader.close()
    return None if scanner.foreign else scanner.preamble


async def _frames(
    store: SegmentStore, log: SegmentFile, scanner: LogScanner
) -> AsyncGenerator[Sequence[LogFrame], None]:
    """Verified frames, those of one read at a time."""
    reader = await store.open(log)
    try:
        while (wanted := scanner.wants()) is not None:
            run = await asyncio.to_thread(scanner.feed, await reader.read(*wanted))
            yield run.frames
    finally:
        await reader.close()


def _record(producers: ProducerTable, header: FrameHeader) -> None:
    ack = FrameAck(header.first_sequence, header.record_count, header.base_offset)
    producers.floor = header.base_offset  # what was read is there, and frames in flight are all that is asked for
    producers.follow(header.producer_id, header.producer_epoch, ack)
