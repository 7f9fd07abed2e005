"""Records by reference in Spark: the column ``reference``, and ``fetch``, which adds the payloads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from seaweedmq.codec.references import column_of
from seaweedmq.errors import InvalidArgument, PayloadLost
from seaweedmq.spark import payloads
from seaweedmq.spark.spark_errors import SPARK_ERRORS, explain
from seaweedmq.storage.directory_place import DirectoryPlace
from tests.support.referenced_files import ReferencedFiles, payload_of
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

REFERRING = (15, 17, 42)


@pytest.fixture
def films(tmp_path: Path) -> ReferencedFiles:
    """Return a topic with a table without references, one with some, and a log with one."""
    files = ReferencedFiles(tmp_path, referring=REFERRING)
    files.table(0, 10)
    files.table(10, 40)
    files.log(40, 50)
    return files


def read(spark: SparkSession, files: TopicFiles, **options: Any) -> DataFrame:
    return seaweedmq.spark.read(spark, storage=files.root, topic=str(files.name), **options)


def by_source(spark: SparkSession, files: TopicFiles, **options: Any) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("seaweedmq").options(storage=str(files.root), topic=str(files.name), **given).load()


def values(frame: DataFrame) -> dict[int, bytes | None]:
    return {row.offset: None if row.value is None else bytes(row.value) for row in frame.collect()}


EXPECTED = {n: payload_of(n) if n in REFERRING else b"s0v%d" % n for n in range(50)}


@pytest.mark.parametrize("reader", [read, by_source])
def test_references_are_a_column_on_request(spark: SparkSession, films: ReferencedFiles, reader: Any) -> None:
    assert "reference" not in reader(spark, films).columns
    frame = reader(spark, films, includeReferences=True)
    found = {row.offset: row for row in frame.where("reference is not null").collect()}
    assert sorted(found) == list(REFERRING)
    reference = films.reference(17)
    row = found[17].reference
    assert (row.uri, row.size, row.content_type) == (reference.uri, reference.size_bytes, reference.content_type)
    assert (bytes(row.sha256), row.part_bytes, found[17].value) == (reference.sha256, 0, None)
    assert frame.count() == 50
    chosen = reader(spark, films, includeReferences=True, columns="offset,reference")
    assert chosen.columns == ["offset", "reference"]


@pytest.mark.parametrize("reader", [read, by_source])
def test_fetch_adds_the_payloads(spark: SparkSession, films: ReferencedFiles, reader: Any) -> None:
    frame = reader(spark, films, includeReferences=True)
    fetched = seaweedmq.spark.fetch(frame)
    assert fetched.columns == frame.columns
    assert values(fetched) == EXPECTED
    selected = seaweedmq.spark.fetch(frame.where("offset = 17").select("reference", "offset"))
    assert selected.columns == ["reference", "offset", "value"]
    assert values(selected) == {17: payload_of(17)}


def test_the_source_and_the_native_read_agree(spark: SparkSession, films: ReferencedFiles) -> None:
    native, source = (r(spark, films, includeReferences=True) for r in (read, by_source))
    assert native.dtypes == source.dtypes
    rows = [[repr(row) for row in frame.orderBy("offset").collect()] for frame in (native, source)]
    assert rows[0] == rows[1]


def test_a_topic_of_tables_alone_is_fetched_without_the_python_source(spark: SparkSession, tmp_path: Path) -> None:
    files = ReferencedFiles(tmp_path, referring=REFERRING)
    files.table(0, 10)
    files.table(10, 50)
    files.log(50, 50)
    assert values(seaweedmq.spark.fetch(read(spark, files, includeReferences=True)))[42] == payload_of(42)


def test_an_empty_topic_is_fetched(spark: SparkSession, tmp_path: Path) -> None:
    files = ReferencedFiles(tmp_path)
    assert values(seaweedmq.spark.fetch(read(spark, files, includeReferences=True))) == {}


def test_arrays_of_payloads_are_bounded(films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "BATCH_BYTES", 2 * len(payload_of(15)))
    references = [films.reference(n) if n in REFERRING else None for n in range(50)]
    arrays = list(
        payloads.fetched(
            DirectoryPlace(films.root),
            films.name,
            films.uid,
            iter([column_of(references[:20]), column_of(references[20:])]),
        )
    )
    assert [sum(len(v) for v in array.to_pylist() if v) for array in arrays] == [
        2 * len(payload_of(15)),
        len(payload_of(42)),
    ]
    found = [value for array in arrays for value in array.to_pylist()]
    assert found == [payload_of(n) if n in REFERRING else None for n in range(50)]
    monkeypatch.setattr(payloads, "BATCH_BYTES", 1)
    arrays = list(payloads.fetched(DirectoryPlace(films.root), films.name, films.uid, iter([column_of(references)])))
    assert max(sum(len(v) for v in array.to_pylist() if v) for array in arrays) == len(payload_of(42))
    assert [value for array in arrays for value in array.to_pylist()] == found


def test_a_payload_above_what_spark_holds_is_one_error(films: ReferencedFiles) -> None:
    huge = replace(films.reference(15), size_bytes=3 * 2**30)
    with pytest.raises(InvalidArgument, match=r"Spark holds at most 2147483647 in a value: leave its record out"):
        list(payloads.fetched(DirectoryPlace(films.root), films.name, films.uid, iter([column_of([huge])])))


def test_a_lost_payload_fails_the_query(spark: SparkSession, films: ReferencedFiles) -> None:
    (films.root / films.reference(42).uri).write_bytes(b"?" + payload_of(42)[1:])
    frame = read(spark, films, includeReferences=True)
    with pytest.raises(SPARK_ERRORS) as caught:
        seaweedmq.spark.fetch(frame).collect()
    assert isinstance(explain(caught.value), PayloadLost)


def test_a_stream_is_fetched(spark: SparkSession, films: ReferencedFiles, tmp_path: Path) -> None:
    films.convert()
    options = {"storage": str(films.root), "topic": str(films.name), "startingOffsets": "earliest"}
    stream = spark.readStream.format("seaweedmq").options(**options, includeReferences="true").load()
    query = seaweedmq.spark.fetch(stream).writeStream.format("memory").queryName("films")
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination(120)
    assert values(spark.table("films")) == EXPECTED


def test_fetch_rejects_frames_without_the_column(spark: SparkSession, films: ReferencedFiles) -> None:
    with pytest.raises(InvalidArgument, match=r"has no column 'reference' of a topic: .*includeReferences=true"):
        seaweedmq.spark.fetch(read(spark, films))
    with pytest.raises(InvalidArgument, match="has no column 'reference' of a topic"):
        seaweedmq.spark.fetch(spark.range(1).selectExpr("named_struct('uri', 'x') as reference"))


def test_a_topic_with_a_schema_has_no_references(spark: SparkSession, tmp_path: Path) -> None:
    files = TopicFiles(tmp_path, schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(Exception, match="has a schema, and payloads by reference are in plain topics"):
        read(spark, files, includeReferences=True)
