"""``spark.readStream.format("seaweedmq")`` for its users, on real Spark."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import seaweedmq.spark
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

TIMEOUT_S = 100


class Copy:
    """A query that copies a topic into a list of rows, a batch at a time."""

    def __init__(self, spark: SparkSession, files: TopicFiles, checkpoint: Path, **options: object) -> None:
        self._spark = spark
        self._files = files
        self._checkpoint = checkpoint
        self._options = options
        self.batches: dict[int, list[tuple[int, int]]] = {}
        """Segment and offset of each row, in the order of the tasks."""
        self.before: Callable[[int], None] = lambda _: None

    def load(self) -> DataFrame:
        reader = self._spark.readStream.format("seaweedmq").option("storage", str(self._files.root))
        reader = reader.option("topic", str(self._files.name)).option("startingOffsets", "earliest")
        for name, value in self._options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def _take(self, frame: DataFrame, batch: int) -> None:
        self.before(batch)
        self.batches[batch] = [(row.segment, row.offset) for row in frame.select("segment", "offset").collect()]

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self.load().writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def run(self) -> StreamingQuery:
        """Process all current records."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()
        return query

    @property
    def rows(self) -> list[tuple[int, int]]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def offset(self, batch: int) -> Any:
        return json.loads((self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def numbered(segment: int, *offsets: range) -> list[tuple[int, int]]:
    return [(segment, offset) for each in offsets for offset in each]


@pytest.mark.deep
def test_a_copy_continues_through_splits_and_merges(spark: SparkSession, orders: TopicFiles, checkpoint: Path) -> None:
    copy = Copy(spark, orders, checkpoint)
    orders.table(0, 40)
    orders.table(40, 60, keep_log=True)
    copy.run()
    assert (copy.rows, copy.offset(0)) == (numbered(0, range(60)), {"segments": {"0": 60}, "uid": 7, "v": 1})

    orders.log(60, 75)
    orders.split(0, 75)
    orders.table(75, 90, segment=1)
    orders.table(75, 85, segment=2)
    copy.run()
    assert copy.rows[60:75] == numbered(0, range(60, 75))
    assert sorted(copy.rows[75:]) == numbered(1, range(75, 90)) + numbered(2, range(75, 85))

    orders.merge([1, 2], [95, 85])
    orders.log(90, 95, segment=1)
    orders.table(95, 99, segment=3)
    orders.compact(0, 0, 60)
    copy.run()
    assert copy.rows[100:] == [*numbered(1, range(90, 95)), *numbered(3, range(95, 99))]
    assert copy.offset(max(copy.batches)) == {"segments": {"3": 99}, "uid": 7, "v": 1}


def test_progress_and_listener_report_the_lag(spark: SparkSession, orders: TopicFiles, checkpoint: Path) -> None:
    orders.table(0, 100)
    lines: list[str] = []
    told = threading.Event()
    listener = seaweedmq.spark.LagListener(lambda line: (lines.append(line), told.set())[0])
    spark.streams.addListener(listener)
    try:
        copy = Copy(spark, orders, checkpoint, maxRecordsPerTrigger=60)
        query = copy.start(processingTime="0 seconds")
        try:
            query.processAllAvailable()
            assert told.wait(TIMEOUT_S)
            progress = [p for p in query.recentProgress if p.numInputRows]
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(listener)
    latest = [json.loads(p.sources[0].latestOffset) for p in progress]
    assert ([offset["behind"] for offset in latest], latest[0]["segments"]) == ([40, 0], {"0": 100})
    assert json.loads(progress[0].sources[0].endOffset)["segments"] == {"0": 60}
    assert "60 rows" in lines[0]
    assert lines[0].endswith(" 40 records behind")
