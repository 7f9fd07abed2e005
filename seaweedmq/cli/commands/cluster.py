"""Commands `seaweedmq cluster ...`: the state of the cluster as its leader has it, and the recovery of its etcd."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from seaweedmq.cli.fields import broker_fields, cluster_fields, decision_fields
from seaweedmq.cli.live import watch
from seaweedmq.cli.options import Common, WatchOption, common_options, option, output_option
from seaweedmq.cli.output import Output, fail, note, say, show_done, show_fields, show_json, show_rows, show_sections
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.config import BrokerConfig

if TYPE_CHECKING:
    from seaweedmq.broker.recovery.plan import Plan
    from seaweedmq.cli.servers.recovery import Ends

app = typer.Typer(help="Show the cluster, drain brokers, rebalance, recover etcd.", no_args_is_help=True)

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
LEASE_TTL_S = BrokerConfig().lease_ttl_s
DECISION_COLUMNS = ["at", "kind", "topic", "segments", "reason"]


@app.command()
@common_options
def status(common: Common, watching: WatchOption = False) -> None:
    """Show the cluster, its brokers and the leader's last decisions."""
    if watching:
        with common.connect() as client:
            watch.cluster(client.admin, common.output)
        return
    fields = cluster_fields(_status(common))
    show_sections(fields, {"brokers": (COLUMNS, "none"), "decisions": (DECISION_COLUMNS, "")}, common.output)


@app.command()
@common_options
def brokers(common: Common) -> None:
    """List the brokers and their load."""
    show_rows([broker_fields(broker) for broker in _status(common).brokers], COLUMNS, common.output)


@app.command()
@common_options
def leader(common: Common) -> None:
    """Show which broker leads."""
    found = _status(common)
    address = next((b.info.address for b in found.brokers if b.info.id == found.leader), None)
    show_fields({"leader": found.leader, "address": address}, common.output)


@app.command()
@common_options
def drain(
    common: Common,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Name the broker by its id or HOST:PORT.")],
) -> None:
    """Move every segment away from a broker, so that it can be stopped."""
    with common.connect() as client:
        client.admin.drain(broker)
    done = f"drained {broker}: it holds no segments and gets no new ones until it is restarted"
    show_done({"drained": broker}, done, common.output)


@app.command()
@common_options
def rebalance(common: Common) -> None:
    """Split, merge and move segments now instead of at the balancer's next turn."""
    with common.connect() as client:
        rows = [decision_fields(decision) for decision in client.admin.rebalance()]
    show_rows(rows, DECISION_COLUMNS, common.output, empty="nothing to do: the cluster is balanced")


@app.command()
@output_option
def recover(
    common: Common,
    storage: Annotated[str, option(metavar="URI", help="Set the storage of the cluster: a path or file:///path.")],
    etcd: Annotated[str, option(metavar="HOST:PORT[,...]", help="Set the etcd endpoints of the cluster.")],
    apply: Annotated[bool, option("--apply", help="Carry the plan out (no).")] = False,
    lease_ttl: Annotated[
        float,
        typer.Option(
            metavar="S", min=1, help="Set the longest lease of a broker: seconds to wait before the first write."
        ),
    ] = LEASE_TTL_S,
    etcd_timeout: Annotated[float, typer.Option(metavar="S", min=1, help="Set the seconds to wait for etcd.")] = 30,
) -> None:
    """Rebuild a lost or restored etcd from the storage: print the plan, and carry it out with --apply.

    Brokers that reject calls for that reason may run meanwhile, and serve by themselves afterwards. A second run has
    nothing to do; repeat a run that was interrupted.
    """
    # Lazy import: commands that only query brokers need no client of etcd.
    from seaweedmq.cli.plans import TOPIC_COLUMNS, plan_fields, plan_lines, plan_row
    from seaweedmq.cli.servers.recovery import run_recovery

    ends: Ends = {}

    def show_plan(plan: "Plan", found: "Ends") -> None:
        nonlocal ends
        ends = found
        if common.output is Output.JSON or not plan.is_due:
            return
        fields = plan_fields(plan, ends, is_applied=False)
        show_fields(plan_lines(fields, plan), common.output)
        say("")
        show_rows([plan_row(topic) for topic in fields["topics"]], TOPIC_COLUMNS, common.output, empty="no topics")
        damaged = [
            f"{topic['topic']}: segment {segment['id']} cannot be read to its end: {segment['problem']}"
            for topic in fields["topics"]
            for segment in topic["segments"]
            if segment["problem"]
        ]
        for text in (*plan.notes, *damaged):
            say(f"note: {text}")
        for text in plan.problems:
            say(f"problem: {text}")
        if apply and not plan.problems:
            note(f"waiting for the leases of brokers to end, {lease_ttl:g} s")

    plan = asyncio.run(run_recovery(storage, etcd, etcd_timeout, apply=apply, planned=show_plan, lease_ttl_s=lease_ttl))
    is_applied = apply and plan.is_due and not plan.problems
    if common.output is Output.JSON:
        show_json(plan_fields(plan, ends, is_applied=is_applied))
    if not plan.is_due:
        if common.output is Output.TABLE:
            say(f"nothing to do: etcd and storage {storage} are in step, cluster {plan.cluster_id}")
    elif plan.problems:
        fail(f"{len(plan.problems)} problems prevent the recovery of etcd, nothing was changed: resolve them first")
    elif is_applied:
        if common.output is Output.TABLE:
            say(f"recovered: etcd has cluster {plan.cluster_id}, generation {plan.generation}; brokers serve it")
    else:
        note("nothing was changed: add --apply to carry the plan out")


def _status(common: Common) -> ClusterStatus:
    with common.connect() as client:
        return client.admin.cluster_status()
