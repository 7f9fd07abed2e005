"""A real cluster for a run: etcd and brokers as processes on free ports, with data in a temporary folder."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seaweedmq.cli.servers.local_cluster import local_cluster


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """A running cluster."""

    bootstrap: str
    pids: tuple[int, ...]
    storage: Path
    kafka: str = ""
    """Addresses for Kafka clients, if it listens for them."""


@contextlib.contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """Create a folder below ``directory`` that is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="seaweedmq-bench-", dir=directory) as path:
        yield Path(path)


@contextlib.contextmanager
def running_cluster(
    data: Path, *, brokers: int = 1, settings: Mapping[str, float] | None = None, kafka: bool = False
) -> Iterator[BenchCluster]:
    """Start a cluster on ``data``, a folder that may hold an earlier one's data, and stop it at the end.

    Args:
        settings: Settings of ``BrokerConfig`` that differ from the defaults.
        kafka: Whether it also listens for Kafka clients.
    """
    config = data.parent / f"{data.name}.toml"
    config.write_text("".join(f"{name} = {value}\n" for name, value in (settings or {}).items()))
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        cluster = runner.run(
            stack.enter_async_context(
                local_cluster(
                    brokers=brokers,
                    data=data,
                    port=0,
                    broker_options=["--config", str(config), "--log-level", "error"],
                    kafka_port=0 if kafka else None,
                )
            )
        )
        try:
            yield BenchCluster(
                ",".join(cluster.addresses), cluster.pids, data / "storage", ",".join(cluster.kafka_addresses)
            )
        finally:
            runner.run(stack.aclose())
