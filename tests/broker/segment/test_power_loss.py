"""Power loss at any moment: flushed records survive, and no log has a hole."""

import contextlib
import random
from contextlib import aclosing

from hypothesis import example, given, settings
from hypothesis import strategies as st

from seaweedmq.broker.segment.log_file import LogFileCreator
from seaweedmq.broker.segment.segment_files import SegmentFiles
from seaweedmq.codec.frame import ENCODING_ARROW, HEADER_BYTES
from seaweedmq.codec.logfile import decode_preamble
from seaweedmq.core.files.retention import Listed, RetentionPolicy, expired_files
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import StorageFailed
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import ProducerState
from seaweedmq.model.topic import Durability
from seaweedmq.ports import Environment
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.recovery import Recovered, recover_segment
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.support.power_loss import lose_power
from tests.support.segments import make_frame, make_segment, make_topic

SEGMENT = make_segment()
ATTEMPTS_MAX = 200
"""Limit of attempts: one is up to six calls, of which three in ten may fail, so one attempt in nine succeeds."""


class Writer:
    """The file operations of ``OpenSegment``, one step at a time."""

    def __init__(self, store: MemorySegmentStore, rng: random.Random, roll_bytes: int) -> None:
        self.rng = rng
        self.log = SegmentLog(start_offset=0, durability=Durability.STORED, producers=ProducerTable())
        self.sequences = {1: 0, 2: 0}
        self.files = SegmentFiles(
            SEGMENT,
            self.log,
            store=store,
            log_files=LogFileCreator(store, make_topic(), SEGMENT, "b-1"),
            roll_bytes=roll_bytes,
            env=Environment(lambda: 0),
            ask_sync=lambda: None,
        )

    async def write(self, *, urgent: bool = False) -> None:
        for _ in range(self.rng.randint(1, 4)):
            producer, count = self.rng.choice((1, 2)), self.rng.randint(1, 3)
            base = self.log.end
            size = self.rng.choice((20, 1_000, 5_000))
            frame = make_frame(base, count, size=size, producer=producer, first_sequence=self.sequences[producer])
            entry = LogEntry(base, base + count, ENCODING_ARROW, frame[:HEADER_BYTES], frame[HEADER_BYTES:])
            self.log.producers.open(producer, 0, self.sequences[producer], 0.0)
            self.log.append(producer, 0, self.sequences[producer], entry)
            self.sequences[producer] += count
        entries = self.log.take_unwritten(1 << 20)
        size, end = sum(e.size_bytes for e in entries), entries[-1].end_offset
        for _ in range(ATTEMPTS_MAX):
            try:
                await self.files.append(
                    [part for e in entries for part in (e.header, e.payload)], size, end, urgent=urgent
                )
            except StorageFailed:
                continue
            self.log.on_written(end, size)
            self.log.on_flushed(self.files.flushed)
            return
        raise AssertionError("the storage does not come back")

    async def sync(self) -> None:
        await self.files.sync()
        self.log.on_flushed(self.files.flushed)

    async def expire(self, store: MemorySegmentStore) -> None:
        """Stay idle until all records are in a table, and retention removes the table with its logs."""
        self.files.retire_if_older(0)
        await self.sync()
        if self.files.open_files or self.log.flushed < self.log.end:
            return
        self.files.sealed.clear()
        if self.files.is_last_due(0, 0.0):
            with contextlib.suppress(StorageFailed):
                await self.files.put_empty()
        listed = await store.list_files(SEGMENT.topic, SEGMENT.id)
        begin = min((file.base_offset for file in listed), default=self.log.end)
        if begin == self.log.end:
            return
        table = SegmentFile(
            topic=SEGMENT.topic,
            segment=SEGMENT.id,
            kind=FileKind.TABLE,
            base_offset=begin,
            end_offset=self.log.end,
            writer="",
            size_bytes=1,
            path="the table",
            modified_us=0,
        )
        policy = RetentionPolicy(log_grace_us=0, retention_us=0)
        going = expired_files([Listed(None, [*listed, table])], policy, 0)
        if table in going:
            await store.delete([file for file in going if file is not table])


