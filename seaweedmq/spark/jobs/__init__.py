"""Jobs on the tables of a topic, shared out over Spark's executors: they disturb no broker, and only imports need one.

::

    from seaweedmq.spark import jobs

    jobs.compact(spark, storage="/mnt/shared/mq", topic="shop/orders")
    jobs.verify(spark, storage="/mnt/shared/mq", topic="shop/orders").differences
    jobs.history(storage="/mnt/shared/mq", topic="shop/orders")
    jobs.import_files(
        spark, ["rows.csv"], "csv", storage="/mnt/shared/mq", topic="shop/orders", bootstrap="127.0.0.1:17777"
    )

The same without Spark, in one process: ``storage.jobs``.
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
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.store.files import open_store
from seaweedmq.storage.tables import delta_versions
from seaweedmq.storage.tables.delta_versions import Version

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
    spark: SparkSession,
    *,
    storage: str,
    topic: str,
    target_bytes: int = TARGET_BYTES,
    progress: Progress = no_progress,
) -> Compaction:
    """Merge the small tables of a topic into ones of about ``target_bytes``: see ``storage.jobs.compacting``.

    Args:
        storage: root of the storage, as the brokers were started with; mounted on every executor.
        progress: called with the bytes of tables that are merged, and of all that are to be.

    Raises:
        InvalidArgument, NotFound, Corrupt, StorageFailed: as ``compact_topic``. Damage in some tables is no error: they
            are left, and among the ``problems`` of the result.
    """
    root, name = open_store(storage).root, TopicName.parse(topic)
    return compact_topic(root, name, target_bytes=target_bytes, progress=progress, run=SparkRun(spark))


def verify(spark: SparkSession, *, storage: str, topic: str, progress: Progress = no_progress) -> Verified:
    """Read every page of every table, and compare with what log files hold: see ``storage.jobs.verifying``.

    Raises:
        InvalidArgument, NotFound, Corrupt, StorageFailed: as ``verify_topic``.
    """
    root, name = open_store(storage).root, TopicName.parse(topic)
    return verify_topic(root, name, progress=progress, run=SparkRun(spark))


def rebuild(spark: SparkSession, *, storage: str, topic: str, progress: Progress = no_progress) -> Rebuilt:
    """Make tables that are missing or damaged from log files, and the Delta log from the tables: see
    ``storage.jobs.rebuilding``.

    Raises:
        InvalidArgument, NotFound, Corrupt, StorageFailed: as ``rebuild_topic``.
    """
    root, name = open_store(storage).root, TopicName.parse(topic)
    return rebuild_topic(root, name, progress=progress, run=SparkRun(spark))


def history(*, storage: str, topic: str) -> list[Version]:
    """The versions of the topic's Delta table that are remembered, oldest first. Spark is not needed for that.

    Raises:
        InvalidArgument: there is no such directory. NotFound: no such topic, or it has no Delta log.
        Corrupt, StorageFailed: as ``delta_versions.history``.
    """
    root, name = open_store(storage).root, TopicName.parse(topic)
    read_snapshot(root, name, ())  # its errors, as those of the other jobs
    return delta_versions.history(root, name)
