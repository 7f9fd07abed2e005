"""Segments that lost a replica, or are about to, or never had enough: they get new ones, the worst off first."""

import numpy as np

from seaweedmq.core.balance.actions import Move
from seaweedmq.core.balance.input import Bools, Ints
from seaweedmq.core.balance.plan import Plan

REPAIRS_MAX = 1_000
"""Urgent moves of one decision; the others come with the next."""


def plan_repairs(plan: Plan, healthy: Bools) -> None:
    """Plan urgent moves for the segments that are not ``healthy``, shape (S,), and add missing replicas at a slow pace.

    Replicas that are well stay, so that no more moves than must; a lost primary is followed by its cheapest follower.
    """
    for row in _worst_first(plan, healthy)[:REPAIRS_MAX].tolist():
        _repair(plan, row)
    missing = _thin(plan, healthy)[: plan.budget]
    for row in missing.tolist():
        have, want = int(plan.cluster.replica_count[row]), plan.wanted(row)
        _move(plan, row, plan.replicas_of(row), f"{have} of {want} replicas: there are brokers for all now")


def _worst_first(plan: Plan, healthy: Bools) -> Ints:
    """First what nobody can write to, then what lost a follower, then what is suspected, then what is drained."""
    cluster = plan.cluster
    rows: Ints = np.flatnonzero(~healthy & ~plan.taken)
    replicas = cluster.replicas[rows]
    alive = (replicas >= 0).sum(axis=1)
    drained = ((replicas >= 0) & cluster.draining[replicas]).any(axis=1)
    rank = np.select(
        [replicas[:, 0] < 0, (alive < cluster.replica_count[rows]) | cluster.broken[rows], ~drained], [0, 1, 2], 3
    )
    ordered: Ints = rows[np.lexsort((-plan.weight[rows], rank))]
    return ordered


def _thin(plan: Plan, healthy: Bools) -> Ints:
    """Rows that were opened when brokers were missing, and could have more replicas now."""
    cluster = plan.cluster
    wanted = np.minimum(cluster.topic_replicas, plan.usable_count)[cluster.topic]
    rows: Ints = np.flatnonzero(healthy & ~plan.taken & (cluster.replica_count < wanted))
    return rows


def _repair(plan: Plan, row: int) -> None:
    cluster = plan.cluster
    present = plan.replicas_of(row)
    good = [b for b in present if cluster.usable[b]]
    if not good or good[0] != int(cluster.primary[row]):
        good.sort(key=lambda broker: (plan.costs[broker], broker))
    gone = int(cluster.replica_count[row]) - len(present)
    drained = [b for b in present if cluster.draining[b]]
    suspected = [b for b in present if not cluster.usable[b] and not cluster.draining[b]]
    reasons = []
    if gone:
        reasons.append("its broker is gone" if cluster.replica_count[row] == 1 else f"{gone} of its replicas are gone")
    if suspected:
        reasons.append(f"{', '.join(cluster.ids(suspected))} does not answer")
    if drained:
        reasons.append(f"{', '.join(cluster.ids(drained))} is being drained")
    if cluster.broken[row] and not reasons:
        reasons.append("its replicas lost each other")
    _move(plan, row, good, " and ".join(reasons))


def _move(plan: Plan, row: int, kept: list[int], reason: str) -> None:
    cluster, weight = plan.cluster, float(plan.weight[row])
    plan.add(plan.replicas_of(row), -weight)
    replicas = plan.cheapest(plan.wanted(row), kept)
    plan.add(replicas, weight)
    plan.taken[row] = True
    number = int(cluster.id[row])
    to = ", ".join(cluster.ids(replicas))
    plan.actions.append(
        Move(
            cluster.topics[cluster.topic[row]],
            number,
            cluster.ids(replicas),
            f"segment {number}: {reason}; goes on at {to}",
            urgent=True,
        )
    )
