"""``df.write.format("seaweedmq")`` and ``df.writeStream`` for their users, on real Spark and a real cluster."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import seaweedmq
import seaweedmq.spark
from seaweedmq.aio import system_environment
from seaweedmq.errors import InvalidArgument, NotFound, SeaweedMQError, StorageFailed
from seaweedmq.spark import jobs
from seaweedmq.spark.jobs import watched
from seaweedmq.spark.jobs.importing import PIECE_BYTES
from seaweedmq.spark.write.sink import BatchSink, Staged
from seaweedmq.spark.write.sink_options import parse_sink_options
from seaweedmq.spark.write.sink_plan import plan_sink, run
from seaweedmq.spark.write.sink_publish import publish_staged
from seaweedmq.spark.write.stager import Stager
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.staging import StagedSink
from tests.spark.sink_driver import start
from tests.support.commands import running_cluster
from tests.support.kafka_wire import partition_of

pytestmark = pytest.mark.integration

WAIT_S = 60


@dataclass(frozen=True)
class Target:
    """A running cluster, as the sink sees it."""

    bootstrap: str
    storage: Path
    client: seaweedmq.Client
    pids: tuple[int, ...]

    def create(self, name: str, **options: Any) -> str:
        self.client.admin.create_topic(name, **options)
        return name

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"bootstrap": self.bootstrap, "storage": str(self.storage), "topic": topic, **more}

    def write(self, frame: DataFrame, topic: str, **options: str) -> None:
        frame.write.format("seaweedmq").mode("append").options(**self.options(topic, **options)).save()

    def records(self, topic: str) -> list[Any]:
        """Return all records of the topic, segment by segment in order."""
        with self.client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
            return sorted(subscriber, key=lambda message: (message.segment, message.offset))

    def table(self, topic: str) -> pa.Table:
        with self.client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
            return pa.Table.from_batches(list(subscriber.batches()))

    def staged(self, topic: str) -> list[str]:
        """Return the unpublished files beside the topic."""
        folder = self.storage / "topics" / topic / ".staged"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    data = tmp_path_factory.mktemp("sink") / "data"
    with running_cluster(data, brokers=2) as cluster, seaweedmq.connect(cluster.addresses) as client:
        yield Target(cluster.addresses, data / "storage", client, cluster.pids)


def test_rows_are_records_with_their_keys_headers_and_times(spark: SparkSession, target: Target) -> None:
    topic = target.create("sink/plain", segments=3)
    frame = spark.range(1000).selectExpr(
        "cast(id as string) key",
        "cast(concat('v', id) as binary) value",
        "map('n', cast(cast(id as string) as binary)) headers",
        "timestamp_micros(1600000000000000 + id) timestamp",
    )
    target.write(frame, topic)
    records = sorted(target.records(topic), key=lambda record: int(record.key))
    assert [record.value for record in records] == [b"v%d" % n for n in range(1000)]
    assert records[7].headers == {"n": b"7"}
    assert records[7].timestamp.timestamp() == pytest.approx(1600000000.000007)
    assert (len({record.segment for record in records}), target.staged(topic)) == (3, [])


def test_keys_choose_the_partition_that_kafkas_clients_choose(spark: SparkSession, target: Target) -> None:
    topic = target.create("kafka/sink", partitions=5)
    target.write(spark.range(100).selectExpr("cast(id as string) key", "cast(id as string) value"), topic)
    records = target.records(topic)
    assert sorted(int(record.value) for record in records) == list(range(100))
    assert [record.segment for record in records] == [partition_of(record.key, 5) for record in records]


@pytest.mark.deep
def test_an_empty_topic_adopts_and_keeps_the_columns_of_the_first_frame(spark: SparkSession, target: Target) -> None:
    topic = target.create("sink/typed", segments=2)
    frame = spark.range(100).selectExpr("id", "id % 7 as shard", "cast(id as double) / 3 as price", "array(id) tags")
    target.write(frame, topic, key="id")
    target.write(frame.selectExpr("id + 100 as id", "shard", "price", "tags"), topic, key="id")
    table = target.table(topic).sort_by("id")
    assert table.column("id").to_pylist() == list(range(200))
    assert table.column("_key").to_pylist() == [b"%d" % n for n in range(200)]
    with pytest.raises(PySparkException, match=r"column 'price' .* is not in the table: add it"):
        target.write(frame.drop("price"), topic)
    with pytest.raises(PySparkException, match="column 'price' is string, the topic's schema has double: cast it"):
        target.write(frame.withColumn("price", frame.price.cast("string")), topic)
    with pytest.raises(PySparkException, match="column 'extra' of the table is not in the topic's schema"):
        target.write(frame.selectExpr("*", "1 as extra"), topic)
    assert len(target.table(topic)) == 200


def refusal(target: Target, frame: DataFrame, topic: str, **options: str) -> str:
    """Return the error of a rejected write."""
    with pytest.raises(PySparkException) as refused:
        target.write(frame, topic, **options)
    return str(refused.value)


@pytest.mark.deep
def test_what_can_not_be_written_is_refused_in_a_sentence(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    topic = target.create("sink/refused")
    rows = spark.range(10).selectExpr("cast(id as string) key", "cast(id as string) value")
    assert "did you mean 'bootstrap'?" in refusal(target, rows, topic, bootstrp="x")
    keyless = refusal(target, rows, topic, key="id")
    assert "option 'key' is 'id', not a column of the DataFrame: it has key, value" in keyless
    assert "there is no topic sink/none" in refusal(target, rows, "sink/none")
    numbered = rows.selectExpr("*", "1 as offset")
    assert "column 'offset' cannot be written (the topic assigns it): drop it" in refusal(target, numbered, topic)
    elsewhere = refusal(target, rows, topic, storage=str(tmp_path))
    assert f"storage {tmp_path} holds no topic sink/refused" in elsewhere
    assert "Check that brokers run there" in refusal(target, rows, topic, bootstrap="127.0.0.1:1")
    writer = rows.write.format("seaweedmq").mode("overwrite").options(**target.options(topic))
    with pytest.raises(PySparkException, match='a topic can only be appended to: use mode\\("append"\\)'):
        writer.save()
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    for mode in ("complete", "update"):
        stream = counts.writeStream.format("seaweedmq").options(**target.options(topic)).outputMode(mode)
        with pytest.raises(PySparkException, match=r"(?i)append|update"):
            stream.option("checkpointLocation", str(tmp_path / mode)).start().awaitTermination()
    failing = spark.range(10).selectExpr("cast(assert_true(id < 9) as string) key", "cast(id as string) value")
    with pytest.raises(PySparkException):
        target.write(failing, topic)
    assert (target.records(topic), target.staged(topic)) == ([], [])


def files_of(folder: Path, batches: int, rows: int, keys: int = 50) -> dict[bytes, list[bytes]]:
    """Write Parquet files whose rows have a key and a number that rises in it; return their contents by key."""
    folder.mkdir()
    expected: dict[bytes, list[bytes]] = {}
    for batch in range(batches):
        numbers = range(batch * rows, (batch + 1) * rows)
        names, values = [b"k%d" % (n % keys) for n in numbers], [b"%d" % n for n in numbers]
        for name, value in zip(names, values, strict=True):
            expected.setdefault(name, []).append(value)
        table = pa.table({"key": pa.array(names, pa.binary()), "value": pa.array(values, pa.binary())})
        path = folder / f"{batch:03d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))  # Spark takes files in the order of their times
    return expected


def by_key(records: Iterable[Any]) -> dict[bytes, list[bytes]]:
    """Return the values of each key in the order of the topic."""
    found: dict[bytes, list[bytes]] = {}
    for record in sorted(records, key=lambda record: record.offset):
        found.setdefault(record.key, []).append(record.value)
    return found


def sink_workers() -> list[psutil.Process]:
    """Return Spark's Python processes that are committing a batch."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie also counts
            if any("python_streaming_sink_runner" in part for part in process.cmdline()):
                found.append(process)
    return found


