"""Tests of differences between Spark and SeaweedMQ, and of required packages, without a running Spark."""

import importlib
import importlib.metadata
from pathlib import Path

import pyarrow as pa
import pytest

import seaweedmq.spark
from seaweedmq.errors import Unsupported
from seaweedmq.spark.native import why_not_native
from seaweedmq.spark.native_types import foreign_part
from seaweedmq.spark.options import parse_options
from seaweedmq.spark.requirements import check_java, check_pyspark
from seaweedmq.spark.topic_access import chosen_columns
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.snapshot import read_snapshot
from tests.support.topic_files import TopicFiles


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(),
        pa.time64("us"),
        pa.timestamp("ns", "UTC"),
        pa.duration("ms"),
        pa.list_(pa.struct([("t", pa.map_(pa.string(), pa.duration("s")))])),
        pa.struct([("a", pa.int8()), ("A", pa.int8())]),
    ],
)
def test_a_topic_of_types_that_spark_reads_otherwise_is_left_to_the_source(tmp_path: Path, kind: pa.DataType) -> None:
    assert foreign_part(kind) is not None
    files = TopicFiles(tmp_path, schema=pa.schema([("id", pa.int64()), ("odd", kind)]))
    options = parse_options({"storage": str(tmp_path), "topic": "shop/orders"})
    snapshot = read_snapshot(DirectoryPlace(files.root), files.name)
    why = why_not_native(options, chosen_columns(snapshot.topic, options.shown))
    assert why is not None
    assert "of column 'odd' differently, or not at all" in why
    some = parse_options({"storage": str(tmp_path), "topic": "shop/orders", "columns": "offset,id"})
    assert why_not_native(some, chosen_columns(snapshot.topic, some.shown)) is None


# --- what has to be installed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("4.0.2", "PySpark 4.1 or newer, 4.0.2 is installed: pip install"),
        ("3.5.1", "3.5.1 is installed"),
        (None, "not"),
    ],
)
def test_an_old_pyspark_is_told_at_the_import(monkeypatch: pytest.MonkeyPatch, version: str | None, told: str) -> None:
    def installed(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", installed)
    with pytest.raises(Unsupported, match=told):
        check_pyspark()
    with pytest.raises(Unsupported, match=r"pip install 'seaweedmq\[spark\]'"):
        importlib.reload(seaweedmq.spark)


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "5.0.0.dev1"])
def test_a_newer_pyspark_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    check_pyspark()


def test_missing_java_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="Spark needs Java 17 or newer, and PATH has no java: install it"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(Unsupported, match=r"JAVA_HOME is .*gone: install it"):
        check_java()
