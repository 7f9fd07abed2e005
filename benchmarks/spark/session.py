"""The Spark that is measured: the settings that the README advises, quiet, on 127.0.0.1."""

import contextlib
import os
import sys
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from seaweedmq.spark.requirements import check_java


@contextlib.contextmanager
def spark_session(master: str = "local[*]", **conf: str) -> Iterator[SparkSession]:
    """A session of this process, which knows the format; settings with ``__`` in place of dots."""
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the first worker is started before anybody can say
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master(master)
        .appName("seaweedmq benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")  # as the README advises
    )
    for name, value in conf.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    try:
        seaweedmq.spark.register(spark)
        yield spark
    finally:
        spark.stop()


def all_of(frame: DataFrame) -> None:
    """Every value of every row."""
    frame.write.format("noop").mode("overwrite").save()
