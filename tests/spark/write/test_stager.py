"""Staging by tasks of the sink, and the rows that they reject before anything is published."""

from pathlib import Path

import pyarrow as pa
import pytest

from seaweedmq.aio import system_environment
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.write.sink_columns import plan_columns
from seaweedmq.spark.write.stager import Stager
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.staging import StagedBatch

RING = KeyRange(0, 1 << 16)
HALVES = (KeyRange(0, 1 << 15), KeyRange(1 << 15, 1 << 16))
KIB = 1024
TOPIC = TopicName("shop", "orders")


def staged(root: Path, batches: list[pa.RecordBatch], frame_bytes_max: int) -> int:
    """Stage the rows as one task; return how many."""
    batch = StagedBatch(DirectoryPlace(root), TOPIC, "w-1", 0)
    (root / "topics/shop/orders").mkdir(parents=True, exist_ok=True)
    columns = plan_columns(batches[0].schema, None, None, None)
    with batch.staging("0") as file:
        Stager(file, columns, RING, HALVES, frame_bytes_max, system_environment()).write(batches)
        return file.finish().record_count


def rows(*lengths: int) -> pa.RecordBatch:
    values = pa.array([b"x" * length for length in lengths], pa.binary())
    keys = pa.array([b"%d" % at for at in range(len(lengths))], pa.binary())
    return pa.record_batch({"key": keys, "value": values})


def test_a_row_that_is_larger_than_brokers_take_is_rejected_by_the_task(tmp_path: Path) -> None:
    """Later only the broker could reject it: a streaming query would repeat its batch without end."""
    with pytest.raises(InvalidArgument, match=r"^row 4: a record .* over the limit of 65536 bytes: split it, or raise"):
        staged(tmp_path, [rows(1, 60 * KIB, 1), rows(1, 70 * KIB, 1)], 64 * KIB)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_rows_of_any_size_that_brokers_take_are_staged(tmp_path: Path) -> None:
    larger = 20 << 20  # than the default limit of brokers
    assert staged(tmp_path, [rows(1, 60 * KIB, 1), rows(60 * KIB, 60 * KIB)], 64 * KIB) == 5
    assert staged(tmp_path, [rows(larger, 1, larger)], larger + KIB) == 3
