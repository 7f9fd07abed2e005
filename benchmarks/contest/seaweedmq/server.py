"""etcd and one broker with their defaults: log files become Parquet when the broker is idle, or too many wait."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.contest.server import Server

ROOT = Path(__file__).parents[3]


class SeaweedServer(Server):
    """The processes of ``seaweedmq up --brokers 1``."""

    @classmethod
    def equip(cls) -> str:
        commit = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        found = subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip()
        return f"SeaweedMQ {version('seaweedmq')} ({found or 'no commit'}), grpcio {version('grpcio')}"

    def command(self) -> list[str]:
        _, _, port = self.address.rpartition(":")
        command = [sys.executable, "-m", "seaweedmq.cli.main", "up", "--brokers", "1", "--log-level", "error"]
        return [*command, "--port", port, "--data", str(self.folder / "data"), "--parent-pid", str(os.getpid())]

    def pids(self) -> tuple[int, ...]:
        """Broker and etcd. ``up`` itself, which only waits for them, does not count."""
        (up,) = super().pids()
        return tuple(child.pid for child in psutil.Process(up).children())
