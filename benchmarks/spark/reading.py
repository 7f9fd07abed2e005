"""Claims: ``seaweedmq.spark.read`` reads a topic at 0.95 of ``spark.read.parquet`` of the same files; a count, one
column and one percent of the offsets at 0.6 of it, and in a quarter of the time of all; the Python source at 0.65."""

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
from benchmarks.spark.session import spark_session
from benchmarks.tables import NAME, WIDE, make_tables, table_files, topic_folder

NATIVE_RATIO_MIN = 0.95
SOURCE_RATIO_MIN = 0.65
PART_RATIO_MIN = 0.6
PART_SPEEDUP_MIN = 4.0
ROUNDS = 5
SAME_COLUMNS = "segment,offset,timestamp,key,headers,value"
"""What the Parquet files have; ``topic`` is ours alone."""
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
SPARKS_OWN = str(64 * 1024 * 1024)


def run(scale: Scale) -> list[Measure]:
    """All rows into Spark's ``noop`` sink, which takes every value and does nothing; and parts of them."""
    with scratch(scale.directory) as folder:
        data = folder / "data"
        count = make_tables(data, scale.spark_bytes, wide_rows=scale.spark_bytes // 250)
        with spark_session() as spark:
            reading = Reading(spark, data, count, 1 if scale.quick else ROUNDS, warm_up=not scale.quick)
            reading.check()
            measures = reading.of_all("before compaction", with_source=True)
            if not scale.quick:
                measures += reading.of_parts()
    return measures


class Reading:
    """One topic of text records and one of ten columns, in the tables that brokers made of their logs."""

    def __init__(self, spark: SparkSession, data: Path, count: int, rounds: int, *, warm_up: bool) -> None:
        self.spark = spark
        self.data = data
        self.count = count
        self.rounds = rounds
        self.warm_up = warm_up
        self.all_s = 0.0
        """Seconds of the native read of everything."""

    def native(self, topic: str = NAME, **options: Any) -> DataFrame:
        return seaweedmq.spark.read(self.spark, storage=self.data / "storage", topic=topic, **options)

    def source(self, **options: str) -> DataFrame:
        given = {"storage": str(self.data / "storage"), "topic": NAME, "columns": SAME_COLUMNS, **options}
        return self.spark.read.format("seaweedmq").options(**given).load()

    def parquet(self, topic: str = NAME) -> DataFrame:
        return self.spark.read.parquet(str(topic_folder(self.data, topic) / "table"))

    def check(self) -> None:
        """Every face finds every record."""
        for frame in (self.native(), self.source(), self.parquet()):
            if (found := frame.count()) != self.count:
                raise AssertionError(f"Spark finds {found} of {self.count} records")

    def of_all(self, when: str, *, with_source: bool) -> list[Measure]:
        """Every column of every record; ``when`` names the state of the files."""
        contestants: dict[str, Callable[[], float]] = {
            "native": lambda: self.rate(lambda: all_of(self.native(columns=SAME_COLUMNS))),
            "parquet": lambda: self.rate(lambda: all_of(self.parquet())),
        }
        if with_source:
            contestants["source"] = lambda: self.rate(lambda: all_of(self.source()))
        if with_source and self.warm_up:
            contestants["source, Spark's limit"] = self.with_sparks_limit
        samples = interleaved(contestants, self.rounds, warm_up=self.warm_up)
        self.all_s = self.count / max(samples["native"])
        of, parquet = f"spark.read.parquet, {when}", samples["parquet"]
        details = {"records": self.count, "files": len(table_files(self.data))}
        measures = [yardstick(of, parquet, "records/s", **details)]
        measures.append(
            compared(f"spark_native, {when}", samples["native"], "records/s", of, parquet, ratio_min=NATIVE_RATIO_MIN)
        )
        if with_source:
            found = samples["source"]
            measures.append(compared("spark_read", found, "records/s", of, parquet, ratio_min=SOURCE_RATIO_MIN))
        if "source, Spark's limit" in samples:
            name = f"spark_read, {BATCH_BYTES} as Spark has it"
            measures.append(compared(name, samples["source, Spark's limit"], "records/s", of, parquet))
        return measures

    def of_parts(self) -> list[Measure]:
        """What needs a part of the files only."""
        low = self.count // 2
        high = low + self.count // 100
        wide = self.parquet(WIDE).count()
        parts: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
            "count": (lambda: self.native().count(), lambda: self.parquet().count(), self.count),
            "one column of ten": (
                lambda: self.native(WIDE).agg(F.sum("c3")).collect(),
                lambda: self.parquet(WIDE).agg(F.sum("c3")).collect(),
                wide,
            ),
            "1 % of the offsets": (
                lambda: all_of(self.native(columns=SAME_COLUMNS, startingOffsets=low, endingOffsets=high)),
                lambda: all_of(self.parquet().where(f"_offset >= {low} and _offset < {high}")),
                self.count,
            ),
        }
        measures: list[Measure] = []
        for name, (ours, theirs, rows) in parts.items():
            contestants = {"native": partial(self.rate, ours, rows), "parquet": partial(self.rate, theirs, rows)}
            samples = interleaved(contestants, self.rounds)
            of = f"spark.read.parquet, {name}"
            speedup = self.all_s * max(samples["native"]) / rows
            measures.append(yardstick(of, samples["parquet"], "records/s"))
            measures.append(
                compared(
                    f"spark_native, {name}",
                    samples["native"],
                    "records/s",
                    of,
                    samples["parquet"],
                    ratio_min=PART_RATIO_MIN,
                    times_faster_than_all=round(speedup, 1),
                    wanted=PART_SPEEDUP_MIN,
                )
            )
        return measures

    def rate(self, read: Callable[[], object], rows: int | None = None) -> float:
        """Records a second, planning included."""
        began = time.perf_counter()
        read()
        return (rows or self.count) / (time.perf_counter() - began)

    def with_sparks_limit(self) -> float:
        """The source in a session whose user set the bytes of a batch to what Spark begins with."""
        ours = self.spark.conf.get(BATCH_BYTES)
        self.spark.conf.set(BATCH_BYTES, SPARKS_OWN)
        try:
            return self.rate(lambda: all_of(self.source()))
        finally:
            self.spark.conf.set(BATCH_BYTES, str(ours))


def all_of(frame: DataFrame) -> None:
    """Every value of every row."""
    frame.write.format("noop").mode("overwrite").save()
