"""Spark reads topics from the shared storage, at the speed of its own Parquet reader::

    orders = seaweedmq.spark.read(spark, storage="/mnt/shared/mq", topic="shop/orders")

or as a format, which Spark finds by itself where ``seaweedmq`` is installed::

    orders = spark.read.format("seaweedmq").options(storage="/mnt/shared/mq", topic="shop/orders").load()

In a thread of your own call ``seaweedmq.spark.register(spark)`` first: Spark looks for formats in the session that is
active in a thread, and otherwise says DATA_SOURCE_NOT_FOUND.

Both give the same rows and columns, take the same options, and with ``bootstrap`` also what is in no file yet. Needs
``pip install 'seaweedmq[spark]'`` on the driver and on the executors.
"""
# ruff: noqa: E402 - an old PySpark, or none, is told of before anything of it is imported

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
from seaweedmq.spark.source import FORMAT, SeaweedMQSource

__all__ = ["FORMAT", "LagListener", "read", "register"]

_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = "2147483647"
"""With less the JVM measures the batch after every row it takes from Python, which for maps (headers) means all of it
again: 85,000 instead of 1,300,000 rows a second. How large a batch is we see to ourselves."""


def register(spark: SparkSession) -> None:
    """Set a session up for the format ``seaweedmq``, and make the format known to it; twice is no error.

    Turns filter push-down to Python data sources on in this session: without it nothing is pruned by filters.
    Takes the limit off the bytes of an Arrow batch unless the user set one: it makes headers slow. On a local master
    whose Python is not chosen by ``PYSPARK_PYTHON`` or the configuration, workers use the driver's interpreter, so that
    a virtual environment need not be activated.

    Makes the session the active one of this thread, in which Spark looks for formats: call it in each thread of your
    own that reads or writes topics, since a new thread has no active session.
    """
    context = spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
    jvm: Any = spark._jvm  # noqa: SLF001 - as PySpark does itself in createDataFrame
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    spark.conf.set(_PUSHDOWN, "true")
    if spark.conf.get(_BATCH_BYTES, None) is None:
        spark.conf.set(_BATCH_BYTES, _NO_LIMIT)
    try:
        spark.dataSource.register(SeaweedMQSource)
    except AnalysisException as e:
        if e.getCondition() != _KNOWN:  # Spark found it by itself, and what it found is not replaced
            raise


def read(
    spark: SparkSession,
    *,
    topic: str,
    storage: str | os.PathLike[str] | None = None,
    bootstrap: str | None = None,
    **options: Any,
) -> DataFrame:
    """A topic as it is now, each record once, whatever becomes of its files while it is read.

    Tables are read by Spark's own Parquet reader; what is in logs only, or with ``bootstrap`` in no file yet, by the
    data source. Where Spark reads a type otherwise than we write it, everything is, and a line in the log says so.

    Args:
        storage: root URI, or path. Without it brokers are asked for everything.
        bootstrap: addresses of brokers, ``host:port[,host:port]``: what they have committed is read as well.
        options: as those of ``spark.read.format("seaweedmq")``; JSON may be given as a dict, columns as a list.

    Raises:
        InvalidArgument: an option is unknown or breaks its rule, or there is no such storage.
        NotFound: no such topic.
        OutOfRange: retention removed an offset that was asked for by number, or one that is named for a segment lies
            beyond its end, unless ``failOnDataLoss`` is false.
        Corrupt: a file is damaged, or missing; the message names it.
        Unsupported: a column has a type that Spark lacks.
        Unavailable: no broker answers.
    """
    given = {"topic": topic, "storage": storage, "bootstrap": bootstrap, **options}
    texts = {name: _text(name, value) for name, value in given.items() if value is not None}
    named = check_names(texts, SparkApi.BATCH)
    register(spark)
    return read_native(spark, named)


def _text(name: str, value: Any) -> str:
    """As options of Spark are given."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list | tuple) and name.lower() == "columns":
        return json.dumps(list(map(str, value)))  # names may have commas in them
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
