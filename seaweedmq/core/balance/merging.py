"""Merges of adjacent segments with little load."""

import numpy as np

from seaweedmq.core.balance.actions import Merge
from seaweedmq.core.balance.input import Bools, ClusterColumns, Floats, Ints, Loads
from seaweedmq.core.balance.plan import Plan, heaviest_first
from seaweedmq.core.balance.rate_words import bytes_per_s_in_words

MERGE_BELOW = 0.5
"""Fraction of the target below which two segments are merged, for their sum by the short and by the long average. A
split leaves at least twice as much, so only a real change of load undoes one."""


def plan_merges(plan: Plan, healthy: Bools) -> None:
    """Plan merges of adjacent segments, the idlest first; ``healthy`` (S,) says if all replicas of a segment are."""
    cluster = plan.cluster
    fit = cluster.topic_auto[cluster.topic] & healthy & plan.may_move & ~plan.taken
    pressure = _pressure_of_pairs(cluster, plan.loads)
    neighbors = (cluster.topic[:-1] == cluster.topic[1:]) & (cluster.hi[:-1] == cluster.lo[1:])
    pairs: Ints = np.flatnonzero(fit[:-1] & fit[1:] & neighbors & (pressure < MERGE_BELOW))
    settled = cluster.topic[~cluster.changing]  # the changing ones may already be merging
    spare = np.bincount(settled, minlength=len(cluster.topics)) - cluster.topic_segments_min
    for lower in heaviest_first(pairs, -pressure[pairs]).tolist():
        if plan.budget <= 0:
            return
        topic = int(cluster.topic[lower])
        if spare[topic] > 0 and plan.may_begin(lower) and not plan.taken[lower] and not plan.taken[lower + 1]:
            spare[topic] -= 1
            _merge(plan, lower)


def _pressure_of_pairs(cluster: ClusterColumns, loads: Loads) -> Floats:
    """(S - 1,) joint load of rows i and i + 1 as a multiple of the target of i's topic, the larger average."""
    topic = cluster.topic[:-1]
    highest = np.zeros(len(topic), np.float64)
    for rates, target in (
        (loads.bytes_per_s, cluster.topic_target_bytes_per_s),
        (loads.long_bytes_per_s, cluster.topic_target_bytes_per_s),
        (loads.records_per_s, cluster.topic_target_records_per_s),
        (loads.long_records_per_s, cluster.topic_target_records_per_s),
    ):
        np.maximum(highest, (rates[:-1] + rates[1:]) / target[topic], out=highest)
    return highest


def _merge(plan: Plan, lower: int) -> None:
    """Place the successor on the replicas of the cheaper of the two segments, so that no third broker is involved."""
    cluster, loads, upper = plan.cluster, plan.loads, lower + 1
    merged_replicas = [plan.replicas_of(lower), plan.replicas_of(upper)]
    for row, replicas in zip((lower, upper), merged_replicas, strict=True):
        plan.add(replicas, -float(plan.weight[row]))
    cheaper = min(merged_replicas, key=lambda replicas: (plan.costs[replicas[0]], replicas))
    replicas = plan.cheapest(plan.wanted(lower), cheaper)
    plan.add(replicas, float(plan.weight[lower] + plan.weight[upper]))
    numbers = int(cluster.id[lower]), int(cluster.id[upper])
    together = bytes_per_s_in_words(float(loads.bytes_per_s[lower] + loads.bytes_per_s[upper]))
    target = bytes_per_s_in_words(float(cluster.topic_target_bytes_per_s[cluster.topic[lower]]))
    reason = f"segments {numbers[0]} and {numbers[1]} carry {together} together, well below the target of {target}"
    plan.taken[upper] = True
    plan.begin(lower, Merge(cluster.topics[cluster.topic[lower]], numbers, cluster.ids(replicas), reason))
