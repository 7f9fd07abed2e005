"""`seaweedmq cluster ...`: what the leader knows of the cluster."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from seaweedmq.cli.options import BootstrapOption, Common, OutputOption
from seaweedmq.cli.output import Output, say, show_fields, show_json, show_rows
from seaweedmq.model.broker import BrokerStatus, ClusterStatus

app = typer.Typer(help="Look at the cluster.", no_args_is_help=True)

COLUMNS = ["broker", "address", "leader", "segments", "cpu_share", "memory_mib", "buffered_mib", "pid", "started"]


@app.command()
def status(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """Show the cluster and its brokers."""
    common = Common.of(context, bootstrap, output)
    found = _status(common)
    fields = {"leader": found.leader, "topics": found.topics, "open_segments": found.open_segments}
    rows = [_broker_fields(broker) for broker in found.brokers]
    if common.output is Output.JSON:
        show_json(fields | {"brokers": rows})
        return
    show_fields(fields, common.output)
    say("")
    show_rows(rows, COLUMNS, common.output)


@app.command()
def brokers(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the brokers and their load."""
    common = Common.of(context, bootstrap, output)
    show_rows([_broker_fields(broker) for broker in _status(common).brokers], COLUMNS, common.output)


@app.command()
def leader(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """Say which broker leads."""
    common = Common.of(context, bootstrap, output)
    found = _status(common)
    address = next((b.info.address for b in found.brokers if b.info.id == found.leader), None)
    show_fields({"leader": found.leader, "address": address}, common.output)


@app.command()
def drain(
    context: typer.Context,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Id, or HOST:PORT.")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Move every segment away from a broker, so that it can be stopped."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        client.admin.drain(broker)
    say(f"drained {broker}: it holds no segments and gets no new ones until it is restarted")


def _status(common: Common) -> ClusterStatus:
    with common.connect() as client:
        return client.admin.cluster_status()


def _broker_fields(broker: BrokerStatus) -> dict[str, Any]:
    info, load = broker.info, broker.load
    return {
        "broker": info.id,
        "address": info.address,
        "leader": broker.is_leader,
        "segments": broker.open_segments,
        "cpu_share": load.cpu_share if load else None,
        "memory_mib": load.memory_bytes / (1 << 20) if load else None,
        "buffered_mib": load.buffered_bytes / (1 << 20) if load else None,
        "pid": info.pid,
        "started": datetime.fromtimestamp(info.started_us / 1e6, UTC).isoformat(timespec="seconds"),
        "version": info.version,
    }
