"""Command `seaweedmq broker`: its options. ``servers.broker`` runs the broker."""

from pathlib import Path
from typing import Annotated

import typer
import uvloop

from seaweedmq.cli.options import option
from seaweedmq.cli.servers.config_file import read_config
from seaweedmq.cli.servers.kafka import check_kafka
from seaweedmq.cli.servers.process import LogLevel, die_with_parent, log_to_stderr, tune, until_signal
from seaweedmq.errors import InvalidArgument
from seaweedmq.rpc.address import WILDCARD_HOSTS, Address, parse_address


def broker(
    etcd: Annotated[str, typer.Option(metavar="HOST:PORT[,...]", help="Set the etcd endpoints.")],
    storage: Annotated[
        str, typer.Option(metavar="URI", help="Set the folder that all brokers share: a path or file:///path.")
    ],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Set the address to listen on.")] = "127.0.0.1:17777",
    advertise: Annotated[
        str | None, option(metavar="HOST:PORT", help="Set the address that clients and brokers dial (as --listen).")
    ] = None,
    lease_ttl: Annotated[
        float | None, option(metavar="S", min=1, help="Set the seconds after which a silent broker is removed (5).")
    ] = None,
    etcd_timeout: Annotated[
        float, typer.Option(metavar="S", min=1, help="Set the seconds to wait for etcd at the start.")
    ] = 30,
    config: Annotated[
        Path | None, option(metavar="FILE", help="Read settings from a TOML file.", exists=True, dir_okay=False)
    ] = None,
    kafka_listen: Annotated[
        str | None,
        option(
            metavar="HOST:PORT",
            help='Listen for Kafka clients on this address (none). Needs the package\'s extra "kafka".',
        ),
    ] = None,
    kafka_advertise: Annotated[
        str | None, option(metavar="HOST:PORT", help="Set the address that Kafka clients dial (as --kafka-listen).")
    ] = None,
    kafka_namespace: Annotated[
        str | None, option(metavar="NAME", help="Show Kafka clients the topics NAME/TOPIC as TOPIC (kafka).")
    ] = None,
    log_level: Annotated[
        LogLevel,
        typer.Option(case_sensitive=False, help="Set the lowest level to log on stderr.", envvar="SEAWEEDMQ_LOG"),
    ] = LogLevel.INFO,
    parent_pid: Annotated[int | None, typer.Option(hidden=True, help="Stop when this parent process ends.")] = None,
) -> None:
    """Run one broker until SIGTERM or SIGINT."""
    if parent_pid is not None:
        die_with_parent(parent_pid)
    log_to_stderr(log_level)
    tune()
    settings = read_config(
        config,
        lease_ttl_s=lease_ttl,
        kafka_listen=kafka_listen,
        kafka_advertise=kafka_advertise,
        kafka_namespace=kafka_namespace,
    )
    address = parse_address(listen)
    check_kafka(settings)
    # Lazy import: commands that only query brokers need no broker.
    from seaweedmq.cli.servers.broker import run_broker

    uvloop.run(until_signal(run_broker(etcd, etcd_timeout, storage, address, _reachable(address, advertise), settings)))


def _reachable(listen: Address, advertise: str | None) -> str:
    if advertise is not None:
        return str(parse_address(advertise))
    if listen.host in WILDCARD_HOSTS or listen.port == 0:
        raise InvalidArgument(f"{listen} is not an address that others can dial: name one with --advertise HOST:PORT")
    return str(listen)
