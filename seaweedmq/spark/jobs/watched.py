"""Write to a topic with progress reports, from Spark's task counts and the sink's notes of published rows."""

import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.util import inheritable_thread_target

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.options import WRITE_ID
from seaweedmq.spark.write.sink import new_write_id
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.staging import StagedBatch, StagedSink

POLL_INTERVAL_S: Final = 0.5


def save_watched(
    spark: SparkSession, writer: DataFrameWriter, storage: str, topic: str, report: Callable[[float], None]
) -> None:
    """Run ``writer.save()`` in this thread, and report its progress from another.

    Spark looks for formats in the active session of a thread. ``report`` gets the finished part, from 0 to 1, never
    decreasing. The other thread calls it, and at the end this one. Staging all rows counts one half, publishing them
    the other: their durations depend on files and cluster.
    """
    context, write_id = spark.sparkContext, new_write_id()
    batch = StagedSink(parse_place(storage), TopicName.parse(topic), write_id).batch(0)
    ended = threading.Event()

    def watch() -> None:
        done = 0.0
        while not ended.wait(POLL_INTERVAL_S):
            done = max(done, (_staged(spark, write_id) + _published(batch)) / 2)
            report(done)

    begun: Any = inheritable_thread_target(spark)(watch)
    watching = threading.Thread(target=begun, name="seaweedmq-watch", daemon=True)
    context.addJobTag(write_id)
    watching.start()
    try:
        writer.option(WRITE_ID, write_id).save()
    finally:
        ended.set()
        watching.join()
        context.removeJobTag(write_id)
    report(1.0)


def _staged(spark: SparkSession, tag: str) -> float:
    """Return the finished part of the write's tasks."""
    tracker = spark.sparkContext.statusTracker()
    ended = total = 0
    for job in spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag):  # noqa: SLF001 - PySpark has groups alone
        found = tracker.getJobInfo(job)
        for number in found.stageIds if found is not None else ():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                ended += stage.numCompletedTasks
                total += stage.numTasks
    return min(1.0, ended / total) if total else 0.0


def _published(batch: StagedBatch) -> float:
    """Return the part of the rows that the sink has noted; 0 if the note cannot be read, since the write continues."""
    try:
        manifest = batch.manifest()
        return 0.0 if manifest is None else batch.progress().record_count / max(1, manifest.record_count)
    except SeaweedMQError:
        return 0.0
