"""Every reader finds the same in a topic's files: counts, sums, and a checksum over the sorted rows."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from seaweedmq.codec.paths import table_dir
from tests.support.typed_rows import TypedFiles, drawn

pytestmark = pytest.mark.integration

KINDS = {"number": pa.int32(), "ratio": pa.decimal128(18, 4), "text": pa.string(), "raw": pa.binary()}
COUNT = 3_000
SEGMENTS = 2
COLUMNS = ("_segment", "_offset", "_key", *KINDS)


@pytest.fixture
def files(tmp_path: Path) -> TypedFiles:
    """Two segments, all in tables, one of which was made of many row groups."""
    rng = random.Random(7)
    content = pa.table({name: drawn(kind, COUNT, rng) for name, kind in KINDS.items()})
    made = TypedFiles(tmp_path, schema=content.schema, content=content)
    made.open_segments(SEGMENTS)
    for segment in range(SEGMENTS):
        made.table(0, 1_000, segment=segment, row_group_bytes=4_000)
        made.table(1_000, COUNT, segment=segment)
    made.keep_tables()
    return made


def summary(rows: pa.Table) -> tuple[int, int, str]:
    """Count, sum of the numbers, and a checksum over all values of the rows, sorted by segment and offset."""
    rows = rows.select(COLUMNS).sort_by([("_segment", "ascending"), ("_offset", "ascending")])
    checksum = hashlib.sha256()
    for row in rows.to_pylist():
        checksum.update(repr(tuple(row.values())).encode())
    return rows.num_rows, pc.sum(pc.cast(rows["number"], pa.int64())).as_py(), checksum.hexdigest()


def from_spark(frame: DataFrame) -> pa.Table:
    renamed = frame.withColumnsRenamed({"segment": "_segment", "offset": "_offset", "key": "_key"})
    rows = [
        tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in renamed.select(*COLUMNS).collect()
    ]
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])


def by_native(spark: SparkSession, files: TypedFiles) -> pa.Table:
    return from_spark(seaweedmq.spark.read(spark, storage=files.root, topic=str(files.name)))


def by_source(spark: SparkSession, files: TypedFiles) -> pa.Table:
    reader = spark.read.format("seaweedmq").options(storage=str(files.root), topic=str(files.name))
    return from_spark(reader.load())


def by_pyarrow(_: SparkSession, files: TypedFiles) -> pa.Table:
    return ds.dataset(files.root / table_dir(files.name)).to_table()


def by_polars(_: SparkSession, files: TypedFiles) -> pa.Table:
    return pl.scan_parquet(files.root / table_dir(files.name) / "*.parquet").select(COLUMNS).collect().to_arrow()


def by_duckdb(_: SparkSession, files: TypedFiles) -> pa.Table:
    glob = files.root / table_dir(files.name) / "*.parquet"
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT * FROM read_parquet('{glob}')").to_arrow_table()


READERS: dict[str, Callable[[SparkSession, TypedFiles], pa.Table]] = {
    "spark native": by_native,
    "spark source": by_source,
    "pyarrow": by_pyarrow,
    "polars": by_polars,
    "duckdb": by_duckdb,
}
OF_PLAIN_GLOBS = ("pyarrow", "polars", "duckdb")


def test_all_readers_agree(spark: SparkSession, files: TypedFiles) -> None:
    found = {name: summary(read(spark, files)) for name, read in READERS.items()}
    numbers = [n for n in files.content["number"].to_pylist() if n is not None]
    assert found["pyarrow"][:2] == (SEGMENTS * COUNT, SEGMENTS * sum(numbers))
    assert found == dict.fromkeys(READERS, found["pyarrow"])


def test_in_the_middle_of_a_compaction_all_but_plain_globs_agree(spark: SparkSession, files: TypedFiles) -> None:
    before = summary(by_pyarrow(spark, files))
    # The table of both is published, and what it replaces is still there.
    aside = {path: path.read_bytes() for path in (files.root / table_dir(files.name)).glob("00000001-*.parquet")}
    for path in aside:
        path.unlink()
    files.table(0, COUNT, segment=1)
    for path, content in aside.items():
        path.write_bytes(content)
    readers = {name: read for name, read in READERS.items() if name not in OF_PLAIN_GLOBS}
    assert {name: summary(read(spark, files)) for name, read in readers.items()} == dict.fromkeys(readers, before)
    assert summary(by_pyarrow(spark, files))[0] == (SEGMENTS + 1) * COUNT
