"""A real cluster of this run's own: etcd and brokers as processes on free ports, data in a folder that goes with it."""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seaweedmq.cli.servers.local_cluster import local_cluster
from seaweedmq.errors import AlreadyExists

PORT_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """A running cluster."""

    bootstrap: str
    pids: tuple[int, ...]
    storage: Path
    kafka: str = ""
    """Where Kafka clients find it, if it listens for them."""


@contextlib.contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """A folder below ``directory`` that is deleted in the end."""
    with tempfile.TemporaryDirectory(prefix="seaweedmq-bench-", dir=directory) as path:
        yield Path(path)


@contextlib.contextmanager
def running_cluster(
    data: Path, *, brokers: int = 1, settings: Mapping[str, float] | None = None, kafka: bool = False
) -> Iterator[BenchCluster]:
    """Start it on ``data``, a folder that may hold what an earlier one stored, and stop it in the end.

    Args:
        settings: of ``BrokerConfig``, where they differ from the defaults.
        kafka: whether it listens for Kafka clients, too.
    """
    config = data.parent / f"{data.name}.toml"
    config.write_text("".join(f"{name} = {value}\n" for name, value in (settings or {}).items()))
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        for attempt in range(PORT_ATTEMPTS):
            starting = local_cluster(
                brokers=brokers,
                data=data,
                port=free_port(),
                broker_options=["--config", str(config), "--log-level", "error"],
                kafka_port=0 if kafka else None,
            )
            try:
                cluster = runner.run(stack.enter_async_context(starting))
                break
            except AlreadyExists:  # somebody took the port, or the one behind it
                if attempt == PORT_ATTEMPTS - 1:
                    raise
        try:
            yield BenchCluster(
                ",".join(cluster.addresses), cluster.pids, data / "storage", ",".join(cluster.kafka_addresses)
            )
        finally:
            runner.run(stack.aclose())


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
