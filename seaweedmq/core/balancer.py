"""When segments should be split, merged or moved: a pure function of the cluster, its loads and the time.

It keeps nothing between calls: cool-downs are ages of segments, hysteresis is the distance between thresholds and
between the short and the long averages. Whoever calls it may be a leader that was elected a second ago.
"""

from seaweedmq.core.balancer_actions import Action, Hold, Merge, Move, Split
from seaweedmq.core.balancer_input import BalancerSettings, Cluster, Loads

__all__ = ["Action", "BalancerSettings", "Cluster", "Hold", "Loads", "Merge", "Move", "Split", "decide"]


def decide(
    cluster: Cluster, loads: Loads, now_us: int, settings: BalancerSettings, *, at_once: bool = False
) -> list[Action]:
    """What to do now, the most urgent first: urgent moves, splits, moves for balance, merges, and what is held.

    Args:
        now_us: wall clock, as the segments' ``opened_us``.
        at_once: without cool-downs and without a limit on the pace, for a rebalance that somebody asked for.
    """
    return []
