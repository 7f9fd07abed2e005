"""Lost records: log files vanish that neither retention nor a low watermark explains.

Every reader gets one error with the offsets, or continues behind them if it skips missing records.
"""

import asyncio
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.client.client import Client
from seaweedmq.client.subscribe.topic_reader import SkippedRecords
from seaweedmq.errors import DataLoss
from seaweedmq.model.config import KIB
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.calls import RaiseLowWatermark, SealSegment
from seaweedmq.model.messages.subscribe import Start, StartKind
from tests.broker.testbed import CONFIG, NAME, Host, Publishing, Testbed, story

FILES = replace(CONFIG, log_roll_bytes=2 * KIB, maintenance_interval_s=1e4)
RECORDS_A_FRAME = 2
QUICK = replace(CONFIG, log_roll_age_s=1.0, maintenance_interval_s=1.0, log_grace_s=2.0)


async def fill(publisher: Publishing, frames: int) -> None:
    for _ in range(frames):
        await publisher.store(count=RECORDS_A_FRAME, size=50)


def lose(testbed: Testbed, files: Collection[SegmentFile]) -> None:
    for file in files:
        del testbed.store.files[file.path]


class Read(NamedTuple):
    offsets: list[int]
    skipped: list[SkippedRecords]
    error: DataLoss | None

    @property
    def missing(self) -> tuple[int, int] | None:
        if self.error is None:
            return None
        found = re.search(r"test/topic#0: records of offsets \[(\d+), (\d+)\) are missing", str(self.error))
        assert found is not None, self.error
        return int(found[1]), int(found[2])


async def read(client: Client, on_missing: Literal["fail", "skip"], **options: Any) -> Read:
    options = {"start": "earliest", "stop_at": "latest"} | options
    async with client.subscriber(NAME, on_missing=on_missing, **options) as reader:
        offsets: list[int] = []
        error: DataLoss | None = None
        try:
            async for message in reader:
                offsets.append(message.offset)
                message.ack()
        except DataLoss as loss:
            error = loss
            with pytest.raises(DataLoss, match=re.escape(str(loss))):
                await anext(aiter(reader))
        return Read(offsets, list(reader.skipped), error)


