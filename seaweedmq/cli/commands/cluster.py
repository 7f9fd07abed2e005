"""`seaweedmq cluster ...`: what the leader knows of the cluster."""

from typing import Annotated

import typer

from seaweedmq.cli.fields import broker_fields, cluster_fields, decision_fields
from seaweedmq.cli.live import watch
from seaweedmq.cli.options import BootstrapOption, Common, OutputOption, WatchOption
from seaweedmq.cli.output import Output, say, show_done, show_fields, show_json, show_rows
from seaweedmq.model.broker import ClusterStatus

app = typer.Typer(help="Look at the cluster, drain brokers, balance.", no_args_is_help=True)

COLUMNS = [
    "broker",
    "address",
    "leader",
    "draining",
    "segments",
    "cpu_share",
    "memory_mib",
    "buffered_mib",
    "bytes_per_s",
    "records_per_s",
    "pid",
    "started",
    "lease_s",
    "etcd",
]
DECISION_COLUMNS = ["at", "kind", "topic", "segments", "reason"]


@app.command()
def status(
    context: typer.Context,
    watching: WatchOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show the cluster, its brokers and what the leader decided last."""
    common = Common.of(context, bootstrap, output)
    if watching:
        with common.connect() as client:
            watch.cluster(client.admin, common.output)
        return
    found = _status(common)
    fields = cluster_fields(found)
    if common.output is Output.JSON:
        show_json(fields)
        return
    rows, decisions = fields.pop("brokers"), fields.pop("decisions")
    show_fields(fields, common.output)
    say("")
    show_rows(rows, COLUMNS, common.output)
    if decisions:
        say("")
        show_rows(decisions, DECISION_COLUMNS, common.output)


@app.command()
def brokers(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the brokers and their load."""
    common = Common.of(context, bootstrap, output)
    show_rows([broker_fields(broker) for broker in _status(common).brokers], COLUMNS, common.output)


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
    done = f"drained {broker}: it holds no segments and gets no new ones until it is restarted"
    show_done({"drained": broker}, done, common.output)


@app.command()
def rebalance(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """Split, merge and move segments now, as the balancer would in time."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        rows = [decision_fields(decision) for decision in client.admin.rebalance()]
    show_rows(rows, DECISION_COLUMNS, common.output, empty="nothing to do: the cluster is balanced")


def _status(common: Common) -> ClusterStatus:
    with common.connect() as client:
        return client.admin.cluster_status()
