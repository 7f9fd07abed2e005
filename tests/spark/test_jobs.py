"""Table jobs on real Spark, and readers that began before a compaction."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from seaweedmq.codec.paths import kept_path, table_dir
from seaweedmq.errors import InvalidArgument, NotFound
from seaweedmq.model.files import FileKind
from seaweedmq.spark import jobs
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

SIZE = 20


def small(files: TopicFiles, count: int, segment: int = 0) -> None:
    for n in range(0, count * SIZE, SIZE):
        files.table(n, n + SIZE, segment=segment)


def tables(files: TopicFiles, segment: int = 0) -> list[tuple[int, int | None]]:
    found = (f for f in files.files(segment) if f.kind is FileKind.TABLE)
    return sorted((f.base_offset, f.end_offset) for f in found)


def test_a_compaction_shares_the_segments_out_and_verifies_afterwards(spark: SparkSession, orders: TopicFiles) -> None:
    orders.open_segments(3)
    for segment in range(3):
        small(orders, 4, segment)
    seen: list[tuple[int, int]] = []
    options = {"storage": str(orders.root), "topic": str(orders.name)}
    found = jobs.compact(spark, **options, progress=lambda done, total: seen.append((done, total)))
    assert (found.tables_before, found.tables_after, found.problems) == (12, 3, [])
    assert [tables(orders, segment) for segment in range(3)] == [[(0, 80)]] * 3
    assert (seen[0][0], seen) == (0, sorted(seen))
    assert seen[-1][0] == seen[-1][1] > 0
    verified = jobs.verify(spark, storage=str(orders.root), topic=str(orders.name))
    assert (verified.is_sound, verified.records, verified.tables) == (True, 240, 3)
    rebuilt = jobs.rebuild(spark, storage=str(orders.root), topic=str(orders.name))
    assert (rebuilt.made, rebuilt.problems) == ([], [])


def test_readers_that_began_before_a_compaction_end_well(spark: SparkSession, orders: TopicFiles) -> None:
    small(orders, 4)
    orders.log(80, 90)
    source = spark.read.format("seaweedmq").options(storage=str(orders.root), topic=str(orders.name)).load()
    began = source.select("offset").rdd
    assert began.getNumPartitions() > 0  # planned, with the current files
    kept = [str(orders.root / kept_path(f.path)) for f in orders.files() if f.kind is FileKind.TABLE]
    native = spark.read.parquet(*kept)
    jobs.compact(spark, storage=str(orders.root), topic=str(orders.name))
    assert tables(orders) == [(0, 80)]
    assert sorted(row.offset for row in began.collect()) == list(range(90))
    assert sorted(row.offset for row in source.select("offset").collect()) == list(range(90))
    assert sorted(row["_offset"] for row in native.select("_offset").collect()) == list(range(80))
    assert spark.read.parquet(str(orders.root / table_dir(orders.name))).count() == 80


def test_two_compactions_at_once_leave_every_record_once(spark: SparkSession, orders: TopicFiles) -> None:
    orders.open_segments(4)
    for segment in range(4):
        small(orders, 4, segment)
    begin = threading.Barrier(2)

    def compact() -> jobs.Compaction:
        begin.wait()
        return jobs.compact(spark, storage=str(orders.root), topic=str(orders.name))

    with ThreadPoolExecutor(2) as pool:
        found = [running.result() for running in [pool.submit(compact) for _ in range(2)]]
    assert [each.problems for each in found] == [[], []]
    assert [tables(orders, segment) for segment in range(4)] == [[(0, 80)]] * 4
    assert sum(len(each.made) for each in found) == 4
    verified = jobs.verify(spark, storage=str(orders.root), topic=str(orders.name))
    assert (verified.is_sound, verified.records) == (True, 320)
    assert jobs.history(storage=str(orders.root), topic=str(orders.name))[-1].records == 320


def test_a_damaged_table_fails_alone_and_is_named(spark: SparkSession, orders: TopicFiles) -> None:
    orders.open_segments(2)
    small(orders, 3)
    small(orders, 3, segment=1)
    broken = min(orders.files(1), key=lambda f: f.base_offset)
    (orders.root / broken.path).write_bytes(b"PAR1 is not enough PAR1")
    found = jobs.compact(spark, storage=str(orders.root), topic=str(orders.name))
    assert [broken.path in str(problem) for problem in found.problems] == [True]
    assert tables(orders) == [(0, 60)]
    verified = jobs.verify(spark, storage=str(orders.root), topic=str(orders.name))
    assert [d.path for d in verified.differences] == [broken.path]


def test_what_is_not_there_is_said_in_one_sentence(spark: SparkSession, orders: TopicFiles) -> None:
    with pytest.raises(NotFound, match=r"no topic shop/nothing in .*: it has shop/orders"):
        jobs.compact(spark, storage=str(orders.root), topic="shop/nothing")
    with pytest.raises(InvalidArgument, match="is not a directory"):
        jobs.verify(spark, storage="/nowhere", topic="shop/orders")
    with pytest.raises(NotFound, match=r"no topic shop/nothing in .*: it has shop/orders"):
        jobs.history(storage=str(orders.root), topic="shop/nothing")
    with pytest.raises(InvalidArgument, match="is not a directory"):
        jobs.history(storage="/nowhere", topic="shop/orders")
    with pytest.raises(InvalidArgument, match="give a size"):
        jobs.compact(spark, storage=str(orders.root), topic="shop/orders", target_bytes=0)
