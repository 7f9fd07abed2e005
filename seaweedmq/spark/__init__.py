"""Spark access to topics in shared storage, at the speed of Spark's own Parquet reader.

Call :func:`read`::

    orders = seaweedmq.spark.read(spark, storage="/mnt/shared/mq", topic="shop/orders")

or use the format, which Spark discovers by itself where ``seaweedmq`` is installed::

    orders = spark.read.format("seaweedmq").options(storage="/mnt/shared/mq", topic="shop/orders").load()

In a thread of your own, call ``seaweedmq.spark.register(spark)`` first. Spark looks for formats in the active session
of the thread, and otherwise reports DATA_SOURCE_NOT_FOUND.

Both give the same rows and columns and take the same options. With ``bootstrap`` they also read records that are in no
file yet. The driver and the executors need ``pip install 'seaweedmq[spark]'``.
"""
# ruff: noqa: E402 - check_pyspark reports a missing or old PySpark before any of it is imported

from seaweedmq.spark.requirements import check_pyspark

check_pyspark()

import json
import os
import sys
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from seaweedmq.spark.lag import LagListener
from seaweedmq.spark.native import read_native
from seaweedmq.spark.options import SparkApi, check_names
from seaweedmq.spark.payloads import fetch
from seaweedmq.spark.source import FORMAT, SeaweedMQSource

__all__ = ["FORMAT", "LagListener", "fetch", "read", "register"]

_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = "2147483647"
"""Value that removes the limit on the bytes of an Arrow batch.

With a lower limit the JVM measures the batch after every row that it takes from Python. For maps (headers) it measures
the whole batch again: 85,000 instead of 1,300,000 rows a second. This package bounds its batches itself.
"""


def register(spark: SparkSession) -> None:
    """Configure a session for the format ``seaweedmq`` and register the format; idempotent.

    Enables filter push-down to Python data sources in this session: without it filters prune nothing. Removes the limit
    on the bytes of an Arrow batch unless the user set one, because the limit makes headers slow. On a local master,
    workers use the driver's interpreter unless ``PYSPARK_PYTHON`` or the configuration chooses one, so a virtual
    environment need not be activated.

    Makes the session the active one of this thread, where Spark looks for formats. Call it in each thread of your own
    that reads or writes topics: a new thread has no active session.
    """
    context = spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark does the same in createDataFrame
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    spark.conf.set(_PUSHDOWN, "true")
    if spark.conf.get(_BATCH_BYTES, None) is None:
        spark.conf.set(_BATCH_BYTES, _NO_LIMIT)
    try:
        spark.dataSource.register(SeaweedMQSource)
    except AnalysisException as e:
        if e.getCondition() != _KNOWN:  # Spark discovered the format by itself, and does not replace it
            raise


def read(
    spark: SparkSession,
    *,
    topic: str,
    storage: str | os.PathLike[str] | None = None,
    bootstrap: str | None = None,
    **options: Any,
) -> DataFrame:
    """Read a topic as it is now: each record once, even if its files are replaced meanwhile.

    Spark's own Parquet reader reads the tables. The data source reads the rest: records in log files only, or with
    ``bootstrap`` in no file yet. If Spark reads a column's type differently from SeaweedMQ, the data source reads
    everything, and a log line reports it.

    Args:
        spark: Session to read with; this call also registers the format.
        topic: Name of the topic, ``namespace/name``.
        storage: Root of the shared storage, a URI or a path. Without it, brokers serve all records.
        bootstrap: Addresses of brokers, ``host:port[,host:port]``; adds the records that they have committed.
        options: Options of ``spark.read.format("seaweedmq")``; JSON may be a dict, and columns a list.

    Returns:
        A DataFrame with the columns ``topic, segment, offset, timestamp, key, value, headers``, or the topic's own
            columns in place of ``value``. With ``includeReferences`` it also has ``reference``, and :func:`fetch` adds
            the payloads of a selection.

    Raises:
        InvalidArgument: If an option is unknown or breaks its rule, or if the storage does not exist.
        NotFound: If no such topic exists.
        OutOfRange: If retention removed an offset requested by number, or if an offset named for a segment lies beyond
            its end, unless ``failOnDataLoss`` is false.
        Corrupt: If a file is damaged or missing; the message names it.
        Unsupported: If a column has a type that Spark lacks.
        Unavailable: If no broker answers.
    """
    given = {"topic": topic, "storage": storage, "bootstrap": bootstrap, **options}
    texts = {name: _text(name, value) for name, value in given.items() if value is not None}
    named = check_names(texts, SparkApi.BATCH)
    register(spark)
    return read_native(spark, named)


def _text(name: str, value: Any) -> str:
    """Return the text of a value, as Spark options require."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list | tuple) and name.lower() == "columns":
        return json.dumps(list(map(str, value)))  # names may contain commas
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
