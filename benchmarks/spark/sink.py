"""Claim: the sink publishes at 0.80 of the rate of staging the same rows and publishing them with ``send_table``."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import seaweedmq
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.data import RECORD, text_table
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale
from benchmarks.spark.session import spark_session
from seaweedmq.spark.source import SeaweedMQSource
from seaweedmq.spark.write.sink import BatchSink, Staged, batch_sink

RATIO_MIN = 0.80
ROWS_MAX = 4_000_000
FILES = 8
ROUNDS = 3
BROKERS = 2
SEGMENTS = 2


class StagedOnly(SeaweedMQSource):
    """Run the sink's tasks alone, and discard their output."""

    @classmethod
    def name(cls) -> str:
        return "staged_only"

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        return _NothingPublished(self._given, schema, overwrite)


class _NothingPublished(BatchSink):
    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.__dict__.update(batch_sink(given, schema, overwrite).__dict__)

    def commit(self, messages: list[Staged | None]) -> None:  # type: ignore[override]
        self.abort(messages)


def run(scale: Scale) -> list[Measure]:
    """Write rows of one column of 100 bytes from Parquet files to two brokers, a topic of two segments per round."""
    rows = min(ROWS_MAX, scale.spark_bytes // len(RECORD))
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", brokers=BROKERS) as cluster,
        seaweedmq.connect(cluster.bootstrap) as client,
        spark_session() as spark,
    ):
        table = text_table(rows, 1)
        files = _write(folder / "rows", table)
        spark.dataSource.register(StagedOnly)
        numbers = itertools.count()

        def topic() -> str:
            name = f"bench/sink-{next(numbers)}"
            client.admin.create_topic(name, segments=SEGMENTS, durability="replicated", scaling="fixed")
            return name

        def timed(work: Callable[[str], None], *, is_published: bool = True) -> float:
            """Return seconds; the topic then holds every row, and is deleted."""
            name = topic()
            began = time.perf_counter()
            work(name)
            took = time.perf_counter() - began
            found = sum(stats.high_watermark for stats in client.admin.topic_stats(name))
            if found != (rows if is_published else 0):
                raise AssertionError(f"{name} holds {found} of {rows} rows")
            client.admin.delete_topic(name)
            return took

        def batch(name: str, kind: str = "seaweedmq") -> None:
            frame = spark.read.parquet(str(files))
            frame.write.format(kind).mode("append").options(**_options(cluster, name)).save()

        def send(name: str) -> None:
            with client.publisher(name) as publisher:
                publisher.send_table(table.rename_columns(["_value"]))
                publisher.flush(timeout=120)

        contestants = {
            "batch": lambda: timed(batch),
            "stream": lambda: timed(lambda name: _stream(spark, files, folder, cluster, name)),
            "staged": lambda: timed(lambda name: batch(name, "staged_only"), is_published=False),
            "send_table": lambda: timed(send),
        }
        samples = interleaved(contestants, 1 if scale.quick else ROUNDS, warm_up=not scale.quick)
    both = [rows / (staged + sent) for staged, sent in zip(samples["staged"], samples["send_table"], strict=True)]
    beside = "the same rows staged, plus send_table of them"
    return [
        yardstick("rows staged by Spark", [rows / took for took in samples["staged"]], "records/s"),
        yardstick("send_table", [rows / took for took in samples["send_table"]], "records/s"),
        yardstick(beside, both, "records/s"),
        *(
            compared(
                f"spark_sink_{name}",
                [rows / took for took in samples[name]],
                "records/s",
                beside,
                both,
                ratio_min=scale.target(RATIO_MIN),
                records=rows,
            )
            for name in ("batch", "stream")
        ),
    ]


def _write(folder: Path, table: pa.Table) -> Path:
    folder.mkdir()
    named = table.rename_columns(["value"])
    step = -(-len(named) // FILES)
    for number in range(FILES):
        pq.write_table(named.slice(number * step, step), folder / f"{number}.parquet")
    return folder


def _stream(spark: SparkSession, files: Path, folder: Path, cluster: BenchCluster, name: str) -> None:
    frame: DataFrame = spark.readStream.schema("value binary").parquet(str(files))
    query = (
        frame.writeStream.format("seaweedmq")
        .options(**_options(cluster, name))
        .option("checkpointLocation", str(folder / name.replace("/", "-")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _options(cluster: BenchCluster, topic: str) -> dict[str, str]:
    return {"bootstrap": cluster.bootstrap, "storage": str(cluster.storage), "topic": topic}
