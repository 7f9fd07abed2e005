"""Catch-up reads join tables and logs without gap or repeat, while files come and go."""

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.paths import log_path
from seaweedmq.codec.payload.batch import schema_to_bytes
from seaweedmq.errors import Corrupt, DataLoss, OutOfRange, StorageFailed
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_index import LogIndex
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.doubles.memory_converter import MemoryTableConverter
from tests.doubles.memory_store import MemorySegmentStore
from tests.support.segments import NAME, logs_of, make_frame, make_topic, records_of, value_of, write_log

TYPED = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.float64())])


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seaweedmq.storage.read.reader.RELIST_DELAY_S", 0.0001)


async def read(
    store: FileSegmentStore | MemorySegmentStore,
    start: int,
    end: int,
    *,
    chunk_bytes: int = 1_000,
    topic: Topic | None = None,
) -> list[tuple[int, dict[str, object]]]:
    """Return records with offsets in [start, end); assert that frames join."""
    topic = topic or make_topic()
    records: list[tuple[int, dict[str, object]]] = []
    position = None
    async for chunk in read_segment(store, topic, 0, start, end, chunk_bytes=chunk_bytes):
        for frame in split_frames(chunk.data):
            if position is None:
                assert frame.header.base_offset <= start < frame.header.end_offset
            else:
                assert frame.header.base_offset == position
            assert frame.header.base_offset < end
            position = frame.header.end_offset
        assert position == chunk.end_offset
        records += records_of(chunk.data, topic)
    return [(o, r) for o, r in records if start <= o < end]


async def check(
    store: FileSegmentStore | MemorySegmentStore, start: int, end: int, *, chunk_bytes: int = 1_000
) -> None:
    found = await read(store, start, end, chunk_bytes=chunk_bytes)
    assert [(o, r["_value"]) for o, r in found] == [(o, value_of(o)) for o in range(start, end)]


def convert(store: FileSegmentStore, logs: list[SegmentFile], topic: Topic | None = None) -> list[SegmentFile]:
    return convert_files(store.place, topic or make_topic(), logs, None, 2_000)


@pytest.mark.parametrize("partitions", [None, 12])
async def test_a_frame_of_a_table_may_have_records_of_any_slot(store: FileSegmentStore, partitions: int | None) -> None:
    topic = replace(make_topic(), partitions=partitions)
    log = await write_log(store, 0, [make_frame(0, 10)])
    convert(store, [log], topic)
    await store.delete([log])
    (chunk,) = [c async for c in read_segment(store, topic, 0, 0, 10, chunk_bytes=1_000)]
    (frame,) = split_frames(chunk.data)
    assert (frame.header.slot_min, frame.header.slot_max) == (0, (partitions or 65_536) - 1)


@pytest.mark.parametrize("is_typed", [False, True])
async def test_records_survive_the_way_through_a_table(store: FileSegmentStore, is_typed: bool) -> None:
    topic = make_topic(schema_to_bytes(TYPED) if is_typed else None)
    last = make_frame(5, 5, schema=TYPED) if is_typed else make_frame(5, 5)
    frames = [make_frame(0, 5, keys=True, headers=True, stamps=True), last, make_frame(10, 5, keys=True)]
    log = await write_log(store, 0, frames)
    before = await read(store, 0, 15, topic=topic)
    assert [r.get("id") for _, r in before] == [None] * 5 + (list(range(5, 10)) if is_typed else [None] * 5) + [
        None
    ] * 5
    convert(store, [log], topic)
    await store.delete([log])
    assert await read(store, 0, 15, chunk_bytes=100, topic=topic) == before


