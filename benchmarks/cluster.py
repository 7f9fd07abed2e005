"""A real cluster of this run's own: etcd and brokers as processes on free ports, data in a folder that goes with it."""

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
