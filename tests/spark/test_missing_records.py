"""Lost records in files, without Spark running: every file reader names the same offsets, and returns all others."""

import asyncio
import re
import tempfile
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seaweedmq.codec.paths import TOPIC_DOCUMENT, document_path
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import DataLoss
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Topic
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.rebuilding import rebuild_topic
from seaweedmq.storage.jobs.verifying import verify_topic
from seaweedmq.storage.plan.scan_ranges import plan_ranges
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.read import reader
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.store.removed import record_removed
from tests.support.scans import scan_of
from tests.support.topic_files import TopicFiles

GAP = re.compile(r"shop/orders#0: records of offsets \[(\d+), (\d+)\) are missing")


class Stretch(NamedTuple):
    """A range of offsets of the segment, and the files that have them."""

    records: int
    files: Literal["log", "table", "both", "neither"]
    is_merged: bool
    """Whether its table also has the whole range before it, as a killed compaction leaves it."""


class Plan(NamedTuple):
    """A sealed segment."""

    stretches: list[Stretch]
    low_watermark: int
    is_rewritten: bool
    """Whether tables that begin below the low watermark were rewritten to begin there."""
    removed_below: int
    retention: bool


FILES = st.sampled_from(["log", "table", "both", "neither"])
STRETCHES = st.builds(Stretch, records=st.integers(1, 25), files=FILES, is_merged=st.booleans())
PLANS = st.builds(
    Plan,
    stretches=st.lists(STRETCHES, min_size=1, max_size=5),
    low_watermark=st.just(0) | st.integers(0, 80),
    is_rewritten=st.booleans(),
    removed_below=st.just(0) | st.integers(0, 80),
    retention=st.booleans(),
)


class Layout(NamedTuple):
    """Return the files of a plan, and the offsets that a reader should get."""

    files: TopicFiles
    topic: Topic
    end: int
    needed: int
    left: list[int]
    gaps: list[tuple[int, int]]


def make_table(files: TopicFiles, start: int, end: int) -> None:
    """Write a table although others have some of its records."""
    others = [files.root / file.path for file in files.files() if file.kind is FileKind.TABLE]
    for other in others:
        other.rename(other.with_name(f".{other.name}"))
    files.table(start, end)
    for other in others:
        other.with_name(f".{other.name}").rename(other)


def lay_out(root: Path, plan: Plan) -> Layout:
    files = TopicFiles(root, partitions=1)
    end = sum(stretch.records for stretch in plan.stretches)
    low, removed = min(plan.low_watermark, end), min(plan.removed_below, end)
    left: set[int] = set()
    base = before = 0
    for stretch in plan.stretches:
        stop = base + stretch.records
        begin = before if stretch.is_merged else base
        if plan.is_rewritten:
            begin = max(begin, low)
        if stretch.files in ("table", "both") and begin < stop:
            make_table(files, begin, stop)
            left |= set(range(begin, stop))
        if stretch.files in ("log", "both"):
            files.log(base, stop)
            left |= set(range(base, stop))
        before, base = base, stop
    files.seal(0, end)
    topic = replace(files.topic, low_watermarks=(low,), retention_s=1e6 if plan.retention else None)
    (root / document_path(topic.name, TOPIC_DOCUMENT)).write_bytes(topic_document(topic))
    record_removed(DirectoryPlace(root), topic.name, topic.uid, {0: removed})
    needed = max(low, removed)
    if plan.retention:  # it explains missing files at the start only
        needed = max(needed, min(left, default=end))
    gaps: list[tuple[int, int]] = []
    for offset in range(needed, end):
        if offset not in left:
            begin = gaps.pop()[0] if gaps and gaps[-1][1] == offset else offset
            gaps.append((begin, offset + 1))
    return Layout(files, topic, end, needed, [o for o in range(needed, end) if o in left], gaps)


@settings(max_examples=40, deadline=None)
@given(plan=PLANS)
@example(plan=Plan([Stretch(20, "table", False), Stretch(20, "neither", False)], 10, True, 0, False))
@example(
    plan=Plan([Stretch(20, "log", False), Stretch(5, "neither", False), Stretch(9, "log", False)], 0, False, 0, True)
)
def test_every_reader_of_files_names_the_same_lost_records_and_gives_all_others(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = lay_out(Path(folder), plan)
        spark_reads(layout)
        found = [
            GAP.match(difference.what)
            for difference in verify_topic(DirectoryPlace(layout.files.root), layout.topic.name).differences
        ]
        assert [(int(gap[1]), int(gap[2])) for gap in found if gap] == layout.gaps
        assert all(found), "there is no other damage"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "RELIST_DELAY_S", 0.0)
            asyncio.run(brokers_read(layout))
        rebuild_topic(DirectoryPlace(layout.files.root), layout.topic.name)
        spark_reads(layout)


def spark_reads(layout: Layout) -> None:
    root, topic = layout.files.root, layout.topic
    snapshot = read_snapshot(DirectoryPlace(root), topic.name)
    scan = scan_of(root, topic, ["offset"])

    def offsets(*, fail: bool) -> list[int]:
        pieces = plan_ranges(snapshot, ReadWindow(), fail_on_data_loss=fail)
        scanned = replace(scan, fail_on_data_loss=fail).read(pieces)
        return [offset for batch in scanned for offset in batch.column(0).to_pylist()]

    assert offsets(fail=False) == layout.left
    if layout.gaps:
        with pytest.raises(DataLoss) as caught:
            offsets(fail=True)
        assert (caught.value.start_offset, caught.value.end_offset) in layout.gaps
    else:
        assert offsets(fail=True) == layout.left


async def brokers_read(layout: Layout) -> None:
    store = FileSegmentStore(layout.files.root)
    segment = layout.files.segments[0]
    position = await earliest_offset(store, layout.topic, segment)
    assert position == layout.needed
    got: list[int] = []
    gaps: list[tuple[int, int]] = []
    while position < layout.end:
        reading = reader.read_segment(store, layout.topic, 0, position, layout.end, chunk_bytes=1_000)
        try:
            async with aclosing(reading) as chunks:
                async for chunk in chunks:
                    got += range(position, chunk.end_offset)
                    position = chunk.end_offset
        except DataLoss as loss:
            gaps.append((loss.start_offset or 0, loss.end_offset or 0))
            position = gaps[-1][1]
    assert (got, gaps) == (layout.left, layout.gaps)
    await store.close()