async def test_absent_columns_stay_absent_after_a_table(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    convert(store, [log])
    await store.delete([log])
    chunks = [c async for c in read_segment(store, make_topic(), 0, 0, 10, chunk_bytes=1_000)]
    assert [f.header.flags for c in chunks for f in split_frames(c.data)] == [0]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
async def test_any_mixture_of_tables_logs_and_torn_tails_reads_as_one(seed: int) -> None:
    """Several writers wrote overlapping ranges; any part was converted; logs with tables may be deleted."""
    rng = random.Random(seed)
    store = MemorySegmentStore(lambda: 1_000)
    bases = [0]
    while bases[-1] < 120:
        bases.append(bases[-1] + rng.randint(1, 15))
    end = bases[-1]
    frames = {b: make_frame(b, e - b, keys=rng.random() < 0.3) for b, e in itertools.pairwise(bases)}
    for writer in range(rng.randint(1, 3)):
        starts = sorted({0, *rng.sample(bases[:-1], rng.randint(0, 3))})
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            content = [f for b, f in frames.items() if start <= b < stop]
            if writer and rng.random() < 0.5:
                content[-1] = content[-1][: rng.randint(0, len(content[-1]) - 1)]
            await write_log(store, start, content, writer=f"b-{writer}")
    logs = await logs_of(store)
    whole = [f for f in logs if f.writer == "b-0"]
    converted = rng.sample(whole, rng.randint(0, len(whole)))
    await MemoryTableConverter(store, row_group_bytes=rng.choice([100, 10_000])).convert(make_topic(), converted, None)
    for log in converted:
        if rng.random() < 0.5:
            await store.delete([log])
    start = rng.randrange(end)
    await check(store, start, rng.randint(start, end), chunk_bytes=rng.choice([1, 300, 100_000]))
    await store.close()


async def test_conversion_and_deletion_in_the_middle_of_a_read(store: FileSegmentStore) -> None:
    for base in range(0, 400, 100):
        await write_log(store, base, [make_frame(b, 10) for b in range(base, base + 100, 10)])
    seen: list[int] = []
    async for chunk in read_segment(store, make_topic(), 0, 0, 400, chunk_bytes=200):
        seen += [o for o, _ in records_of(chunk.data)]
        if len(seen) == 20:
            logs = await logs_of(store)
            await asyncio.to_thread(convert, store, logs)
            await store.delete(logs)
    assert seen == list(range(400))


async def test_a_reader_that_stops_early_leaves_nothing_behind(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(b, 10) for b in range(0, 1000, 10)])
    for prepare in (lambda: None, lambda: convert(store, [log])):
        prepare()
        chunks = read_segment(store, make_topic(), 0, 0, 1000, chunk_bytes=100)
        assert await anext(chunks)
        await chunks.aclose()


async def test_each_log_is_read_once(store: FileSegmentStore) -> None:
    memory = MemorySegmentStore(lambda: 1_000)
    for base in range(0, 300, 100):
        await write_log(memory, base, [make_frame(b, 10) for b in range(base, base + 100, 10)])
    opened: list[str] = []

    async def note(op: object, path: str) -> None:
        if op == "open":
            opened.append(path)

    memory.fault = note
    await check(memory, 0, 300)
    assert len(opened) == len(set(opened)) == 3


async def test_who_begins_in_the_middle_of_a_log_that_was_scanned_before_does_not_scan_it_again() -> None:
    memory = MemorySegmentStore(lambda: 1_000)
    await write_log(memory, 0, [make_frame(b, 10, size=200) for b in range(0, 300, 10)])
    reads = 0

    async def note(op: object, path: str) -> None:
        nonlocal reads
        reads += op == "read"

    memory.fault = note
    index = LogIndex()

    async def cost(start: int, end: int) -> int:
        nonlocal reads
        before = reads
        async for chunk in read_segment(memory, make_topic(), 0, start, end, chunk_bytes=1_000, index=index):
            assert chunk.end_offset > start
        return reads - before

    whole = await cost(0, 300)
    assert await cost(290, 300) < whole / 4
    assert await cost(150, 160) < whole / 4
    assert await cost(0, 300) == whole


def flip(store: FileSegmentStore, file: SegmentFile, at: Callable[[int], int]) -> None:
    path = store.place.root / file.path
    data = bytearray(path.read_bytes())
    data[at(len(data))] ^= 1
    path.write_bytes(data)


