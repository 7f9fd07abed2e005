"""The demo's last step: mean departure delay by carrier, by Spark from the brokers' files and straight from the CSV.

Spark runs in a child process (this module, run as a program), so that what it says on stderr is shown only if it fails.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from seaweedmq.cli.demo.flights import COUNT, check, read_csv
from seaweedmq.cli.output import Output, show_rows

COLUMNS = "carrier string, dep_delay int"
"""Of the JSON objects that the records are."""
TIMEOUT_S = 150.0
STOP_TIMEOUT_S = 10.0


async def compare_means(storage: Path, topic: str, path: Path) -> float:
    """Print both means by carrier and compare them.

    Args:
        storage: root of the brokers' files.
        topic: which holds the flights.
        path: of the zipped CSV.

    Returns:
        Seconds from the start of the Spark query to its result.

    Raises:
        DemoFailed: they differ.
    """
    spark = await _spark(storage, topic)
    delays = read_csv(path, ["carrier", "dep_delay"]).group_by("carrier")
    direct = {
        row["carrier"]: (row["dep_delay_count"], row["dep_delay_mean"])
        for row in delays.aggregate([("dep_delay", "count"), ("dep_delay", "mean")]).to_pylist()
    }
    found = {row["carrier"]: (row["flights"], row["mean"]) for row in spark["rows"]}
    rows = [
        {
            "carrier": carrier,
            "flights": f"{direct.get(carrier, (0, 0.0))[0]:,}",
            "mean delay by Spark": f"{found.get(carrier, (0, float('nan')))[1]:.6f}",
            "from the CSV": f"{direct.get(carrier, (0, float('nan')))[1]:.6f}",
        }
        for carrier in sorted(direct.keys() | found.keys())
    ]
    show_rows(rows, list(rows[0]), Output.TABLE)
    check(spark["records"] == COUNT, f"Spark read {spark['records']} flights of {COUNT}")
    check(found.keys() == direct.keys(), "Spark and the CSV do not have the same carriers")
    for carrier, (count, mean) in direct.items():
        same = found[carrier][0] == count and bool(np.isclose(found[carrier][1], mean, rtol=1e-12, atol=0.0))
        check(same, f"carrier {carrier}: Spark has {found[carrier]}, the CSV {(count, mean)}")
    elapsed_s: float = spark["elapsed_s"]
    return elapsed_s


async def _spark(storage: Path, topic: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "seaweedmq.cli.demo.spark", str(storage), topic]
    with tempfile.TemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                printed, _ = await child.communicate()
        except TimeoutError:
            printed = b""
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    if child.returncode != 0:
        sys.stderr.write(said)
    check(child.returncode == 0, f"Spark ended with exit status {child.returncode}; what it said is above")
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result


def spark_means(storage: str, topic: str) -> dict[str, Any]:
    """Read the topic's files with Spark; leaves no process behind."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    import seaweedmq.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable  # the first worker is started before anybody can say
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("seaweedmq demo")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        seaweedmq.spark.register(spark)
        reader = spark.read.format("seaweedmq").option("storage", storage).option("topic", topic)
        records = reader.option("columns", "value").load()
        flights = records.select(f.from_json(f.col("value").cast("string"), COLUMNS).alias("flight")).select("flight.*")
        began_s = time.monotonic()
        means = flights.groupBy("carrier").agg(
            f.count("*").alias("all"), f.count("dep_delay").alias("flights"), f.avg("dep_delay").alias("mean")
        )
        rows = [row.asDict() for row in means.collect()]
        elapsed_s = time.monotonic() - began_s
    finally:
        java = psutil.Process().children(recursive=True)
        spark.stop()
        # The gateway's Java process ends when its stdin does, which otherwise happens after we have ended.
        spark.sparkContext._gateway.proc.stdin.close()  # noqa: SLF001 - PySpark shows no other way
        for process in psutil.wait_procs(java, timeout=STOP_TIMEOUT_S)[1]:
            process.kill()
    return {"records": sum(row["all"] for row in rows), "rows": rows, "elapsed_s": elapsed_s}


if __name__ == "__main__":
    print(json.dumps(spark_means(*sys.argv[1:3])))
