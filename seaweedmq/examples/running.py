"""Common parts of the examples: their command line, and a local Spark session."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import seaweedmq
import seaweedmq.spark
from seaweedmq.errors import AlreadyExists, SeaweedMQError
from seaweedmq.runtime.process.local_folder import LOCAL_STORAGE

STOP_TIMEOUT_S = 10.0
FLIGHTS = "demo/flights"
"""Topic that ``publish_flights`` fills and the others read."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every example; ``doc`` is the docstring of its module.

    ``--storage`` is made absolute: executors need not run in this folder.
    """
    made = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    made.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,HOST:PORT]",
        default=os.environ.get("SEAWEEDMQ_BOOTSTRAP", "127.0.0.1:17777"),
        help="brokers to contact first (SEAWEEDMQ_BOOTSTRAP, else %(default)s)",
    )
    made.add_argument(
        "--storage",
        type=absolute,
        default=absolute(str(LOCAL_STORAGE)),
        help=f"root of the brokers' files ({LOCAL_STORAGE}, that of `seaweedmq up`)",
    )
    made.add_argument("--master", default="local[2]", help="Spark's master (%(default)s)")
    return made


def absolute(storage: str) -> str:
    """Return the absolute path of a folder, since Spark's JVM may run elsewhere; URIs are unchanged."""
    return storage if "://" in storage else str(Path(storage).resolve())


@contextlib.contextmanager
def spark_session(name: str, master: str = "local[2]") -> Iterator[SparkSession]:
    """Yield the active session unchanged, or else a quiet one that leaves nothing behind."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the first worker starts before any configuration
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # Spark forks its JVM, maybe beside a busy client
    builder = SparkSession.builder.master(master).appName(name)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
        builder = builder.config("spark.sql.shuffle.partitions", "2")  # one for each core, not 200
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR").getOrCreate()
    try:
        seaweedmq.spark.register(spark)
        yield spark
    finally:
        java = psutil.Process().children(recursive=True)
        spark.stop()
        # The gateway's Java process ends when its stdin does, which otherwise happens after this process ended.
        spark.sparkContext._gateway.proc.stdin.close()  # noqa: SLF001 - PySpark exposes no other way
        for process in psutil.wait_procs(java, timeout=STOP_TIMEOUT_S)[1]:
            process.kill()


def make_topic(bootstrap: str, topic: str, schema: pa.Schema, replicas: int = 1) -> None:
    """Create a topic with these columns and one segment, unless it exists."""
    with seaweedmq.connect(bootstrap) as client, contextlib.suppress(AlreadyExists):
        client.admin.create_topic(topic, schema=schema, replicas=replicas, scaling="fixed")


def run(main: Callable[[], None]) -> None:
    """Run a program; an error that its user can fix is one message on stderr and exit status 1, without a traceback."""
    try:
        main()
    except (SeaweedMQError, PySparkException) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