async def test_a_reader_of_a_segment_whose_files_vanished_gets_the_offsets(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    await testbed.publish(frames=5)
    await hosts[0].api.call(SealSegment(NAME, 0))
    lose(testbed, [*testbed.files(FileKind.LOG), *testbed.files(FileKind.TABLE)])
    for host in hosts:
        await host.stop()
    host = await testbed.start(address="broker-9:7777")
    await testbed.until(lambda: host.inspect.leads)
    for start in (Start(StartKind.EARLIEST), Start(StartKind.OFFSET, 0), Start(StartKind.TIME, 1)):
        reader = await host.subscriber(start)
        with pytest.raises(DataLoss, match=r"topic#0: records of offsets \[0, 5\) are missing: no file holds them"):
            await reader.ending()


class Plan(NamedTuple):
    frames: int
    sealed: bool
    lost: frozenset[int]
    """Indexes of the log files that vanish, modulo their number."""
    retention: bool
    removed_below: int
    low_watermark: int


PLANS = st.builds(
    Plan,
    frames=st.integers(1, 40),
    sealed=st.booleans(),
    lost=st.frozensets(st.integers(0, 7), max_size=6),
    retention=st.booleans(),
    removed_below=st.just(0) | st.integers(0, 90),
    low_watermark=st.just(0) | st.integers(0, 90),
)


@settings(max_examples=40, deadline=None)
@given(plan=PLANS)
def test_a_reader_gets_all_up_to_a_gap_and_then_its_offsets_and_all_that_is_left_when_it_skips(plan: Plan) -> None:
    story(_read_both_ways)(plan=plan)


async def _read_both_ways(testbed: Testbed, plan: Plan) -> None:
    host = await testbed.single(FILES, partitions=1, retention_s=1e6 if plan.retention else None)
    await fill(await host.publisher(), plan.frames)
    end = plan.frames * RECORDS_A_FRAME
    await testbed.until(lambda: host.inspect.segments[NAME, 0].log.flushed == end)
    if plan.low_watermark:
        await host.api.call(RaiseLowWatermark(NAME, {0: min(plan.low_watermark, end)}))
    if plan.removed_below:
        await testbed.store.record_removed(NAME, host.inspect.view.topics[NAME].uid, {0: min(plan.removed_below, end)})
    if plan.sealed:
        await host.api.call(SealSegment(NAME, 0))
        await testbed.until(lambda: 1 in host.inspect.view.open_of(NAME))
    host.evict()
    in_memory = end if plan.sealed else host.inspect.segments[NAME, 0].log.cache_start
    logs = testbed.files(FileKind.LOG)
    ends = [*(log.base_offset for log in logs[1:]), end]
    lost = {number % len(logs) for number in plan.lost}
    kept = {o for n, log in enumerate(logs) if n not in lost for o in range(log.base_offset, ends[n])}
    kept |= set(range(in_memory, end))
    lose(testbed, [log for n, log in enumerate(logs) if n in lost])

    needed = max(min(plan.low_watermark, end), min(plan.removed_below, end))
    if plan.retention:  # retention explains missing files at the beginning only
        bases = [log.base_offset for n, log in enumerate(logs) if n not in lost]
        needed = max(needed, min(bases, default=end if plan.sealed else 0))
    gaps = gaps_of(range(needed, end), kept)
    first = gaps[0][0] if gaps else end
    async with await testbed.client() as client:
        failing = await read(client, "fail")
        assert failing.offsets == list(range(needed, first))
        assert failing.missing == (gaps[0] if gaps else None)
        assert failing.skipped == []
        skipping = await read(client, "skip")
        assert skipping.offsets == [o for o in range(needed, end) if o in kept]
        assert skipping.skipped == [(0, *gap) for gap in gaps]
        assert skipping.error is None


def gaps_of(offsets: range, kept: Collection[int]) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    for offset in offsets:
        if offset not in kept:
            begin = gaps.pop()[0] if gaps and gaps[-1][1] == offset else offset
            gaps.append((begin, offset + 1))
    return gaps


async def _with_a_gap(testbed: Testbed) -> tuple[Host, tuple[int, int], list[int]]:
    """Return the broker of a sealed segment without its second file, the gap, and the remaining offsets."""
    host = await testbed.single(FILES)
    await fill(await host.publisher(), 20)
    await host.api.call(SealSegment(NAME, 0))
    await testbed.until(lambda: 1 in host.inspect.view.open_of(NAME))
    logs = testbed.files(FileKind.LOG)
    gap = logs[1].base_offset, logs[2].base_offset
    lose(testbed, [logs[1]])
    return host, gap, [o for o in range(40) if not gap[0] <= o < gap[1]]


async def test_a_member_of_a_group_stops_at_a_gap_and_passes_it_when_it_skips(testbed: Testbed) -> None:
    host, gap, left = await _with_a_gap(testbed)
    async with await testbed.client() as client:
        for _ in range(2):  # acknowledged records stay acknowledged, and the next member stops at the same offset
            failing = await read(client, "fail", group="readers")
            assert failing.missing == gap
        skipping = await read(client, "skip", group="readers")
        assert skipping.skipped == [(0, *gap)]
        assert skipping.offsets == [o for o in left if o >= gap[1]]
        await (await host.publisher(segment=1)).store()
        assert (await read(client, "fail", group="readers")).error is None, "the group is behind the gap"


async def test_a_gap_fails_all_readers_and_is_logged_once(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    _, gap, left = await _with_a_gap(testbed)
    ranges = {0: (Start(StartKind.OFFSET, 1), 39)}
    async with await testbed.client() as client:
        inside = await read(client, "fail", start=gap[0] + 1)
        assert (inside.offsets, inside.missing) == ([], (gap[0] + 1, gap[1]))
        behind = await read(client, "fail", start=gap[1])
        assert (behind.offsets, behind.error) == ([o for o in left if o >= gap[1]], None)
        caplog.clear()
        async with client.read_ranges(NAME, ranges) as reading:
            with pytest.raises(DataLoss, match=rf"\[{gap[0]}, {gap[1]}\)"):
                async for _ in reading.batches():
                    pass
        async with client.read_ranges(NAME, ranges, on_missing="skip") as reading:
            batches = [batch async for batch in reading.batches()]
        assert [o for batch in batches for o in batch.column("_offset").to_pylist()] == left[1:-1]
        for on_missing in ("fail", "fail", "skip"):
            await read(client, on_missing)
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("data loss: ")]
    assert f"test/topic#0: records of offsets [{gap[0]}, {gap[1]}) are missing" in line


async def test_a_segment_whose_records_are_lost_is_not_pruned(testbed: Testbed) -> None:
    """Pruning it would hide the loss from every reader."""
    config = replace(QUICK, segment_retention_s=1.0)
    hosts = await testbed.several(2, config, partitions=1)
    await testbed.publish(frames=5)
    await hosts[0].api.call(SealSegment(NAME, 0))
    await testbed.until(lambda: 1 in hosts[0].inspect.view.open_of(NAME))
    await hosts[0].api.call(RaiseLowWatermark(NAME, {0: 4}))
    await testbed.until(lambda: not testbed.files(FileKind.LOG))
    lose(testbed, testbed.files(FileKind.TABLE))
    await asyncio.sleep(1_000)
    assert 0 in hosts[0].inspect.view.segments_of(NAME)
    async with await testbed.client() as client:
        assert (await read(client, "fail")).missing == (4, 5)
        await hosts[0].api.call(RaiseLowWatermark(NAME, {0: 5}))
        assert (await read(client, "fail")).error is None
    await testbed.until(lambda: 0 not in hosts[0].inspect.view.segments_of(NAME), patience_s=1_000)
