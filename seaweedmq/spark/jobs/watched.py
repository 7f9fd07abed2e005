"""A write to a topic that tells how far it is: Spark knows of its tasks, and the sink notes what it has published."""

import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.util import inheritable_thread_target

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.options import WRITE_ID
from seaweedmq.spark.write.sink import new_write_id
from seaweedmq.storage.staging import StagedBatch, StagedSink
from seaweedmq.storage.store.files import open_store

LOOK_S: Final = 0.5


def save_watched(
    spark: SparkSession, writer: DataFrameWriter, storage: str, topic: str, tell: Callable[[float], None]
) -> None:
    """``writer.save()``, which takes the format and all options of ours already.

    Saved in this thread and watched from another: Spark looks for formats in the session that is active in a thread.

    Args:
        tell: called in that other thread with the part that is done, from 0 to 1, never with less than before; in the
            end in this one. A half is done when all rows are staged, the other when they are published: what takes
            longer depends on the files and on the cluster.

    Raises:
        What ``save`` raises.
    """
    context, write_id = spark.sparkContext, new_write_id()
    batch = StagedSink(open_store(storage).root, TopicName.parse(topic), write_id).batch(0)
    ended = threading.Event()

    def watch() -> None:
        done = 0.0
        while not ended.wait(LOOK_S):
            done = max(done, (_staged(spark, write_id) + _published(batch)) / 2)
            tell(done)

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
    tell(1.0)


def _staged(spark: SparkSession, tag: str) -> float:
    """The part of its tasks that have ended."""
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
    """The part of its rows that the sink has noted. A note that can not be read is no reason to end what goes on."""
    try:
        manifest = batch.manifest()
        return 0.0 if manifest is None else batch.progress().record_count / max(1, manifest.record_count)
    except SeaweedMQError:
        return 0.0
