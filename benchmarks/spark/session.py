"""The measured Spark session: the settings that the README recommends, quiet, on 127.0.0.1."""

import contextlib
import os
import sys
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from seaweedmq.spark.requirements import check_java


@contextlib.contextmanager
def spark_session(master: str = "local[*]", **conf: str) -> Iterator[SparkSession]:
    """Return a session of this process, which knows the format; settings have ``__`` in place of dots."""
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the first worker starts before any setting
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
        .config("spark.python.unix.domain.socket.enabled", "true")  # as the README recommends
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
    """Read every value of every row."""
    frame.write.format("noop").mode("overwrite").save()