def until(condition: Callable[[], bool], timeout_s: float = 60.0, pause_s: float = 0.002) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "no commit begins"
        time.sleep(pause_s)


@pytest.mark.deep
def test_a_stream_is_stored_once_though_its_driver_dies(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    topic = target.create("sink/stream", segments=2, replicas=2)
    expected = files_of(tmp_path / "in", batches=4, rows=20_000)
    options, checkpoint = target.options(topic), str(tmp_path / "checkpoint")
    folder = target.storage / "topics" / topic / ".staged"
    admin = target.client.admin

    def split() -> None:
        admin.split_segment(topic, 0)

    def merge() -> None:
        admin.merge_segments(topic, *(segment.id for segment in open_segments(target, topic)[:2]))

    for batch, change in enumerate((split, merge)):
        query = start(spark, str(tmp_path / "in"), checkpoint, options)
        until(lambda number=batch: bool(list(folder.glob(f"*/*{number}/manifest.json"))))
        time.sleep(0.03 * batch)  # at the beginning, and in the middle
        with stopped(target.pids):
            for worker in sink_workers():
                worker.kill()
        change()
        with pytest.raises(PySparkException) if batch == 0 else contextlib.suppress(PySparkException):
            query.awaitTermination()
    query = start(spark, str(tmp_path / "in"), checkpoint, options)
    query.awaitTermination()
    assert by_key(target.records(topic)) == expected

    # A driver that died before Spark recorded the completion of the last batch.
    for name in ("3", ".3.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    start(spark, str(tmp_path / "in"), checkpoint, options).awaitTermination()
    assert by_key(target.records(topic)) == expected
    assert [name.partition("/")[2] for name in target.staged(topic)] == ["done.json"]


def open_segments(target: Target, topic: str) -> list[Any]:
    """From the lowest slots up."""
    segments = target.client.admin.describe_topic(topic).segments
    return sorted((segment for segment in segments if segment.is_open), key=lambda segment: segment.slots)


@contextlib.contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes for a moment."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_what_was_staged_for_a_topic_does_not_come_into_the_next_one_of_its_name(target: Target) -> None:
    topic = target.create("sink/again")
    options = parse_sink_options(target.options(topic))
    batch = pa.record_batch({"value": pa.array([b"x"] * 10)})
    plan = run(plan_sink(options, batch.schema))
    target.client.admin.delete_topic(topic)
    target.create(topic)
    run(plan_sink(options, batch.schema))  # its folder exists again
    with StagedSink(DirectoryPlace(target.storage), plan.topic, "q-1").batch(1).staging("0") as file:
        Stager(file, plan.columns, plan.ring, plan.ranges, plan.frame_bytes_max, system_environment()).write([batch])
        staged = file.finish()
    with pytest.raises(NotFound, match="was deleted and recreated since batch 1 was staged for it"):
        run(publish_staged(options, "q-1", 1, [staged], plan.topic_uid))
    assert target.records(topic) == []


def test_a_write_that_is_published_has_not_failed_because_something_of_it_stays(
    target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = target.create("sink/stays")
    options = parse_sink_options(target.options(topic))
    batch = pa.record_batch({"value": pa.array([b"x"] * 10)})
    plan = run(plan_sink(options, batch.schema))
    with StagedSink(DirectoryPlace(target.storage), plan.topic, "w-1").batch(0).staging("0") as file:
        Stager(file, plan.columns, plan.ring, plan.ranges, plan.frame_bytes_max, system_environment()).write([batch])
        staged = Staged("w-1", plan.topic_uid, 0, file.finish())

    def remove(sink: StagedSink) -> None:
        raise StorageFailed("the directory does not answer")

    monkeypatch.setattr(StagedSink, "remove", remove)
    BatchSink(options, plan, "w-1").commit([staged])
    assert len(target.records(topic)) == 10
    assert "until the next sweep: the directory does not answer" in caplog.text


@pytest.mark.deep
def test_a_query_whose_topic_was_deleted_and_created_again_ends_with_a_sentence_and_does_not_begin_again(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    topic = target.create("sink/anew")
    files_of(tmp_path / "all", batches=2, rows=100)
    (tmp_path / "in").mkdir()
    (tmp_path / "all" / "000.parquet").rename(tmp_path / "in" / "000.parquet")
    options, checkpoint = target.options(topic), str(tmp_path / "checkpoint")
    running = start(spark, str(tmp_path / "in"), checkpoint, options, ends=False)
    until((tmp_path / "checkpoint" / "commits" / "0").exists)
    assert len(target.records(topic)) == 100
    target.client.admin.delete_topic(topic)
    target.create(topic)
    (tmp_path / "all" / "001.parquet").rename(tmp_path / "in" / "001.parquet")
    refused = (
        f"topic {topic} was deleted and created again since this query began to write to it: restart the query with "
        "another checkpoint to fill the new topic"
    )
    with pytest.raises(PySparkException, match=refused):
        running.awaitTermination(WAIT_S)
    with pytest.raises(PySparkException, match=refused):
        start(spark, str(tmp_path / "in"), checkpoint, options).awaitTermination()
    assert (target.records(topic), target.staged(topic)) == ([], [])
    start(spark, str(tmp_path / "in"), str(tmp_path / "another"), options).awaitTermination()
    assert len(target.records(topic)) == 200


def test_a_thread_writes_as_well(spark: SparkSession, target: Target) -> None:
    """Spark looks for formats in the session that is active in a thread, and a new thread has none."""
    topic = target.create("sink/thread")

    def write(session: SparkSession) -> None:
        seaweedmq.spark.register(session)
        target.write(session.range(10).selectExpr("cast(id as string) value"), topic)

    for session in (spark, spark.newSession()):
        with ThreadPoolExecutor(1) as threads:
            threads.submit(write, session).result()
    assert len(target.records(topic)) == 20


@pytest.mark.deep
def test_a_copied_checkpoint_is_refused(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    topic = target.create("sink/copied")
    options, used, copy = target.options(topic), tmp_path / "used", tmp_path / "copy"
    files_of(tmp_path / "all", batches=2, rows=100)
    (tmp_path / "in").mkdir()
    (tmp_path / "all" / "000.parquet").rename(tmp_path / "in" / "000.parquet")
    start(spark, str(tmp_path / "in"), str(used), options).awaitTermination()
    shutil.copytree(used, copy)
    (tmp_path / "all" / "001.parquet").rename(tmp_path / "in" / "001.parquet")
    start(spark, str(tmp_path / "in"), str(used), options).awaitTermination()
    assert len(target.records(topic)) == 200
    message = f"batch 1 of the query with the checkpoint {copy} is not written: .*cop"
    with pytest.raises(PySparkException, match=message):
        start(spark, str(tmp_path / "in"), str(copy), options).awaitTermination()
    assert len(target.records(topic)) == 200


@pytest.mark.deep
def test_files_are_imported_whatever_they_are(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    for kind in ("parquet", "csv", "json"):
        folder = str(tmp_path / kind)
        frame = spark.range(300).selectExpr("id", "concat('n', id) name", "lpad(id, 5, '0') code")
        writer = frame.repartition(3).write.format(kind)
        (writer.option("header", "true") if kind == "csv" else writer).save(folder)
        topic = target.create(f"sink/{kind}", segments=2)
        told: list[tuple[int, int]] = []
        options = {"key": "name", "piece_bytes": 1 if kind == "parquet" else PIECE_BYTES, **target.options(topic)}
        options["progress"] = lambda *at, told=told: told.append(at)
        assert jobs.import_files(spark, [folder], kind, **options) == 300
        assert sorted(target.table(topic).column("id").to_pylist()) == list(range(300))
        assert sorted(target.table(topic).column("code").to_pylist()) == [f"{number:05}" for number in range(300)]
        sizes = [path.stat().st_size for path in sorted(Path(folder).glob(f"*.{kind}"))]
        assert (told, told[0], told[-1]) == (sorted(told), (0, sum(sizes)), (sum(sizes), sum(sizes)))
        if kind == "parquet":
            assert {sizes[0], sizes[0] + sizes[1]} < {done for done, _ in told}
    with pytest.raises(InvalidArgument, match="format 'avro' cannot be imported: give one of parquet, csv, json"):
        jobs.import_files(spark, [folder], "avro", **target.options(topic))


@pytest.mark.deep
def test_of_one_large_file_it_is_told_how_far_it_is_before_it_is_published(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = target.create("sink/large")
    ids = pa.table({"id": pa.array(range(80_000), pa.int64())})
    pq.write_table(ids, tmp_path / "large.parquet", row_group_size=2_000, compression="none", use_dictionary=False)
    monkeypatch.setattr(watched, "POLL_INTERVAL_S", 0.02)
    told: list[float] = []
    spark.conf.set("spark.sql.files.maxPartitionBytes", "16384")  # a task for each row group
    try:
        options = {**target.options(topic), "progress": lambda done, total: told.append(done / total)}
        rows = jobs.import_files(spark, [str(tmp_path)], **options)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert rows == len(target.table(topic)) == 80_000
    assert (told, told[0], told[-1]) == (sorted(told), 0.0, 1.0)
    assert len({part for part in told if 0 < part <= 0.5}) > 1, "progress reports cover the staging"


def test_an_import_that_is_cut_says_how_far_it_came(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    topic = target.create("sink/middle")
    (tmp_path / "a.csv").write_text("id,name\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("name,id\nc,3\n")
    with pytest.raises(SeaweedMQError, match=r"2 rows of the files before .*/b\.csv are published, and none from"):
        jobs.import_files(spark, [str(tmp_path)], "csv", **target.options(topic), piece_bytes=1)
    assert target.table(topic).column("name").to_pylist() == ["a", "b"]


@pytest.mark.timeout(600)
@pytest.mark.deep
def test_executors_write_import_and_read_though_driver_and_broker_are_killed(target: Target, tmp_path: Path) -> None:
    names = ("sink/cluster", "sink/cluster-written", "sink/cluster-imported")
    topic, written, imported = (target.create(name, segments=2, replicas=2) for name in names)
    expected = files_of(tmp_path / "in", batches=3, rows=20_000)
    given = {"master": "local-cluster[2,1,1024]", "options": target.options(topic)}
    given |= {"source": str(tmp_path / "in"), "checkpoint": str(tmp_path / "checkpoint")}
    once = {"written": target.options(written), "imported": target.options(imported)}
    once |= {"found": str(tmp_path / "found.json")}

    def driver(**given: Any) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.spark.sink_driver", json.dumps(given)]
        with (tmp_path / "driver.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    folder = target.storage / "topics" / topic / ".staged"
    running = driver(**given, once=once)
    try:
        until(lambda: (tmp_path / "found.json").exists() or running.poll() is not None, 400, 0.05)
        until(lambda: bool(list(folder.glob("*/*1/*"))) or running.poll() is not None, 400, 0.01)
        assert running.poll() is None, (tmp_path / "driver.log").read_text()
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    running = driver(**given)
    try:
        until(lambda: bool(list(folder.glob("*/*2/*.frames"))) or running.poll() is not None, 400, 0.05)
        os.kill(target.pids[1], signal.SIGKILL)
        assert running.wait(180) == 0, (tmp_path / "driver.log").read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert by_key(target.records(topic)) == expected
    assert json.loads((tmp_path / "found.json").read_text()) == {"imported": 60_000, "read": [60_000] * 2}
    for other in (written, imported):
        assert {key: sorted(values, key=int) for key, values in by_key(target.records(other)).items()} == expected
