"""Jobs on the tables of a topic, distributed over Spark's executors; only imports need a broker.

::

    from seaweedmq.spark import jobs

    jobs.compact(spark, storage="/mnt/shared/mq", topic="shop/orders")
    jobs.verify(spark, storage="/mnt/shared/mq", topic="shop/orders").differences
    jobs.history(storage="/mnt/shared/mq", topic="shop/orders")
    jobs.import_files(
        spark, ["rows.csv"], "csv", storage="/mnt/shared/mq", topic="shop/orders", bootstrap="127.0.0.1:17777"
    )

``storage.jobs`` does the same without Spark, in one process.
"""

from pyspark.sql import SparkSession

from seaweedmq.core.files.compaction import TARGET_BYTES
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.jobs.importing import import_files
from seaweedmq.spark.jobs.tasks import SparkRun
from seaweedmq.storage.jobs.compacting import Compaction, compact_topic
from seaweedmq.storage.jobs.rebuilding import Rebuilt, rebuild_topic
from seaweedmq.storage.jobs.run import Progress, no_progress
from seaweedmq.storage.jobs.verifying import Verified, verify_topic
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.delta import versions
from seaweedmq.storage.tables.delta.versions import Version

__all__ = [
    "Compaction",
    "Progress",
    "Rebuilt",
    "Verified",
    "Version",
    "compact",
    "history",
    "import_files",
    "rebuild",
    "verify",
]


def compact(
    spark: SparkSession, *, storage: str, topic: str, target_bytes: int = TARGET_BYTES, progress: Progress = no_progress
) -> Compaction:
    """Merge the small tables of a topic into larger ones; see ``storage.jobs.compacting``.

    Damage in a table is not an error: the table stays, and the result lists it in ``problems``.

    Args:
        spark: Session whose executors do the work.
        storage: Root of the storage that the brokers use, mounted on every executor.
        topic: Name of the topic, ``namespace/name``.
        target_bytes: Target size of a table, in bytes.
        progress: Callback that gets the bytes of merged tables, and of all tables to merge.

    Raises:
        InvalidArgument: If the storage does not exist, or an argument breaks its rule.
        NotFound: If no such topic exists.
        Corrupt: If the topic's metadata is damaged.
        StorageFailed: If a file cannot be read or written.
    """
    place, name = parse_place(storage), TopicName.parse(topic)
    return compact_topic(place, name, target_bytes=target_bytes, progress=progress, run=SparkRun(spark))


def verify(spark: SparkSession, *, storage: str, topic: str, progress: Progress = no_progress) -> Verified:
    """Read every page of every table, and compare it with the log files; see ``storage.jobs.verifying``.

    Arguments and errors are those of :func:`compact`; ``progress`` gets the bytes that are verified, and the total.
    """
    place, name = parse_place(storage), TopicName.parse(topic)
    return verify_topic(place, name, progress=progress, run=SparkRun(spark))


def rebuild(spark: SparkSession, *, storage: str, topic: str, progress: Progress = no_progress) -> Rebuilt:
    """Rebuild missing or damaged tables from log files, and the Delta log from the tables.

    See ``storage.jobs.rebuilding``. Arguments and errors are those of :func:`compact`; ``progress`` gets the bytes that
    are done, and the total.
    """
    place, name = parse_place(storage), TopicName.parse(topic)
    return rebuild_topic(place, name, progress=progress, run=SparkRun(spark))


def history(*, storage: str, topic: str) -> list[Version]:
    """Return the retained versions of the topic's Delta table, oldest first; needs no Spark.

    Arguments and errors are those of :func:`compact`, with NotFound and Corrupt also for the Delta log.
    """
    place, name = parse_place(storage), TopicName.parse(topic)
    read_snapshot(place, name, ())  # for its errors, which are those of the other jobs
    return versions.history(place, name)
