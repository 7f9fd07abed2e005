"""``seaweedmq.spark.read`` for its users, on real Spark: the data source's rows, at native speed."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from seaweedmq.codec.paths import kept_path
from seaweedmq.errors import Corrupt, DataLoss, InvalidArgument, NotFound, OutOfRange
from seaweedmq.model.files import FileKind
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles

pytestmark = pytest.mark.integration

LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def read(spark: SparkSession, files: TopicFiles, **options: Any) -> DataFrame:
    return seaweedmq.spark.read(spark, storage=files.root, topic=str(files.name), **options)


def by_source(spark: SparkSession, files: TopicFiles, **options: Any) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("seaweedmq").options(storage=str(files.root), topic=str(files.name), **given).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())  # noqa: SLF001 - no public API shows it


def rows(frame: DataFrame) -> list[str]:
    return [repr(row) for row in frame.orderBy("segment", "offset").collect()]


def remove_logs(files: TopicFiles, segment: int = 0) -> None:
    for file in files.files(segment):
        if file.kind is FileKind.LOG:
            (files.root / file.path).unlink()


@pytest.mark.parametrize("is_typed", [False, True])
def test_tables_and_logs_are_the_same_frame_as_the_sources(spark: SparkSession, tmp_path: Path, is_typed: bool) -> None:
    columns = [("carrier", pa.int16()), ("seats", pa.uint32()), ("timestamp", pa.int64()), ("a.b", pa.int8())]
    orders = TopicFiles(tmp_path, schema=pa.schema(columns) if is_typed else None, partitions=2 if is_typed else None)
    if not is_typed:
        orders.open_segments(2)
    orders.table(0, 40, keep_log=True)
    orders.table(40, 60)
    orders.log(60, 75)
    orders.table(0, 30, segment=1)
    native = read(spark, orders)
    assert (native.dtypes, rows(native)) == (by_source(spark, orders).dtypes, rows(by_source(spark, orders)))
    assert native.count() == 105
    assert native.select("offset").where("segment = 1 and offset > 20").count() == 9
    if is_typed:
        for frame in (native, by_source(spark, orders)):
            assert frame.where("partition = 1").count() == 30


def test_what_tables_hold_costs_no_python(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 40)
    orders.log(40, 60)
    assert "seaweedmq" in plan_of(read(spark, orders)).lower().replace(str(orders.root).lower(), "")
    orders.log(60, 60)  # an empty log, as brokers leave it after beginning another
    orders.convert(only=40)
    assert "BatchScan" not in plan_of(read(spark, orders))
    assert offsets(read(spark, orders)) == list(range(60))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": 35, "endingOffsets": 62}, range(35, 62)),
        ({"startingOffsets": {"0": 70}}, range(70, 75)),
        ({"endingOffsets": {"shop/orders": {"0": 3}}}, range(3)),
        ({"startingOffsets": {"0": 45}, "endingOffsets": {"0": 50}}, range(45, 50)),
        ({"endingOffsets": 1_000}, range(75)),
        ({"startingTimestamp": NOON_US + 30 * STEP_US, "endingTimestamp": "2020-09-13T12:27:45Z"}, range(30, 65)),
        (
            {"startingOffsetsByTimestamp": NOON_US // 1_000 + 30_000, "endingOffsetsByTimestamp": {"0": 1600000062000}},
            range(30, 62),
        ),
        ({"startingOffsetsByTimestamp": {"0": NOON_US // 1_000 + 3_600_000}}, range(0)),
    ],
)
def test_ranges_are_cut_out_of_tables_and_logs_by_both_faces(
    spark: SparkSession, orders: TopicFiles, options: dict[str, Any], expected: range
) -> None:
    orders.table(0, 40)
    orders.table(40, 60)
    orders.log(60, 75)
    assert offsets(read(spark, orders, **options)) == list(expected)
    texts = {name: str(value).replace("'", '"') for name, value in options.items()}
    assert offsets(by_source(spark, orders, **texts)) == list(expected)


def test_only_the_columns_asked_for_in_the_order_asked(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 20)
    orders.log(20, 25)
    frame = read(spark, orders, columns=["value", "offset"])
    assert frame.columns == by_source(spark, orders, columns="value,offset").columns == ["value", "offset"]
    assert {row.offset: bytes(row.value) for row in frame.collect()} == {n: b"s0v%d" % n for n in range(25)}
    assert read(spark, orders, columns="topic").distinct().collect() == [("shop/orders",)]
    without = read(spark, orders, includeHeaders=False).columns
    assert without == ["topic", "segment", "offset", "timestamp", "key", "value"]
    assert read(spark, orders, columns="key,segment", startingTimestamp=NOON_US + 3 * STEP_US).count() == 22


def test_a_read_that_has_begun_ends_well_whatever_becomes_of_the_files(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 40)
    orders.table(40, 60)
    orders.log(60, 75)
    orders.log(75, 90)
    orders.keep_tables()
    frame = read(spark, orders, startingOffsets=10)
    orders.convert()  # the logs become tables, ...
    remove_logs(orders)
    orders.keep_tables()
    assert offsets(frame) == list(range(10, 90))
    made = {f.path for f in orders.files() if f.base_offset < 60}
    for path in made:  # ... and other tables replaced those that were planned
        (orders.root / path).unlink()
    orders.log(90, 95)
    assert offsets(frame) == list(range(10, 90))


def test_the_tail_is_read_to_where_it_was_at_the_call(spark: SparkSession, orders: TopicFiles) -> None:
    orders.log(0, 20)
    log = orders.log(20, 30)
    frame = read(spark, orders)
    log.write_bytes(log.read_bytes() + orders.frame(0, 30, 40))
    orders.table(40, 50)
    assert (offsets(frame), offsets(read(spark, orders))) == (list(range(30)), list(range(50)))


def test_a_log_that_is_gone_before_its_records_were_read_is_told(spark: SparkSession, orders: TopicFiles) -> None:
    orders.log(0, 20)
    orders.log(20, 30)
    frame = read(spark, orders)
    orders.convert(only=20)
    remove_logs(orders)
    with pytest.raises(Exception, match=r"DataLoss: shop/orders#0: records of offsets \[0, 20\) are missing"):
        frame.collect()


def test_tables_that_overlap_give_every_record_once(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 40)
    first = orders.root / orders.files()[0].path
    aside = first.read_bytes()
    first.unlink()
    orders.table(20, 60)
    first.write_bytes(aside)
    assert offsets(read(spark, orders)) == list(range(60))
    assert offsets(read(spark, orders, startingOffsets=30, endingOffsets=50)) == list(range(30, 50))


def test_damage_is_reported_first_and_foreign_files_are_left_alone(spark: SparkSession, orders: TopicFiles) -> None:
    made = orders.table(0, 20)
    orders.table(20, 40)
    folder = (orders.root / made.path).parent
    (folder / "notes.parquet").write_bytes(b"mine")
    (folder / ".writing-1").write_bytes(b"half")
    assert read(spark, orders).count() == 40
    content = (orders.root / made.path).read_bytes()
    (orders.root / made.path).write_bytes(content[: len(content) // 2])
    with pytest.raises(Corrupt, match=rf"{made.path} is damaged: its footer does not match its checksum"):
        read(spark, orders)


@pytest.mark.parametrize("damage", ["page", "missing"])
def test_no_setting_makes_a_damaged_table_fewer_rows(spark: SparkSession, orders: TopicFiles, damage: str) -> None:
    orders.table(0, 1_000)
    made = orders.table(1_000, 6_000)
    names = (orders.root / made.path, orders.root / kept_path(made.path))
    if damage == "page":
        content = bytearray(names[0].read_bytes())
        content[len(content) // 2] ^= 1
        names[0].write_bytes(content)
    settings = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for setting in settings:
        spark.conf.set(setting, "true")
    try:
        frame = read(spark, orders)
        if damage == "missing":
            for name in names:
                name.unlink()
        with pytest.raises(Exception, match=names[0].name):
            frame.collect()
    finally:
        for setting in settings:
            spark.conf.unset(setting)


@pytest.mark.parametrize("options", [{}, {"startingOffsets": 50}])
def test_lost_records_are_errors_or_allowed(spark: SparkSession, orders: TopicFiles, options: dict[str, Any]) -> None:
    lost = orders.table(90, 100)
    orders.table(100, 120)
    orders.log(130, 140)
    orders.seal(0, 150)
    (orders.root / lost.path).unlink()
    first = options.get("startingOffsets", 0)
    with pytest.raises(DataLoss, match=rf"shop/orders#0: records of offsets \[{first}, 100\) are missing"):
        read(spark, orders, **options)
    with pytest.raises(Exception, match=rf"DataLoss: shop/orders#0: records of offsets \[{first}, 100\) are missing"):
        by_source(spark, orders, **options).collect()
    left = [*range(100, 120), *range(130, 140)]
    assert offsets(read(spark, orders, failOnDataLoss=False, **options)) == left
    assert offsets(by_source(spark, orders, failOnDataLoss="false", **options)) == left


def test_data_that_was_lost_is_told_unless_that_is_fine(spark: SparkSession, orders: TopicFiles) -> None:
    orders.retention_s = 60.0
    orders.write_documents()
    orders.table(100, 120)
    with pytest.raises(
        OutOfRange, match=r"shop/orders#0: offsets from 50 on were removed .* the lowest .* is 100: begin"
    ):
        read(spark, orders, startingOffsets=50)
    with pytest.raises(Exception, match="OutOfRange: shop/orders#0: offsets from 50 on were removed by retention"):
        by_source(spark, orders, startingOffsets=50).collect()
    assert offsets(read(spark, orders, startingOffsets=50, failOnDataLoss=False)) == list(range(100, 120))
    assert offsets(by_source(spark, orders, startingOffsets=50, failOnDataLoss="false")) == list(range(100, 120))
    assert offsets(read(spark, orders)) == list(range(100, 120))


@pytest.mark.parametrize(
    ("options", "refused", "lenient"),
    [
        ({"startingOffsets": {"1": 21}}, r"'startingOffsets' is offset 21 of shop/orders#1, which ends at 20", 0),
        ({"endingOffsets": {"1": 50}}, r"'endingOffsets' is offset 50 of shop/orders#1, which ends at 20", 20),
        (
            {"startingOffsets": {"0": 26}},
            r"offset 26 of shop/orders#0, which is in files up to 25: .* or 'bootstrap'",
            0,
        ),
        ({"endingOffsets": {"0": 26}}, r"offset 26 of shop/orders#0, which is in files up to 25", 25),
    ],
)
def test_an_offset_named_beyond_the_end_of_its_segment_is_refused_unless_that_is_fine(
    spark: SparkSession, orders: TopicFiles, options: dict[str, Any], refused: str, lenient: int
) -> None:
    orders.open_segments(2)
    orders.table(0, 20)
    orders.log(20, 25)
    orders.table(0, 20, segment=1)
    orders.seal(1, 20)
    texts = {name: str(value).replace("'", '"') for name, value in options.items()}
    with pytest.raises(OutOfRange, match=rf"{refused}.* or set failOnDataLoss to false to read what exists"):
        read(spark, orders, **options)
    with pytest.raises(Exception, match=rf"OutOfRange: option .*{refused}"):
        by_source(spark, orders, **texts).collect()
    (number,) = map(int, next(iter(options.values())))
    for frame in (
        read(spark, orders, **options, failOnDataLoss=False),
        by_source(spark, orders, **texts, failOnDataLoss="false"),
    ):
        assert frame.where(f"segment = {number}").count() == lenient


def test_the_end_itself_is_not_beyond_it_and_one_number_is_a_limit(spark: SparkSession, orders: TopicFiles) -> None:
    orders.open_segments(2)
    orders.log(0, 25)
    orders.table(0, 20, segment=1)
    ends = {"0": 25, "1": 20}
    assert read(spark, orders, endingOffsets=ends).count() == 45
    assert read(spark, orders, startingOffsets=ends).count() == 0
    assert read(spark, orders, startingOffsets=15, endingOffsets=22).count() == 7 + 5
    assert read(spark, orders, startingOffsets=1_000).count() == 0


def test_partitions_are_as_asked(spark: SparkSession, orders: TopicFiles, caplog: pytest.LogCaptureFixture) -> None:
    orders.table(0, 60)
    orders.log(60, 100)
    orders.seal(0, 100)
    caplog.set_level(logging.INFO, "seaweedmq.spark")
    for frame, partitions in (
        (read(spark, orders, maxRecordsPerPartition=25), 5),
        (by_source(spark, orders, minPartitions=4), 5),
    ):
        assert (frame.rdd.getNumPartitions(), offsets(frame)) == (partitions, list(range(100)))
    assert "is read by the Python source: minPartitions and maxRecordsPerPartition divide by records" in caplog.text


def test_the_settings_of_the_session_stay_the_users(spark: SparkSession, orders: TopicFiles) -> None:
    for start in range(0, 60, 10):
        orders.table(start, start + 10)
    spark.conf.set(LISTING, "3")
    try:
        assert (read(spark, orders).count(), spark.conf.get(LISTING)) == (60, "3")
    finally:
        spark.conf.unset(LISTING)
    read(spark, orders)
    assert LISTING not in spark.conf.getAll


def test_wrong_arguments_are_refused_at_the_call(spark: SparkSession, orders: TopicFiles) -> None:
    with pytest.raises(InvalidArgument, match=r"option 'startOffset' is unknown: did you mean 'startingOffsets'"):
        read(spark, orders, startOffset=3)
    with pytest.raises(InvalidArgument, match="has no segment 9: it has 0"):
        read(spark, orders, startingOffsets={"9": 3})
    with pytest.raises(NotFound, match=r"no topic shop/nothing in .*: it has shop/orders"):
        seaweedmq.spark.read(spark, storage=orders.root, topic="shop/nothing")
    with pytest.raises(InvalidArgument, match="option 'storage' is missing"):
        seaweedmq.spark.read(spark, topic="shop/orders")


def test_an_empty_topic_has_columns_and_no_rows(spark: SparkSession, orders: TopicFiles) -> None:
    assert read(spark, orders).dtypes == by_source(spark, orders).dtypes
    assert read(spark, orders).count() == by_source(spark, orders).count() == 0
    orders.log(0, 0)
    assert read(spark, orders).count() == 0


def test_a_storage_may_be_called_whatever_it_likes(spark: SparkSession, tmp_path: Path) -> None:
    odd = TopicFiles(tmp_path / "day=1 [*] {a}?")
    odd.table(0, 10)
    odd.log(10, 15)
    odd.keep_tables()
    assert offsets(read(spark, odd)) == list(range(15))
