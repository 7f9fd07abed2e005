"""Every reader finds the same in a topic's files: counts, sums, and a checksum over the sorted rows."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from seaweedmq.codec.paths import table_dir
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables import compact
from seaweedmq.storage.tables.delta.updater import DeltaLogs
from tests.support import open_tables
from tests.support.typed_rows import TypedFiles, drawn

pytestmark = pytest.mark.integration

KINDS = {"number": pa.int32(), "ratio": pa.decimal128(18, 4), "text": pa.string(), "raw": pa.binary()}
COUNT = 3_000
SEGMENTS = 2
COLUMNS = ("_segment", "_offset", "_key", *KINDS)
Reader: TypeAlias = Callable[[SparkSession, TypedFiles], pa.Table]


@pytest.fixture
def files(tmp_path: Path) -> TypedFiles:
    """Two segments, all in tables, one of which has many row groups."""
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
    """Return the count, the sum of the numbers, and a checksum over all values, sorted by segment and offset."""
    lines = sorted((tuple(row.values()) for row in rows.select(COLUMNS).to_pylist()), key=lambda line: line[:2])
    checksum = hashlib.sha256(repr(lines).encode()).hexdigest()
    return len(lines), pc.sum(pc.cast(rows["number"], pa.int64())).as_py(), checksum


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


def by_log(reader: Callable[..., pa.Table]) -> Reader:
    """Readers that learn the live tables from the Delta log."""
    return lambda _, files: reader(files.root / table_dir(files.name), columns=COLUMNS)


def glob_pyarrow(_: SparkSession, files: TypedFiles) -> pa.Table:
    return ds.dataset(files.root / table_dir(files.name)).to_table()


def glob_polars(_: SparkSession, files: TypedFiles) -> pa.Table:
    return pl.scan_parquet(files.root / table_dir(files.name) / "*.parquet").select(COLUMNS).collect().to_arrow()


def glob_duckdb(_: SparkSession, files: TypedFiles) -> pa.Table:
    glob = files.root / table_dir(files.name) / "*.parquet"
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT * FROM read_parquet('{glob}')").to_arrow_table()


OF_LOG: dict[str, Reader] = {
    "delta-rs": by_log(open_tables.by_delta_rs),
    "pyarrow": by_log(open_tables.by_pyarrow),
    "polars": by_log(open_tables.by_polars),
    "duckdb": by_log(open_tables.by_duckdb),
}
SIX: dict[str, Reader] = {"spark native": by_native, "spark source": by_source, **OF_LOG}
OF_PLAIN_GLOBS: dict[str, Reader] = {
    "glob of pyarrow": glob_pyarrow,
    "glob of polars": glob_polars,
    "glob of duckdb": glob_duckdb,
}
"""Readers that see files but not which are live: during a merge they briefly see its rows twice (README)."""


def found_by(readers: dict[str, Reader], spark: SparkSession, files: TypedFiles) -> dict[str, tuple[int, int, str]]:
    return {name: summary(read(spark, files)) for name, read in readers.items()}


class KilledError(BaseException):
    """An exception that the process does not catch."""


def killed(*_: object) -> None:
    raise KilledError


def test_six_readers_agree_before_in_the_middle_of_and_after_a_compaction(
    spark: SparkSession, files: TypedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = DeltaLogs()
    logs.reconcile(DirectoryPlace(files.root), files.topic)
    numbers = [n for n in files.content["number"].to_pylist() if n is not None]
    whole = summary(glob_pyarrow(spark, files))
    assert whole[:2] == (SEGMENTS * COUNT, SEGMENTS * sum(numbers))
    everybody = SIX | OF_PLAIN_GLOBS
    assert found_by(everybody, spark, files) == dict.fromkeys(everybody, whole)

    with monkeypatch.context() as patch:
        # The merged table is published, and the names that it replaces still exist.
        patch.setattr(compact, "_unlink", killed)
        with pytest.raises(KilledError):
            compact.compact_tables(DirectoryPlace(files.root), files.topic, files.files(1))
    assert sorted((f.base_offset, f.end_offset) for f in files.files(1)) == [(0, 1_000), (0, COUNT), (1_000, COUNT)]
    assert found_by(SIX, spark, files) == dict.fromkeys(SIX, whole)
    assert {found[0] for found in found_by(OF_PLAIN_GLOBS, spark, files).values()} == {(SEGMENTS + 1) * COUNT}
    assert logs.reconcile(DirectoryPlace(files.root), files.topic) == 1  # the log lists the merged table now
    assert found_by(OF_LOG, spark, files) == dict.fromkeys(OF_LOG, whole)

    removed, problems = compact.remove_superseded(DirectoryPlace(files.root), files.topic, 1)
    assert (len(removed), problems) == (2, [])
    assert logs.reconcile(DirectoryPlace(files.root), files.topic) is None
    assert found_by(everybody, spark, files) == dict.fromkeys(everybody, whole)
