"""Claims: ``seaweedmq.spark.read`` reads a topic at 0.95 of ``spark.read.parquet`` of the same files, before a
compaction and after it; a count, one column of ten and one percent of the offsets at 0.6 of it, and four times as fast
as all of the same topic; the Python source reads at 0.65 of it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import seaweedmq.spark
from benchmarks.cluster import scratch
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale
from benchmarks.spark.session import all_of, spark_session
from benchmarks.tables import NAME, WIDE, make_tables, table_files, topic_folder
from seaweedmq.spark import jobs

ROWS_MAX = 4_000_000
RECORD_BYTES = 132
TABLES = 16
"""Number of tables before the compaction, which makes one or two of them."""
WIDE_ROW_BYTES = 250
NATIVE_RATIO_MIN = 0.95
SOURCE_RATIO_MIN = 0.65
PART_RATIO_MIN = 0.6
PART_SPEEDUP_MIN = 4.0
ROUNDS = 5
SAME_COLUMNS = "segment,offset,timestamp,key,headers,value"
"""Columns of the Parquet files; only SeaweedMQ has ``topic``."""
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
SPARKS_OWN = str(64 * 1024 * 1024)


def run(scale: Scale) -> list[Measure]:
    """Read all rows into Spark's ``noop`` sink, which takes every value and does nothing; and parts of them."""
    total_bytes = min(ROWS_MAX * RECORD_BYTES, scale.spark_bytes)
    wide_rows = scale.spark_bytes // WIDE_ROW_BYTES
    with scratch(scale.directory) as folder:
        data = folder / "data"
        count = make_tables(data, total_bytes, RECORD_BYTES, tables=TABLES, wide_rows=wide_rows)
        with spark_session() as spark:
            reading = Reading(spark, data, count, wide_rows, scale)
            reading.check()
            measures = reading.of_all("before compaction", with_source=True)
            if scale.quick and not scale.parts:
                return measures  # `make bench-quick` has two minutes for everything
            measures += reading.of_parts()
            reading.compact()
            reading.check()
            measures += reading.of_all("after compaction", with_source=False)
    return measures


