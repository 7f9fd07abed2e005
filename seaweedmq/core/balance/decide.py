"""The balancer's decision: a pure function of the cluster, its loads and the time.

It keeps no state between calls: cool-downs are ages of segments, and hysteresis is the distance between thresholds and
between the short and the long averages. So a leader that was elected a second ago decides like its predecessor.
"""

from seaweedmq.core.balance.actions import Action, Hold, Merge, Move, Split
from seaweedmq.core.balance.input import BalancerSettings, ClusterColumns, Loads
from seaweedmq.core.balance.merging import plan_merges
from seaweedmq.core.balance.moving import MovePlanner
from seaweedmq.core.balance.plan import Plan, healthy
from seaweedmq.core.balance.splitting import plan_splits, pressure_of

__all__ = ["Action", "BalancerSettings", "ClusterColumns", "Hold", "Loads", "Merge", "Move", "Split", "decide"]


def decide(
    cluster: ClusterColumns, loads: Loads, now_us: int, settings: BalancerSettings, *, at_once: bool = False
) -> list[Action]:
    """Return the changes to make now, the most urgent first: splits, moves for balance, merges, and holds.

    Segments that lost a replica are left to ``core.lineage.repair``. While there are any, nothing is moved or merged.
    ``at_once`` ignores cool-downs and the limit on the pace, for a rebalance that an operator requested.
    """
    if not cluster.usable.any():
        return []  # no target: segments stay where they are until a broker comes
    plan = Plan(cluster, loads, now_us, settings, at_once=at_once)
    well = healthy(cluster)
    known = loads.reported[cluster.primary] & (cluster.primary >= 0)
    held = plan_splits(plan, well & known, pressure_of(cluster, loads))
    if well.all() and not plan.under_replicated.any() and bool(loads.reported[cluster.usable].all()):
        MovePlanner(plan, well).plan_moves()
        plan_merges(plan, well)
    return [*plan.actions, *held]
