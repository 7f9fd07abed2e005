"""Claim: a topic of 1,000 small tables is read in half the time after a compaction, which costs Spark's own read and
write of the same Parquet divided by 0.7 at most."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import seaweedmq.spark
from benchmarks.cluster import scratch
from benchmarks.data import text_table
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale
from benchmarks.spark.session import all_of, spark_session
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, table_dir
from seaweedmq.codec.state.documents import lineage_document, topic_document
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.spark import jobs
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables.files import DirectoryTarget
from seaweedmq.storage.tables.format import TableFile

FILES, FILES_QUICK = 1_000, 50
ROWS = (1_000, 4_000)
ROUNDS = 5
FASTER_MIN = 2.0
RATIO_MIN = 0.7
NAME = TopicName("bench", "small")
STEP_US = 1_000


def run(scale: Scale) -> list[Measure]:
    """Pass every small file through Spark into two large ones, and through a compaction, and read all before and after
    it, in each round."""
    files, rounds = (FILES_QUICK, 1) if scale.quick else (FILES, ROUNDS)
    with scratch(scale.directory) as folder, spark_session() as spark:
        small, large = folder / "small", folder / "large"
        rows = make_small_tables(small, files)
        link_topic(small, large)
        found = jobs.compact(spark, storage=str(large), topic=str(NAME))
        if found.tables_before != files or found.problems:
            raise AssertionError(f"compacted {found.tables_before} of {files} tables: {found.problems}")
        numbers: Iterator[int] = iter(range(10_000))

        def compaction() -> float:
            root = folder / f"compact-{next(numbers)}"
            link_topic(small, root)
            began = time.perf_counter()
            jobs.compact(spark, storage=str(root), topic=str(NAME))
            took = time.perf_counter() - began
            shutil.rmtree(root)
            return rows / took

        def rewrite() -> float:
            out = folder / f"rewrite-{next(numbers)}"
            began = time.perf_counter()
            frame = spark.read.parquet(str(small / table_dir(NAME)))
            frame.coalesce(2).write.option("compression", "zstd").parquet(str(out))
            took = time.perf_counter() - began
            shutil.rmtree(out)
            return rows / took

        samples = interleaved(
            {
                "rewrite": rewrite,
                "compaction": compaction,
                "before": lambda: rows / native_s(spark, small),
                "after": lambda: rows / native_s(spark, large),
                "source before": lambda: rows / source_s(spark, small),
                "source after": lambda: rows / source_s(spark, large),
            },
            rounds,
            warm_up=not scale.quick,
        )
    sizes = {"files": files, "records": rows, "tables_after": found.tables_after}
    return [
        yardstick("spark read and write of small files", samples["rewrite"], "records/s", **sizes),
        compared(
            "table_compact",
            samples["compaction"],
            "records/s",
            "spark read and write of small files",
            samples["rewrite"],
            ratio_min=scale.target(RATIO_MIN),
            **sizes,
        ),
        yardstick("full native read before compaction", samples["before"], "records/s", **sizes),
        compared(
            "full_read_after_compaction",
            samples["after"],
            "records/s",
            "full native read before compaction",
            samples["before"],
            ratio_min=scale.target(FASTER_MIN),
            **sizes,
        ),
        yardstick("the same by the Python source", samples["source before"], "records/s", **sizes),
        compared(
            "full_read_by_the_source_after_compaction",
            samples["source after"],
            "records/s",
            "the same by the Python source",
            samples["source before"],
            **sizes,
        ),
    ]


def native_s(spark: SparkSession, root: Path) -> float:
    """Return the seconds to read all columns of all records with ``seaweedmq.spark.read``, planning included."""
    began = time.perf_counter()
    all_of(seaweedmq.spark.read(spark, storage=root, topic=str(NAME)))
    return time.perf_counter() - began


def source_s(spark: SparkSession, root: Path) -> float:
    """Return the same with the data source, which spends most of it on moving rows between Python and the JVM."""
    began = time.perf_counter()
    all_of(spark.read.format("seaweedmq").options(storage=str(root), topic=str(NAME)).load())
    return time.perf_counter() - began


def make_small_tables(root: Path, files: int) -> int:
    """Create a topic with so many tables of 1,000 to 4,000 rows of 100-byte values, keys and times; return its rows."""
    topic = Topic(
        name=NAME,
        uid=1,
        replicas=1,
        durability=Durability.STORED,
        scaling=Scaling.FIXED,
        schema=None,
        retention_s=None,
        retention_bytes=None,
        next_segment=1,
        created_us=0,
    )
    counts = np.random.default_rng(1).integers(ROWS[0], ROWS[1], files, endpoint=True)
    total = int(counts.sum())
    segment = Segment(
        topic=NAME,
        id=0,
        slots=WHOLE_RING,
        epoch=1,
        state=SegmentState.SEALED,
        replicas=("b-1",),
        end_offset=total,
    )
    documents = {
        TOPIC_DOCUMENT: topic_document(topic),
        LINEAGE_DOCUMENT: lineage_document(NAME, [segment]),
    }
    for name, content in documents.items():
        path = root / document_path(NAME, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / table_dir(NAME)).mkdir()
    target = DirectoryTarget(DirectoryPlace(root), NAME, 0)
    values = text_table(total, 0).column("_value").combine_chunks()
    base = 0
    for count in map(int, counts):
        sink = target.create()
        file = TableFile(sink, topic, None)
        offsets = np.arange(base, base + count)
        columns = {
            "_segment": pa.array(np.zeros(count, np.int32)),
            "_offset": pa.array(offsets),
            "_timestamp": pa.array(1_700_000_000_000_000 + STEP_US * offsets).cast(pa.timestamp("us", "UTC")),
            "_key": pa.array([b"customer-%08d" % (n % 100_000) for n in offsets], pa.binary()),
            "_headers": pa.nulls(count, pa.map_(pa.string(), pa.binary())),
            "_value": values.slice(base, count),
        }
        file.write(pa.Table.from_arrays([columns[name] for name in file.schema.names], schema=file.schema))
        file.close()
        target.publish(sink, base, base + count)
        base += count
    return total


def link_topic(source: Path, root: Path) -> None:
    """Link the topic into another storage: a compaction removes names and changes no file."""
    for path in source.rglob("*"):
        if path.is_file():
            other = root / path.relative_to(source)
            other.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, other)
