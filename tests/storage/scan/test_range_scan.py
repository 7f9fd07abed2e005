"""Reading the scan ranges of a snapshot."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seaweedmq.core.files.snapshot import plan_snapshot
from seaweedmq.errors import Corrupt
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.plan.scan_ranges import ScanRange, plan_ranges
from seaweedmq.storage.plan.topic_source import BrokerOffsets
from seaweedmq.storage.plan.window import Interval, ReadWindow
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.footer import seal_footer
from tests.support.scans import scan_of
from tests.support.segments import NAME, make_frame, make_segment, make_topic, write_log
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles


async def test_a_segment_ends_where_power_loss_tore_it_before_brokers_seal_it_there(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path)
    await write_log(store, 0, [make_frame(0, 8), make_frame(8, 2)[:-40]], flushed=0)
    await write_log(store, 10, [make_frame(10, 5)], flushed=8)
    topic = make_topic()
    scan = scan_of(tmp_path, topic)

    async def offsets(end: int | None = None) -> list[int]:
        pieces = plan_snapshot(make_topic(), make_segment(end), await store.list_files(NAME, 0))
        return [row["offset"] for batch in scan.read(pieces) for row in batch.to_pylist()]

    assert await offsets() == list(range(8))
    assert await offsets(end=8) == list(range(8))
    await write_log(store, 8, [make_frame(8, 2)], writer="b-2")
    assert await offsets() == list(range(15))
    await store.close()


@pytest.mark.parametrize("again", [0, 1])
async def test_what_a_log_holds_beyond_the_next_begin_is_read_once_it_is_sealed(tmp_path: Path, again: int) -> None:
    """An fsync failed; its records are rewritten to a file that begins there, and the broker dies meanwhile."""
    store = FileSegmentStore(tmp_path)
    await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10), make_frame(20, 10)])
    await write_log(store, 10, [make_frame(10, 10)] * again, writer="b-1")
    topic = make_topic()
    scan = scan_of(tmp_path, topic)
    pieces = plan_snapshot(make_topic(), make_segment(30), await store.list_files(NAME, 0))
    read = [row["offset"] for batch in scan.read(pieces) for row in batch.to_pylist()]
    assert read == list(range(30))
    await store.close()


def test_a_table_with_other_columns_than_the_topic_is_refused_as_brokers_refuse_it(orders: TopicFiles) -> None:
    table = orders.table(0, 10)
    path = orders.root / table.path
    with path.open("w+b") as sink:
        pq.write_table(
            pa.table({"_timestamp": pa.array(range(10), pa.timestamp("us", tz="UTC")), "n": range(10)}), sink
        )
        seal_footer(sink)
    scan = scan_of(orders.root, orders.topic, ["offset"])
    pieces = plan_snapshot(make_topic(), make_segment(), orders.files())
    with pytest.raises(Corrupt, match=rf"{table.path} does not have the columns of topic shop/orders"):
        list(scan.read(pieces))


def test_a_log_that_became_a_table_since_the_listing_is_read_as_that(orders: TopicFiles) -> None:
    log = orders.log(0, 10)
    listed = orders.files()
    orders.convert()
    log.unlink()
    scan = scan_of(orders.root, orders.topic, ["offset"])
    (batch,) = scan.read(plan_snapshot(make_topic(), make_segment(), listed))
    assert batch.column(0).to_pylist() == list(range(10))


def test_where_files_end_the_brokers_go_on(orders: TopicFiles) -> None:
    orders.table(0, 10)
    log = orders.log(10, 20)
    asked = []

    def brokers(segment: int, start: int | None, end: int) -> Iterator[pa.RecordBatch]:
        """Return the records as subscribers see them."""
        asked.append((segment, start, end))
        assert start is not None
        rows = orders.rows(segment, start, end)
        count = pa.array(range(start, end), pa.int64())
        yield pa.RecordBatch.from_arrays([count, *rows.columns], names=["_offset", *rows.schema.names])

    timestamps = Interval(NOON_US + 5 * STEP_US, NOON_US + 28 * STEP_US)
    scan = replace(scan_of(orders.root, orders.topic, ["value", "offset"], timestamps), brokers=brokers)

    def offsets(pieces: list[ScanRange]) -> list[int]:
        rows = [row for batch in scan.read(pieces) for row in batch.to_pylist()]
        assert all(row["value"] == b"s0v%d" % row["offset"] for row in rows)
        return [row["offset"] for row in rows]

    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    planned = plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={}, ends={0: 30}))
    assert (offsets(planned), asked) == (list(range(5, 28)), [(0, 20, 30)])
    orders.convert(only=10)
    log.unlink()
    assert (offsets(planned), asked) == (list(range(5, 28)), [(0, 20, 30)] * 2)
    (everything,) = plan_ranges(
        replace(snapshot, files=()), ReadWindow(), BrokerOffsets(begins={0: 3}, ends={0: 30}, is_all=True)
    )
    assert (everything.start_offset, everything.end_offset) == (3, 30)
