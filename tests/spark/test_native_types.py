"""Spark's own Parquet reader and the data source return equal values of every type that a topic may have."""

import logging
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import seaweedmq.spark
from seaweedmq.spark.native_types import foreign_part
from tests.support.typed_rows import TypedFiles, drawn

pytestmark = pytest.mark.integration

FLAT = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.decimal32(7, 2), pa.decimal64(16, 3), pa.decimal128(9, 9), pa.decimal128(38, 10)),
    *(pa.decimal256(38, 0), pa.date32(), pa.duration("us"), pa.binary(), pa.large_binary(), pa.binary(5), pa.string()),
    *(pa.large_string(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("s", "UTC")),
    *(pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "America/New_York"), pa.timestamp("us", "+05:30")),
]
NESTED = [
    *(make(kind) for make in (pa.list_, pa.large_list) for kind in FLAT if not pa.types.is_decimal256(kind)),
    pa.list_(pa.int32(), 2),
    pa.struct([(f"f{i}", kind) for i, kind in enumerate(FLAT)]),
    pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.uint16()), ("at", pa.timestamp("s"))]))),
    pa.map_(pa.uint32(), pa.uint64()),
    pa.list_(pa.list_(pa.map_(pa.int8(), pa.decimal128(20, 5)))),
]
FOREIGN = [pa.float16(), pa.timestamp("ns"), pa.duration("s"), pa.duration("ns"), pa.list_(pa.timestamp("ns", "UTC"))]
COUNT = 120


def topic_of(root: Path, kinds: list[pa.DataType], seed: int) -> TypedFiles:
    """Rows of a table and of a log after it."""
    rng = random.Random(seed)
    content = pa.table({f"c{i}": drawn(kind, COUNT, rng) for i, kind in enumerate(kinds)})
    files = TypedFiles(root, schema=content.schema, content=content)
    files.table(0, COUNT - 20)
    files.log(COUNT - 20, COUNT)
    return files


def as_text(frame: DataFrame) -> list[str]:
    """Return full values by row: Python has no year 0, and no nan that is equal to another."""
    row = F.to_json(F.struct(*(F.col(f"`{name}`") for name in frame.columns)), {"ignoreNullFields": "false"})
    return [line for (line,) in frame.orderBy("offset").select(row).collect()]


@pytest.mark.parametrize(("kinds", "seed"), [(FLAT, 1), (NESTED, 2)], ids=["flat", "nested"])
def test_every_type_that_is_read_natively_is_read_as_the_source_does(
    spark: SparkSession, tmp_path: Path, kinds: list[pa.DataType], seed: int
) -> None:
    assert [foreign_part(kind) for kind in kinds] == [None] * len(kinds)
    files = topic_of(tmp_path, kinds, seed)
    native = seaweedmq.spark.read(spark, storage=tmp_path, topic=str(files.name))
    source = spark.read.format("seaweedmq").options(storage=str(tmp_path), topic=str(files.name)).load()
    assert (native.dtypes, as_text(native)) == (source.dtypes, as_text(source))


def test_types_that_spark_reads_otherwise_are_left_to_the_source_and_the_log_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = topic_of(tmp_path, FOREIGN, 3)
    caplog.set_level(logging.INFO, "seaweedmq.spark")
    frame = seaweedmq.spark.read(spark, storage=tmp_path, topic=str(files.name))
    assert frame.count() == COUNT
    assert "topic shop/orders is read by the Python source: Spark reads halffloat of column 'c0' differ" in caplog.text
    caplog.clear()
    assert seaweedmq.spark.read(spark, storage=tmp_path, topic=str(files.name), columns="offset").count() == COUNT
    assert not caplog.text
