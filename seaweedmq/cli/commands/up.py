"""Command `seaweedmq up`: a whole local cluster in the foreground."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from seaweedmq.cli.options import option
from seaweedmq.cli.output import note, say
from seaweedmq.cli.servers.config_file import read_config
from seaweedmq.cli.servers.kafka import check_packages
from seaweedmq.cli.servers.process import LogLevel, die_with_parent, until_signal
from seaweedmq.runtime.process.local_folder import LOCAL_DATA


def up(
    brokers: Annotated[int, typer.Option(min=1, max=64, help="Set the number of brokers.")] = 3,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Set the folder of etcd and the storage; a restart serves it again.")
    ] = LOCAL_DATA,
    port: Annotated[
        int, typer.Option(min=0, max=65_000, help="Set the first broker's port; others follow. 0: any free ports.")
    ] = 17777,
    kafka_port: Annotated[
        int | None,
        option(
            min=0,
            max=65_000,
            help="Set the first broker's port for Kafka clients; others follow. 0: any free ports (none).",
        ),
    ] = None,
    etcd: Annotated[str | None, option(metavar="ENDPOINTS", help="Use a running etcd instead of starting one.")] = None,
    config: Annotated[
        Path | None,
        option(metavar="FILE", help="Read the brokers' settings from a TOML file.", exists=True, dir_okay=False),
    ] = None,
    log_level: Annotated[
        LogLevel,
        typer.Option(
            case_sensitive=False, help="Set the lowest level that brokers log on stderr.", envvar="SEAWEEDMQ_LOG"
        ),
    ] = LogLevel.WARNING,
    parent_pid: Annotated[int | None, typer.Option(hidden=True, help="Stop when this parent process ends.")] = None,
) -> None:
    """Run etcd and brokers on 127.0.0.1 until Ctrl-C or SIGTERM, then stop them cleanly."""
    if parent_pid is not None:
        die_with_parent(parent_pid)
    options = ["--log-level", log_level]
    if config is not None:
        options += ["--config", str(config)]

    if kafka_port is not None:
        check_packages()

    # Lazy import: commands that only query brokers need no client of etcd.
    from seaweedmq.cli.servers.local_cluster import local_cluster

    async def run() -> None:
        note(f"starting {brokers} broker{'s' if brokers > 1 else ''}, data in {data.absolute()}")
        async with local_cluster(
            brokers=brokers,
            data=data,
            port=port,
            kafka_port=kafka_port,
            etcd_endpoints=etcd,
            broker_options=options,
            lease_ttl_s=read_config(config).lease_ttl_s,
        ) as cluster:
            say(f"ready {','.join(cluster.addresses)} pids {' '.join(map(str, cluster.pids))}")
            if kafka_port is not None:
                say(f"kafka {','.join(cluster.kafka_addresses)}")
            await cluster.watch()

    asyncio.run(until_signal(run()))