async def test_a_log_is_read_while_it_is_there_and_then_its_table(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(b, 10, size=200) for b in range(0, 100, 10)])
    (table,) = convert(store, [log])
    flip(store, table, lambda size: size // 3)
    await check_size(store, 100)
    await store.delete([log])
    with pytest.raises(Corrupt, match=table.path):
        await read(store, 0, 100)


@pytest.mark.parametrize("start", [0, 15, 65])
async def test_where_a_log_is_damaged_its_table_goes_on(store: FileSegmentStore, start: int) -> None:
    log = await write_log(store, 0, [make_frame(b, 10) for b in range(0, 100, 10)])
    convert(store, [log])
    flip(store, log, lambda size: size // 2)
    await check(store, start, 100)


async def test_a_log_that_ends_early_hands_over_to_tables_and_they_to_the_next_log(store: FileSegmentStore) -> None:
    """The middle log was deleted; the first one, the nearest below then, has none of its records."""
    logs = [await write_log(store, b, [make_frame(b, 10), make_frame(b + 10, 10)]) for b in (0, 20, 40)]
    convert(store, logs)
    await store.delete([logs[1]])
    await check(store, 0, 60)
    await check(store, 25, 50)


async def check_size(store: FileSegmentStore, end: int) -> None:
    assert [o for o, _ in await read(store, 0, end)] == list(range(end))


async def test_a_damaged_log_is_read_from_its_copy(store: FileSegmentStore) -> None:
    frames = [make_frame(b, 10) for b in range(0, 100, 10)]
    log = await write_log(store, 0, frames, writer="b-1")
    flip(store, log, lambda size: size // 2)
    with pytest.raises(Corrupt, match=rf"{log.path} is damaged at byte \d+, offset \d+"):
        await read(store, 0, 100)
    await write_log(store, 0, frames, writer="b-2")
    await check(store, 0, 100)


@given(at=st.floats(0, 0.999), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
async def test_no_flipped_bit_of_a_table_is_ever_served(at: float, bit: int) -> None:
    store = MemorySegmentStore(lambda: 1_000)
    log = await write_log(store, 0, [make_frame(b, 10, keys=True, stamps=True) for b in range(0, 100, 10)])
    before = await read(store, 0, 100)
    (table,) = await MemoryTableConverter(store, row_group_bytes=1_000).convert(make_topic(), [log], None)
    await store.delete([log])
    data = store.files[table.path].data
    data[int(at * len(data))] ^= 1 << bit
    try:
        found = await read(store, 0, 100)
    except Corrupt as e:
        found = before if table.path in str(e) else []
    assert found == before
    await store.close()


async def test_what_retention_removed_is_said(store: FileSegmentStore) -> None:
    await write_log(store, 50, [make_frame(50, 10)])
    expiring = replace(make_topic(), retention_s=60.0)
    with pytest.raises(OutOfRange, match="lowest retained is 50"):
        await read(store, 10, 60, topic=expiring)
    with pytest.raises(
        DataLoss, match=r"offsets \[10, 50\) are missing: no file holds them, the topic has no retention"
    ):
        await read(store, 10, 60)


async def test_what_retention_removed_before_it_was_switched_off_is_said(store: FileSegmentStore) -> None:
    topic = make_topic()
    await write_log(store, 50, [make_frame(50, 10)])
    await store.record_removed(topic.name, topic.uid, {0: 40})
    with pytest.raises(OutOfRange, match="lowest retained is 50"):
        await read(store, 10, 60, topic=topic)
    with pytest.raises(DataLoss, match=r"offsets \[40, 50\) are missing"):
        await read(store, 40, 60, topic=topic)


@pytest.mark.parametrize("retention_s", [None, 60.0])
async def test_a_gap_is_named_up_to_the_next_stored_record(store: FileSegmentStore, retention_s: float | None) -> None:
    """The file of an earlier topic of this name, and one with a torn preamble, hold no records."""
    topic = replace(make_topic(), retention_s=retention_s)
    await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10)[:-3]])
    await write_log(store, 30, [make_frame(30, 10)], writer="other", uid=6)
    (store.place.root / log_path(NAME, 0, 40, "torn")).write_bytes(b"SW")
    await write_log(store, 50, [make_frame(50, 10)], writer="b-2")
    for end, missing in ((60, (10, 50)), (45, (10, 45))):
        with pytest.raises(DataLoss) as caught:
            await read(store, 0, end, topic=topic)
        assert (caught.value.start_offset, caught.value.end_offset) == missing


async def test_a_vanished_storage_is_not_taken_for_retention(store: FileSegmentStore, tmp_path: Path) -> None:
    gone = FileSegmentStore(tmp_path / "unmounted")
    with pytest.raises(StorageFailed):
        await read(gone, 0, 20)
    await gone.close()
