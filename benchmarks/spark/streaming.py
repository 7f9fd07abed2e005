"""Claim: a stream with the trigger AvailableNow reads a topic at 0.6 of the batch read of the same rows.

The batch read is that of the Python source, as the stream's is; the native read stands beside both without a target.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

import seaweedmq
import seaweedmq.spark
from benchmarks.cluster import running_cluster, scratch
from benchmarks.data import RECORD, text_table
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale
from benchmarks.spark.session import spark_session
from benchmarks.tables import CHUNK_BYTES, CONVERTING, NAME, TIMEOUT_S, table_files, until_in_tables

RATIO_MIN = 0.6
ROUNDS = 3
SEGMENTS = 4
"""Number of segments. A stream reads a segment in order, in one task: a topic of one segment has one core."""
TABLES_MIN = 32
"""Minimum number of tables, published one after another: each goes to one random segment."""
SHARE_OF_ROWS = 2
"""20 M rows of 100 bytes, where other parts take 10 M."""


def run(scale: Scale) -> list[Measure]:
    """Read all rows and columns into Spark's ``noop`` sink, by a query that starts over each time, and batch reads."""
    with scratch(scale.directory) as folder:
        data = folder / "data"
        count = _make_tables(data, SHARE_OF_ROWS * scale.spark_bytes)
        files = len(table_files(data))
        with spark_session() as spark:
            options = {"storage": str(data / "storage"), "topic": NAME}

            def batch() -> float:
                return rate(lambda: spark.read.format("seaweedmq").options(**options).load())

            def native() -> float:
                return rate(lambda: seaweedmq.spark.read(spark, **options))

            def rate(planned: Callable[[], DataFrame]) -> float:
                began = time.perf_counter()
                planned().write.format("noop").mode("overwrite").save()
                return count / (time.perf_counter() - began)

            def stream() -> float:
                frame = spark.readStream.format("seaweedmq").options(**options, startingOffsets="earliest").load()
                with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
                    began = time.perf_counter()
                    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
                    query = writer.trigger(availableNow=True).start()
                    query.awaitTermination()
                    took_s = time.perf_counter() - began
                rows = sum(progress.numInputRows for progress in query.recentProgress)
                if rows != count:
                    raise AssertionError(f"the stream read {rows} of {count} records")
                return count / took_s

            contestants = {"stream": stream, "batch": batch, "native": native}
            samples = interleaved(contestants, 1 if scale.quick else ROUNDS, warm_up=not scale.quick)
    of = "batch read of the same topic"
    return [
        yardstick(of, samples["batch"], "records/s"),
        compared(
            "spark_stream",
            samples["stream"],
            "records/s",
            of,
            samples["batch"],
            ratio_min=scale.target(RATIO_MIN),
            records=count,
            files=files,
            segments=SEGMENTS,
        ),
        compared("native read of the same topic", samples["native"], "records/s", of, samples["batch"]),
    ]


def _make_tables(data: Path, total_bytes: int) -> int:
    """Publish that many bytes to a topic of several segments, wait until tables hold them, and return the records."""
    count = total_bytes // len(RECORD)
    chunk = min(CHUNK_BYTES // len(RECORD), max(1, count // TABLES_MIN))
    with running_cluster(data, settings=CONVERTING) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
        client.admin.create_topic(NAME, segments=SEGMENTS, durability="replicated", scaling="fixed")
        with client.publisher(NAME) as publisher:
            for seed, at in enumerate(range(0, count, chunk)):
                publisher.send_table(text_table(min(chunk, count - at), seed, len(RECORD)))
            publisher.flush(timeout=TIMEOUT_S)
        until_in_tables(data, count)
    return count
