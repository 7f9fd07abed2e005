"""Spark reads topics from the shared storage: ``register(spark)``, then ``spark.read.format("seaweedmq")``.

::

    seaweedmq.spark.register(spark)
    orders = spark.read.format("seaweedmq").options(storage="/mnt/shared/mq", topic="shop/orders").load()

Needs ``pip install 'seaweedmq[spark]'`` on the driver and on the executors.
"""

import os
import sys

from pyspark.sql import SparkSession

from seaweedmq.spark.source import FORMAT, SeaweedMQSource

__all__ = ["FORMAT", "register"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format ``seaweedmq`` known to a session; twice is no error.

    Turns filter push-down to Python data sources on in this session: without it Spark refuses sources that can prune.
    On a local master whose Python is not chosen by ``PYSPARK_PYTHON`` or the configuration, workers use the driver's
    interpreter, so that a virtual environment need not be activated.
    """
    context = spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(SeaweedMQSource)
