"""One quiet Spark session for all tests of this folder."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seaweedmq.spark
from tests.support.discovery import as_installed
from tests.support.topic_files import TopicFiles


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session on 127.0.0.1 that leaves nothing behind."""
    scratch = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    as_installed()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the JVM looks data sources up with this one before a session exists
    session = (
        SparkSession.builder.master("local[2]")
        .appName("seaweedmq-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch))
        .getOrCreate()
    )
    seaweedmq.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    """Return the files of an empty topic shop/orders with one segment."""
    return TopicFiles(tmp_path)
