"""What the files alone tell of a segment: how far it goes, what its producers stored, and where a time begins."""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from seaweedmq.codec.frame import FrameHeader
from seaweedmq.codec.logfile import LogPreamble
from seaweedmq.core.producers import ProducerState, ProducerTable
from seaweedmq.core.retention import broker_of
from seaweedmq.errors import Corrupt
from seaweedmq.model.protocol import FrameAck
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import FileKind, SegmentFile, SegmentStore
from seaweedmq.storage.log_scan import LogFrame, LogScanner, check_joins
from seaweedmq.storage.time_search import find_offset_by_time

__all__ = ["Recovered", "earliest_offset", "find_offset_by_time", "recover_segment"]

_PREAMBLE_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The end of a segment as its files have it."""

    end_offset: int
    producers: tuple[ProducerState, ...]
    """The longest idle first."""
    producers_complete: bool = True
    """Whether there are log files up to the end, so that a producer that is missing has stored nothing that it may
    still repeat."""


async def recover_segment(store: SegmentStore, topic: Topic, segment: Segment) -> Recovered:
    """Read every broker's newest log files: a preamble holds all that came before, verified frames the rest.

    Torn tails are what was never acknowledged, and are ignored. Frames that several files hold count once.

    Raises:
        Corrupt: damage that is not a torn tail, or files that contradict each other; names file and position.
    """
    files = await store.list_files(topic.name, segment.id)
    # A broker that was frozen may have written on after its segment was sealed: that does not belong to it.
    limit = math.inf if segment.end_offset is None else segment.end_offset
    logs = [f for f in files if f.kind is FileKind.LOG and f.base_offset <= limit]
    end = -1
    producers = ProducerTable()
    damage: list[tuple[int, Corrupt]] = []
    for log, preamble in await _newest_logs(store, topic, logs):
        if log.base_offset > end:
            producers, end = _producers_of(preamble), log.base_offset
        try:
            async for frames in _frames(store, topic, log, end):
                for found in frames:
                    if found.frame.header.end_offset > limit:
                        break
                    check_joins(log, found, end)
                    _record(producers, found.frame.header)
                    end = found.frame.header.end_offset
        except Corrupt as e:
            damage.append((end, e))
    for offset, error in damage:
        if offset >= end:
            raise error  # no other file gets further
    tables_end = max((f.end_offset or 0 for f in files if f.kind is FileKind.TABLE), default=0)
    end = max(end, segment.start_offset)
    is_complete = segment.end_offset is None or end >= segment.end_offset
    if logs and end < tables_end:
        raise Corrupt(
            f"{topic.name}#{segment.id}: a table holds records up to offset {tables_end}, but the log files it was "
            f"made of end with {end}; {logs[-1].path} was damaged or cut, restore it from a copy"
        )
    return Recovered(end_offset=max(end, tables_end), producers=producers.snapshot(), producers_complete=is_complete)


async def earliest_offset(store: SegmentStore, topic: Topic, segment: Segment) -> int:
    """Lowest offset of the segment that retention has left; its end offset if it is sealed and nothing is left."""
    for file in await store.list_files(topic.name, segment.id):
        if segment.end_offset is not None and file.base_offset >= segment.end_offset:
            break
        if file.kind is FileKind.TABLE or await _preamble_of(store, topic, file) is not None:
            return max(file.base_offset, segment.start_offset)
    return segment.start_offset if segment.end_offset is None else segment.end_offset


async def _newest_logs(
    store: SegmentStore, topic: Topic, logs: Sequence[SegmentFile]
) -> list[tuple[SegmentFile, LogPreamble]]:
    """Every broker's log files at its two highest base offsets, with whole preambles, by base offset.

    Two, because a file that could not be fsynced is written again from its last fsynced offset on: if the broker died
    over that, the earlier file has the rest.
    """
    by_broker: defaultdict[str, list[SegmentFile]] = defaultdict(list)
    for log in sorted(logs, key=lambda f: f.base_offset, reverse=True):
        by_broker[broker_of(log.writer)].append(log)
    newest: list[tuple[SegmentFile, LogPreamble]] = []
    for written in by_broker.values():
        bases: set[int] = set()
        for log in written:
            if len(bases) == 2 and log.base_offset not in bases:
                break
            preamble = await _preamble_of(store, topic, log)
            if preamble is not None:
                bases.add(log.base_offset)
                newest.append((log, preamble))
    return sorted(newest, key=lambda entry: (entry[0].base_offset, entry[0].writer))


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


def _producers_of(preamble: LogPreamble) -> ProducerTable:
    return ProducerTable(
        states=(
            ProducerState(
                producer_id=p.producer_id,
                producer_epoch=p.producer_epoch,
                next_sequence=p.next_sequence,
                recent=p.recent,
            )
            for p in preamble.producers
        )
    )


async def _frames(
    store: SegmentStore, topic: Topic, log: SegmentFile, skip_below: int
) -> AsyncGenerator[Sequence[LogFrame], None]:
    """Verified frames that end above ``skip_below``, those of one read at a time."""
    scanner = LogScanner(topic, log, skip_below=skip_below)
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
