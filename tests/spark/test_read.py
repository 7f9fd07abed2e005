"""``spark.read.format("seaweedmq")`` for its users, on real Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seaweedmq.codec.paths import topic_dir
from tests.support.kafka_batches import ZSTD, Record, batch_of, frame_bytes
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles

pytestmark = pytest.mark.integration


def read(spark: SparkSession, files: TopicFiles, **options: object) -> DataFrame:
    reader = spark.read.format("seaweedmq").option("storage", str(files.root)).option("topic", str(files.name))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_tables_and_logs_are_one_table_with_every_record_once(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 40, keep_log=True)
    orders.table(40, 60)
    orders.log(60, 75)

    rows = read(spark, orders).orderBy("offset").collect()

    assert [row.offset for row in rows] == list(range(75))
    assert rows[0].__fields__ == ["topic", "segment", "offset", "timestamp", "key", "value", "headers"]
    for n in (0, 59, 60, 74):
        row = rows[n]
        assert (row.topic, row.segment) == ("shop/orders", 0)
        assert (bytes(row.key), bytes(row.value)) == (b"k%d" % n, b"s0v%d" % n)
        assert {k: bytes(v) for k, v in row.headers.items()} == {"n": b"%d" % n}
    stamps = read(spark, orders).selectExpr("sum(unix_micros(timestamp)) s", "count(distinct key) k").first()
    assert stamps is not None
    assert (stamps.s, stamps.k) == (sum(NOON_US + n * STEP_US for n in range(75)), 75)


def test_topics_with_partitions_are_read_as_any_and_tell_the_partition(spark: SparkSession, tmp_path: Path) -> None:
    files = TopicFiles(tmp_path, partitions=3)
    files.table(0, 40, segment=2)
    files.log(40, 60, segment=2)
    files.log(0, 10, segment=0)
    rows = read(spark, files).orderBy("segment", "offset").collect()
    assert [(row.segment, row.offset) for row in rows] == [*((0, n) for n in range(10)), *((2, n) for n in range(60))]
    assert rows[0].__fields__ == ["topic", "segment", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert [row.partition for row in rows] == [row.segment for row in rows]
    assert all(bytes(row.value) == b"s%dv%d" % (row.segment, row.offset) for row in rows)
    tables = spark.read.parquet(str(tmp_path / topic_dir(files.name) / "table"))
    assert [(row["_partition"], row["count"]) for row in tables.groupBy("_partition").count().collect()] == [(2, 40)]


def test_batches_of_kafka_clients_are_read_beside_other_frames(spark: SparkSession, tmp_path: Path) -> None:
    files = TopicFiles(tmp_path, partitions=2)
    log = files.log(0, 10, segment=1)
    sent = [Record(b"k", None, (("h", b"1"), ("n", None))), Record(None, b"", ())]
    log.write_bytes(log.read_bytes() + frame_bytes(batch_of(sent, ZSTD), 10, slot=1))
    rows = read(spark, files).orderBy("offset").collect()
    assert [(row.segment, row.partition, row.offset) for row in rows] == [(1, 1, n) for n in range(12)]
    gone, empty = rows[10:]
    assert (bytes(gone.key), gone.value, gone.headers) == (b"k", None, {"h": b"1", "n": None})
    assert (empty.key, bytes(empty.value), empty.headers) == (None, b"", None)
    assert read(spark, files).where("partition = 1 and value is null").count() == 1


def test_damage_in_the_middle_is_an_error_with_file_and_position(spark: SparkSession, orders: TopicFiles) -> None:
    table = orders.root / orders.table(0, 5_000).path
    log = orders.log(5_000, 5_030)
    for path, said in ((log, r"is damaged at byte \d+"), (table, "is damaged")):
        sound = path.read_bytes()
        content = bytearray(sound)
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(PySparkException, match=rf"Corrupt: .*{path.name} {said}"):
            read(spark, orders).collect()
        path.write_bytes(sound)


def test_small_files_are_put_together(spark: SparkSession, orders: TopicFiles) -> None:
    for start in range(0, 200, 10):
        orders.log(start, start + 10)
    assert (read(spark, orders).rdd.getNumPartitions(), offsets(read(spark, orders))) == (2, list(range(200)))


def test_filters_give_the_same_rows_and_touch_fewer_files(spark: SparkSession, orders: TopicFiles) -> None:
    orders.open_segments(2)
    for segment in (0, 1):
        for start in range(0, 100, 20):
            orders.table(start, start + 20, segment=segment)
    first = min(orders.files(1), key=lambda f: f.base_offset)
    (orders.root / first.path).write_bytes(b"PAR1 is not enough")  # opening it fails
    frame = read(spark, orders)
    keep = f"timestamp >= timestamp_micros({NOON_US + 20 * STEP_US})"
    assert offsets(frame.where("segment = 0 and offset >= 30 and offset < 41")) == list(range(30, 41))
    assert offsets(frame.where(f"segment = 0 and {keep}")) == list(range(20, 100))
    assert offsets(frame.where("offset in (25, 77)")) == [25, 25, 77, 77]


def test_a_typed_topic_has_its_own_columns(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("carrier", pa.int16()), ("seats", pa.uint32()), ("timestamp", pa.int64())])
    flights = TopicFiles(tmp_path, schema=schema)
    flights.table(0, 10)
    flights.log(10, 15)
    frame = read(spark, flights)
    # The user's own column keeps its name; SeaweedMQ's is named as in the Parquet files.
    assert frame.columns == [
        *("topic", "segment", "offset", "_timestamp", "key"),
        *("carrier", "seats", "timestamp", "headers"),
    ]
    assert dict(frame.dtypes)["seats"] == "bigint"
    assert sorted((r.offset, r.carrier, r.seats, r.timestamp) for r in frame.collect()) == [(n,) * 4 for n in range(15)]
    assert offsets(frame.where(f"_timestamp >= timestamp_micros({NOON_US + 12 * STEP_US})")) == [12, 13, 14]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bootstrap": "here"}, "InvalidArgument: .*'here'"),
        ({"startOffset": "1"}, "InvalidArgument: option '(?i:startOffset)' is unknown: did you mean 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "InvalidArgument: option 'startingOffsets' is 'latest': a batch read cannot"),
        ({"topic": "shop/nothing"}, "NotFound: no topic shop/nothing in .*: it has shop/orders"),
        ({"topic": "../etc"}, "InvalidArgument: namespace '..' is not allowed"),
        ({"topic": "orders"}, "InvalidArgument: topic 'orders' is not NAMESPACE/NAME"),
        ({"storage": "/nowhere/at/all"}, "InvalidArgument: storage /nowhere/at/all is not a directory"),
        ({"storage": "ftp://server/root"}, "InvalidArgument: storage 'ftp://server/root' is not supported"),
        ({"startingOffsets": '{"9": 1}'}, "InvalidArgument: topic shop/orders has no segment 9: it has 0"),
        ({"endingTimestamp": "yesterday"}, "InvalidArgument: option 'endingTimestamp' is 'yesterday': give ISO 8601"),
        ({"columns": "offset,colour"}, "InvalidArgument: topic shop/orders has no column 'colour': it has topic, seg"),
    ],
)
def test_bad_options_are_named(spark: SparkSession, orders: TopicFiles, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, orders, **options).collect()
