"""Cluster of the demo: `seaweedmq up`, and a way to kill one of its brokers."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.demo.flights import check
from seaweedmq.cli.output import say

BROKERS = 3
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 75.0
"""Above the time that ``seaweedmq up`` gives its brokers, plus time to stop etcd."""

SETTINGS = """
# Small and young files, so that a minute's demo shows them all: logs, and the Parquet they become.
log_roll_bytes = 4_194_304
log_roll_age_s = 2.0
partition_roll_age_s = 2.0
maintenance_interval_s = 1.0
"""


class DemoCluster(NamedTuple):
    """The addresses and process ids of a cluster's brokers, in the same order."""

    addresses: list[str]
    kafka: list[str]
    """Addresses of the Kafka listeners."""
    pids: list[int]

    def kill(self, kafka_address: str) -> None:
        """End a broker with SIGKILL."""
        pid = self.pids[self.kafka.index(kafka_address)]
        say(f"killing broker {pid} with SIGKILL: it leads partitions, and coordinates the group of Kafka consumers")
        os.kill(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def demo_cluster(folder: Path) -> AsyncIterator[DemoCluster]:
    """Run a cluster below ``folder`` during a block; no process of it may be left at the end.

    Raises:
        DemoFailed: If the cluster does not start or stop cleanly.
    """
    settings = folder / "broker.toml"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-m", "seaweedmq.cli.main", "up", "--brokers", str(BROKERS), "--config", str(settings)]
    command += ["--data", str(folder / "data"), "--port", "0", "--kafka-port", "0"]
    command += ["--parent-pid", str(os.getpid())]
    say(f"starting etcd and {BROKERS} brokers")
    up = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None,
        start_new_session=True,  # Ctrl-C is for this process, which stops the cluster in order
    )
    family: list[psutil.Process] = []
    try:
        assert up.stdout is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            ready, kafka = [(await up.stdout.readline()).decode().split() for _ in range(2)]
        check(ready[:1] == ["ready"] and kafka[:1] == ["kafka"], "the cluster did not start")
        say(f"cluster {ready[1]}, for Kafka clients {kafka[1]}, brokers {' '.join(ready[3:])}")
        yield DemoCluster(ready[1].split(","), kafka[1].split(","), [int(pid) for pid in ready[3:]])
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
        with contextlib.suppress(ProcessLookupError):
            up.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                status = await up.wait()
        except TimeoutError:
            up.kill()
            status = await up.wait()
    check(status == 0, f"the cluster stopped with exit status {status}")
    check(not any(process.is_running() for process in family), "a process of the cluster is still running")
