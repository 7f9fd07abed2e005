"""The first offset at a time in a segment, and its latest time, from logs and tables alike."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.codec.frame import HEADER_BYTES, stamp
from seaweedmq.model.files import FileKind
from seaweedmq.storage.read.time_search import RecordAt, find_latest_time, find_offset_by_time
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.support.segments import NAME, T0, logs_of, make_frame, make_topic, write_log

SMALL_GROUPS = 1_000
"""Size of a row group in bytes: tables have several."""


async def convert(store: FileSegmentStore) -> None:
    logs = await logs_of(store)
    convert_files(store.place, make_topic(), logs, None, SMALL_GROUPS)
    await store.delete(logs)


def at(base: int, count: int, second: int) -> bytes:
    """Return records from offset ``base`` on, the first so many seconds after T0, each a second later."""
    frame = make_frame(second, count, stamps=True)
    return stamp(frame[:HEADER_BYTES], base) + frame[HEADER_BYTES:]


def record(offset: int, second: int) -> RecordAt:
    return RecordAt(offset, T0 + second * 1_000_000)


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("stamps", [False, True])
async def test_offsets_by_time(store: FileSegmentStore, converted: bool, stamps: bool) -> None:
    """With timestamps record n is n seconds after T0; without, every ten records share one."""
    for base in (0, 100):
        await write_log(store, base, [make_frame(b, 10, stamps=stamps) for b in range(base, base + 100, 10)])
    if converted:
        await convert(store)

    async def find(seconds: float, start: int = 0) -> RecordAt | None:
        time_us = T0 + int(seconds * 1e6)
        return await find_offset_by_time(store, make_topic(), 0, time_us, 180, start_offset=start)

    assert await find(-5) == record(0, 0)
    assert await find(0) == record(0, 0)
    assert await find(120) == record(120, 120)
    assert await find(114.5) == (record(115, 115) if stamps else record(120, 120))
    assert await find(0, start=93) == (record(93, 93) if stamps else record(93, 90))
    assert await find(1_000) is None
    assert await find(185) is None


@pytest.mark.parametrize("converted", [False, True])
async def test_times_need_not_rise(store: FileSegmentStore, converted: bool) -> None:
    await write_log(store, 0, [at(0, 10, 90), at(10, 10, 0)])
    if converted:
        await convert(store)
    assert await find_offset_by_time(store, make_topic(), 0, T0 + 5_000_000, 20) == record(0, 90)
    assert await find_offset_by_time(store, make_topic(), 0, T0 + 95_000_000, 20) == record(5, 95)
    assert await find_latest_time(store, make_topic(), 0, 20) == record(9, 99)
    assert await find_latest_time(store, make_topic(), 0, 8) == record(7, 97)
    assert await find_latest_time(store, make_topic(), 0, 20, start_offset=10) == record(19, 9)
    assert await find_latest_time(store, make_topic(), 0, 0) is None


async def test_the_latest_of_files_of_both_kinds(store: FileSegmentStore) -> None:
    await write_log(store, 0, [at(0, 100, 500), at(100, 100, 0)])
    await convert(store)
    await write_log(store, 200, [at(200, 10, 300), at(210, 10, 590)])
    assert [f.kind for f in await store.list_files(NAME, 0)].count(FileKind.TABLE) == 1
    assert await find_latest_time(store, make_topic(), 0, 210) == record(99, 599)
    assert await find_latest_time(store, make_topic(), 0, 220) == record(99, 599), "the first of two"
    assert await find_latest_time(store, make_topic(), 0, 220, start_offset=100) == record(219, 599)


async def test_a_segment_without_files_has_no_times(store: FileSegmentStore) -> None:
    topic = replace(make_topic(), retention_s=60.0)
    assert await find_offset_by_time(store, topic, 0, T0, 20) is None
    assert await find_latest_time(store, topic, 0, 20) is None


async def test_lost_records_may_be_the_ones_searched(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seaweedmq.storage.read.reader.RELIST_DELAY_S", 0.0001)
    await write_log(store, 0, [at(0, 10, 0)])
    await write_log(store, 30, [at(30, 10, 50)], writer="b-2")
    topic = make_topic()
    assert await find_offset_by_time(store, topic, 0, record(0, 9).timestamp_us, 40) == record(9, 9)
    wanted_us = record(0, 51).timestamp_us
    assert await find_offset_by_time(store, topic, 0, wanted_us, 40) == (10, wanted_us), "its reader meets the gap"
    assert await find_offset_by_time(store, topic, 0, wanted_us, 40, skip_missing=True) == record(31, 51)
    assert await find_offset_by_time(store, topic, 0, wanted_us * 2, 50, skip_missing=True) is None
    assert await find_latest_time(store, topic, 0, 40) == record(39, 59)


FRAMES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 30)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(logs=st.lists(FRAMES, min_size=1, max_size=3), converted=st.integers(0, 3), data=st.data())
async def test_both_searches_find_what_looking_at_every_record_would(
    tmp_path_factory: pytest.TempPathFactory,
    logs: Sequence[Sequence[tuple[int, int]]],
    converted: int,
    data: st.DataObject,
) -> None:
    """Write frames of so many records from so many seconds on, in several logs, and convert the first ones."""
    store = FileSegmentStore(tmp_path_factory.mktemp("store"))
    seconds: list[int] = []
    for number, frames in enumerate(logs):
        base, written = len(seconds), []
        for count, second in frames:
            written.append(at(len(seconds), count, second))
            seconds += range(second, second + count)
        await write_log(store, base, written)
        if number < converted:
            await convert(store)
    end = data.draw(st.integers(0, len(seconds)))
    start = data.draw(st.integers(0, end))
    wanted = data.draw(st.integers(0, 40))
    kept = [record(offset, seconds[offset]) for offset in range(start, end)]
    found = await find_offset_by_time(store, make_topic(), 0, T0 + wanted * 1_000_000, end, start_offset=start)
    assert found == next((r for r in kept if r.timestamp_us >= T0 + wanted * 1_000_000), None)
    latest = await find_latest_time(store, make_topic(), 0, end, start_offset=start)
    assert latest == max(kept, key=lambda r: (r.timestamp_us, -r.offset), default=None)
    await store.close()