class Reading:
    """One topic of text records and one of ten columns, in the tables that brokers made of their logs."""

    def __init__(self, spark: SparkSession, data: Path, count: int, wide_count: int, scale: Scale) -> None:
        self.spark = spark
        self.data = data
        self.count = count
        self.wide_count = wide_count
        self.scale = scale
        self.rounds = 1 if scale.quick else ROUNDS
        self.warm_up = not scale.quick

    def native(self, topic: str = NAME, **options: Any) -> DataFrame:
        return seaweedmq.spark.read(self.spark, storage=self.data / "storage", topic=topic, **options)

    def source(self, **options: str) -> DataFrame:
        given = {"storage": str(self.data / "storage"), "topic": NAME, "columns": SAME_COLUMNS, **options}
        return self.spark.read.format("seaweedmq").options(**given).load()

    def parquet(self, topic: str = NAME) -> DataFrame:
        return self.spark.read.parquet(str(topic_folder(self.data, topic) / "table"))

    def check(self) -> None:
        """Check that both readers find every record."""
        for frame in (self.native(), self.source(), self.parquet()):
            if (found := frame.count()) != self.count:
                raise AssertionError(f"Spark finds {found} of {self.count} records")

    def compact(self) -> None:
        """Run `seaweedmq table compact` with its defaults: it has tables to merge."""
        before = len(table_files(self.data))
        done = jobs.compact(self.spark, storage=str(self.data / "storage"), topic=NAME)
        after = len(table_files(self.data))
        if done.problems or not after < before or done.merged != before:
            raise AssertionError(f"{done.merged} of {before} tables were merged, {after} are left: {done.problems}")

    def of_all(self, when: str, *, with_source: bool) -> list[Measure]:
        """Read every column of every record; ``when`` names the state of the files."""
        contestants: dict[str, Callable[[], float]] = {
            "native": lambda: self.rate(lambda: all_of(self.native(columns=SAME_COLUMNS))),
            "parquet": lambda: self.rate(lambda: all_of(self.parquet())),
        }
        if with_source:
            contestants["source"] = lambda: self.rate(lambda: all_of(self.source()))
        if with_source and self.warm_up:
            contestants["source, Spark's limit"] = self.with_sparks_limit
        samples = interleaved(contestants, self.rounds, warm_up=self.warm_up)
        target = self.scale.target
        of, parquet = f"spark.read.parquet, {when}", samples["parquet"]
        details = {"records": self.count, "files": len(table_files(self.data))}
        measures = [yardstick(of, parquet, "records/s", **details)]
        name, found, wanted = f"spark_native, {when}", samples["native"], target(NATIVE_RATIO_MIN)
        measures.append(compared(name, found, "records/s", of, parquet, ratio_min=wanted))
        if with_source:
            found, wanted = samples["source"], target(SOURCE_RATIO_MIN)
            measures.append(compared("spark_read", found, "records/s", of, parquet, ratio_min=wanted))
        if "source, Spark's limit" in samples:
            name = f"spark_read, {BATCH_BYTES} as Spark has it"
            measures.append(compared(name, samples["source, Spark's limit"], "records/s", of, parquet))
        return measures

    def of_parts(self) -> list[Measure]:
        """Read parts of the files, beside the same of plain Parquet and beside all of the same topic.

        Rates are in records of the whole topic, for any part of it, so that their ratio is that of the times.
        """
        low = self.count // 2
        high = low + self.count // 100
        whole, wide = partial(self.native, columns=SAME_COLUMNS), partial(self.native, WIDE)
        return [
            *self.of_part(
                "count",
                lambda: self.native().count(),
                lambda: self.parquet().count(),
                lambda: all_of(whole()),
                self.count,
            ),
            *self.of_part(
                "one column of ten",
                lambda: wide().agg(F.sum("c3")).collect(),
                lambda: self.parquet(WIDE).agg(F.sum("c3")).collect(),
                lambda: all_of(wide()),
                self.wide_count,
            ),
            *self.of_part(
                "1 % of the offsets",
                lambda: all_of(whole(startingOffsets=low, endingOffsets=high)),
                lambda: all_of(self.parquet().where(f"_offset >= {low} and _offset < {high}")),
                lambda: all_of(whole()),
                self.count,
            ),
        ]

    def of_part(
        self,
        name: str,
        part: Callable[[], object],
        of_parquet: Callable[[], object],
        whole: Callable[[], object],
        records: int,
    ) -> list[Measure]:
        """Read one part, with its two yardsticks in the same rounds."""
        contestants = {
            "part": partial(self.rate, part, records),
            "parquet": partial(self.rate, of_parquet, records),
            "whole": partial(self.rate, whole, records),
        }
        samples = interleaved(contestants, self.rounds, warm_up=self.warm_up)
        ours, target = samples["part"], self.scale.target
        plain, full = f"spark.read.parquet, {name}", f"full native read, beside {name}"
        faster = f"spark_native, {name}, faster than the full read"
        return [
            yardstick(plain, samples["parquet"], "records/s"),
            yardstick(full, samples["whole"], "records/s"),
            compared(
                f"spark_native, {name}", ours, "records/s", plain, samples["parquet"], ratio_min=target(PART_RATIO_MIN)
            ),
            compared(faster, ours, "records/s", full, samples["whole"], ratio_min=target(PART_SPEEDUP_MIN)),
        ]

    def rate(self, read: Callable[[], object], records: int | None = None) -> float:
        """Return records per second, planning included; None: those of the topic of text."""
        began = time.perf_counter()
        read()
        return (records or self.count) / (time.perf_counter() - began)

    def with_sparks_limit(self) -> float:
        """Return the source in a session whose user set the bytes of a batch to Spark's default."""
        ours = self.spark.conf.get(BATCH_BYTES)
        self.spark.conf.set(BATCH_BYTES, SPARKS_OWN)
        try:
            return self.rate(lambda: all_of(self.source()))
        finally:
            self.spark.conf.set(BATCH_BYTES, str(ours))