def by_id(recovered: Recovered) -> dict[int, ProducerState]:
    """Return producers by id; the longest idle come first, as far as the recovered files show."""
    return {producer.producer_id: producer for producer in recovered.producers}


@given(seed=st.integers(0, 10**9))
@example(seed=8274)  # 20 attempts in a row fail
@settings(max_examples=200, deadline=None)
async def test_whatever_power_loss_leaves_is_a_log_without_holes(seed: int) -> None:
    rng = random.Random(seed)
    failing = rng.choice((0.0, 0.0, 0.1, 0.3))

    async def fault(op: StorageOp, path: str) -> None:
        if op in (StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC) and rng.random() < failing:
            raise StorageFailed(f"{op} {path}")

    store = MemorySegmentStore(lambda: 0, fault, tear=rng)
    writer = Writer(store, rng, roll_bytes=rng.choice((3_000, 20_000)))
    for _ in range(rng.randint(1, 25)):
        step = rng.random()
        if step < 0.6:
            await writer.write(urgent=rng.random() < 0.3)
        elif step < 0.8:
            await writer.sync()
        elif step < 0.85:
            writer.files.retire_if_older(0)
        else:
            await writer.expire(store)
    failing = 0.0
    flushed, written = writer.files.flushed, writer.log.written
    lose_power(store, rng)
    recovered = await recover_segment(store, make_topic(), SEGMENT)
    assert flushed <= recovered.end_offset <= written
    assert sum(p.next_sequence for p in recovered.producers) == recovered.end_offset
    sealed = make_segment(end_offset=recovered.end_offset)
    again = await recover_segment(store, make_topic(), sealed)
    assert (again.end_offset, by_id(again)) == (recovered.end_offset, by_id(recovered))
    position = min((file.base_offset for file in await store.list_files(SEGMENT.topic, 0)), default=0)
    reading = read_segment(store, make_topic(), 0, position, recovered.end_offset, chunk_bytes=10_000)
    async with aclosing(reading) as chunks:
        async for chunk in chunks:
            position = chunk.end_offset
    assert position >= recovered.end_offset


async def preambles(store: MemorySegmentStore) -> list[tuple[int, int | None]]:
    """Return base offset and flushed offset in the preamble of every log file."""
    found = []
    for path in sorted(store.files):
        preamble, _ = decode_preamble(bytes(store.files[path].data))
        found.append((preamble.base_offset, preamble.flushed))
    return found


async def test_a_file_tells_how_far_the_fsyncs_were_when_it_began() -> None:
    store = MemorySegmentStore(lambda: 0)
    writer = Writer(store, random.Random(1), roll_bytes=1)
    await writer.write()
    await writer.sync()
    first = writer.log.flushed
    await writer.write()
    second = writer.log.written
    assert await preambles(store) == [(0, 0), (first, first)]
    await writer.sync()
    await writer.write()
    assert await preambles(store) == [(0, 0), (first, first), (second, second)]


async def test_a_full_file_grows_on_until_it_is_there_to_stay() -> None:
    store = MemorySegmentStore(lambda: 0)
    writer = Writer(store, random.Random(1), roll_bytes=1)
    for _ in range(3):
        await writer.write()
        writer.files.retire_if_older(0)
    assert await preambles(store) == [(0, 0)]
    written = writer.log.written
    await writer.sync()
    await writer.write()
    assert await preambles(store) == [(0, 0), (written, written)]


async def test_after_a_failed_append_what_was_not_fsynced_is_written_again_before_another_file_begins() -> None:
    failing: list[StorageOp] = []

    async def fault(op: StorageOp, path: str) -> None:
        if op in failing:
            failing.remove(op)
            raise StorageFailed(f"{op} {path}")

    store = MemorySegmentStore(lambda: 0, fault)
    writer = Writer(store, random.Random(1), roll_bytes=1 << 20)
    await writer.write()
    written = writer.log.written
    failing.append(StorageOp.APPEND)
    await writer.write()
    assert writer.log.flushed == written
    assert await preambles(store) == [(0, 0), (0, 0), (written, written)]
