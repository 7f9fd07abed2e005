"""Spark session of a command: quiet, stopped with the command, and with one-line errors."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from seaweedmq.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session(master: str, name: str) -> "Iterator[SparkSession]":
    """Yield a session in this process; Unsupported, with the remedy, if PySpark or Java is missing or too old.

    A failure of Spark in the block becomes a SeaweedMQError of one sentence.
    """
    from seaweedmq.spark import requirements  # importing it already fails without PySpark, or with an old one

    requirements.check_pyspark()
    requirements.check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from seaweedmq.spark.spark_errors import SPARK_ERRORS, explain

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_into(said):
                spark = builder.getOrCreate()
        except Exception as error:
            java = f"Java {requirements.JAVA_MIN} or newer"
            why = _last_line(said) or str(error).strip().partition("\n")[0]
            raise Unsupported(f"Spark does not start with master {master!r} (it needs {java}): {why}") from error
    try:
        yield spark
    except SPARK_ERRORS as error:
        raise explain(error) from error
    finally:
        spark.stop()


@contextlib.contextmanager
def _stderr_into(said: IO[bytes]) -> Iterator[None]:
    """Redirect the standard error of child processes started in a block: the JVM prints notices there."""
    if os.environ.get("SEAWEEDMQ_DEBUG"):
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    try:
        os.dup2(said.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
