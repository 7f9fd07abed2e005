"""Options and planning, without Spark running."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.filters import narrowed
from seaweedmq.spark.options import ColumnOptions, parse_options
from seaweedmq.spark.topic_access import chosen_columns
from seaweedmq.storage.plan.partitions import plan_partitions, slices
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import Interval, ReadWindow
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.row_groups import RowGroup
from tests.support.segments import make_topic
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles

NAMES = {"offset": "offset", "timestamp": "timestamp", "segment": "segment"}
REQUIRED = {"storage": "/data", "topic": "shop/orders"}


def piece_of(groups: list[RowGroup]) -> SnapshotPiece:
    base, end = groups[0].base_offset, groups[-1].end_offset
    file = SegmentFile(
        topic=TopicName("shop", "orders"),
        segment=0,
        kind=FileKind.TABLE,
        base_offset=base,
        end_offset=end,
        writer="",
        size_bytes=sum(g.size_bytes for g in groups),
        path="x",
        modified_us=0,
    )
    return SnapshotPiece(segment=0, start_offset=base, end_offset=end, files=(file,), complete=True)


def groups_of(sizes: list[int], rows: int = 100) -> list[RowGroup]:
    return [RowGroup(i, i * rows, (i + 1) * rows, size, (i * 10, i * 10 + 9)) for i, size in enumerate(sizes)]


def test_defaults_ask_for_everything() -> None:
    options = parse_options(REQUIRED)
    assert options.topic == TopicName("shop", "orders")
    assert (options.window, options.shown.columns) == (ReadWindow(), None)


def test_a_timestamp_is_iso_or_microseconds() -> None:
    def start(text: str) -> int | None:
        return parse_options({**REQUIRED, "STARTINGTIMESTAMP": text}).window.timestamps.lo

    assert start("2020-09-13T12:26:40Z") == start("2020-09-13T14:26:40+02:00") == NOON_US
    assert start(str(NOON_US)) == start("2020-09-13 12:26:40") == NOON_US
    assert start("20200913") == int(datetime(2020, 9, 13, tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize("text", ["", "{", "[1]", "1.5", "-1", '{"a": 1}', '{"0": -1}', '{"0": true}', "9" * 30])
def test_offsets_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="startingOffsets"):
        parse_options({**REQUIRED, "startingOffsets": text})


def test_columns_are_named_once() -> None:
    with pytest.raises(InvalidArgument, match="names key twice"):
        parse_options({**REQUIRED, "columns": "key,offset,key"})


@pytest.mark.parametrize("kind", [pa.decimal256(60, 2), pa.time32("s"), pa.list_(pa.struct([("t", pa.time32("ms"))]))])
def test_a_column_that_spark_lacks_a_type_for_is_named_and_may_be_left_out(kind: pa.DataType) -> None:
    topic = make_topic(schema_to_bytes(pa.schema([("id", pa.int64()), ("odd", kind)])))
    with pytest.raises(Unsupported, match=r"column 'odd' has type .*, which Spark lacks: leave it out with option"):
        chosen_columns(topic, ColumnOptions(columns=None, include_headers=True))
    some = chosen_columns(topic, ColumnOptions(columns=("offset", "id"), include_headers=True))
    assert [column.name for column in some] == ["offset", "id"]


def test_filters_narrow_the_window_and_others_change_nothing() -> None:
    noon = datetime.fromtimestamp(NOON_US // 1_000_000, UTC)
    window = narrowed(
        ReadWindow(),
        [
            GreaterThan(("offset",), 9),
            LessThanOrEqual(("offset",), 20),
            In(("segment",), (3, 5)),
            GreaterThanOrEqual(("timestamp",), noon),
            LessThan(("timestamp",), noon.replace(tzinfo=None)),
            IsNotNull(("offset",)),
            EqualTo(("headers", "offset"), 1),
            EqualTo(("key",), b"x"),
        ],
        NAMES,
    )
    assert (window.offsets, window.segments, window.timestamps) == (
        Interval(10, 21),
        Interval(3, 6),
        Interval(NOON_US, None),
    )


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    target=st.integers(1, 200),
    lo=st.integers(-5, 420),
    width=st.integers(1, 420),
)
def test_slices_hold_every_group_in_time_once(sizes: list[int], target: int, lo: int, width: int) -> None:
    groups = groups_of(sizes)
    interval = Interval(lo, lo + width)
    kept = [g for g in groups if g.timestamps is not None and interval.overlaps(*g.timestamps)]
    found = slices(piece_of(groups), groups, interval, target)
    held = [offset for s in found for offset in range(s.start_offset, s.end_offset or 0)]
    assert held == [offset for g in kept for offset in range(g.base_offset, g.end_offset)]
    if kept == groups:
        assert len(found) <= max(1, round(sum(sizes) / target))


def test_a_large_table_is_cut_evenly() -> None:
    groups = groups_of([16] * 10)
    assert [(s.start_offset, s.end_offset) for s in slices(piece_of(groups), groups, Interval(), 80)] == [
        (0, 500),
        (500, 1_000),
    ]


def test_offsets_decide_without_opening_a_file(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    for start in range(0, 100, 20):
        orders.table(start, start + 20)
    for file in orders.files():
        (tmp_path / file.path).write_bytes(b"not Parquet at all")
    source = TopicSource(root=tmp_path, snapshot=read_snapshot(tmp_path, orders.name))
    window = parse_options({**REQUIRED, "startingOffsets": "30", "endingOffsets": "41"}).window
    (partition,) = plan_partitions(source, window)
    assert [(p.start_offset, p.end_offset) for p in partition] == [(30, 40), (40, 41)]
    with pytest.raises(Corrupt, match="is damaged: its footer"):
        plan_partitions(source, ReadWindow(timestamps=Interval(NOON_US, None)))


def test_tables_out_of_time_are_left_out_by_their_statistics(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    for start in range(0, 100, 20):
        orders.table(start, start + 20)
    window = ReadWindow(timestamps=Interval(NOON_US + 45 * STEP_US, NOON_US + 61 * STEP_US))
    source = TopicSource(root=tmp_path, snapshot=read_snapshot(tmp_path, orders.name))
    (partition,) = plan_partitions(source, window)
    assert [(p.start_offset, p.end_offset) for p in partition] == [(40, 60), (60, 80)]
