"""Spark part of the demo: the child process, and the comparison of its results with the CSV.

Spark runs in a child process, so that its stderr is shown only if it fails.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from benchmarks.demo.flights import COUNT, check
from seaweedmq.cli.output import Output, show_rows
from seaweedmq.examples.nyc import read_csv

TIMEOUT_S = 150.0
"""Timeout of a job in seconds."""


class SparkJobs:
    """The child process, see ``spark_jobs``."""

    def __init__(self, child: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        self._child = child
        self._log = log

    async def result(self) -> dict[str, Any]:
        """Return the result of the next job.

        Raises:
            DemoFailed: If it failed, or took too long.
        """
        assert self._child.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                line = await self._child.stdout.readline()
        if not line:
            self._complain()
        found: dict[str, Any] = json.loads(line)
        return found

    async def end(self) -> None:
        """Wait until the process has ended.

        Raises:
            DemoFailed: If it failed, or took too long.
        """
        status = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._child.wait()
        if status != 0:
            self._complain()

    def _complain(self) -> None:
        self._log.seek(0)
        sys.stderr.write(self._log.read().decode(errors="replace"))
        check(False, f"Spark failed or took too long, exit status {self._child.returncode}; its output is above")


@contextlib.asynccontextmanager
async def spark_jobs(storage: Path, topic: str, addresses: list[str], checkpoint: Path) -> AsyncIterator[SparkJobs]:
    """Make Spark stream the typed flights, then read ``topic``, which holds them as JSON."""
    command = [sys.executable, "-m", "benchmarks.demo.spark_jobs", str(storage), topic, ",".join(addresses)]
    with tempfile.TemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(
            *command,
            str(checkpoint),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            yield SparkJobs(child, log)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()


def compare_means(spark: dict[str, Any], path: Path) -> None:
    """Print and compare both means by carrier.

    Args:
        spark: Result of ``spark_jobs.means``.
        path: Path of the zipped CSV.

    Raises:
        DemoFailed: If they differ.
    """
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
