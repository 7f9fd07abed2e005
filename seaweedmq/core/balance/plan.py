"""The loads of brokers, and the working state of one decision with the changes chosen so far."""

from collections.abc import Sequence

import numpy as np

from seaweedmq.core.balance.actions import Action
from seaweedmq.core.balance.input import BalancerSettings, Bools, ClusterColumns, Floats, Ints, Loads

FOLLOWER_COST = 0.5
"""Cost of a follower, relative to 1 for the primary: it receives and holds frames, but serves no clients."""

IDLE_COST = 0.002
"""Cost of a segment without traffic, 1 at its target: spreads idle ones, never matters beside real load."""

UNKNOWN_SHARE = 0.5
"""Assumed load, as a fraction of the target, of a segment whose load is unknown like that of its topic."""

CHANGES_AT_ONCE_MAX = 10_000
"""Most changes of one decision that an operator requested, which has no limit on its pace."""


class Plan:
    """A decision in the making, for a cluster with a usable broker; costs count in segments at the target."""

    def __init__(
        self, cluster: ClusterColumns, loads: Loads, now_us: int, settings: BalancerSettings, *, at_once: bool
    ) -> None:
        self.cluster = cluster
        self.loads = loads
        self.settings = settings
        self.actions: list[Action] = []
        self.at_once = at_once
        age_s = (now_us - cluster.opened_us) / 1e6
        age_s[age_s < -settings.merge_after_s] = np.inf  # the clock of an earlier leader was wrong: do not wait for it
        self.young: Bools = age_s < settings.split_after_s
        """(S,) whether the segment is too new for averages of its own."""
        self.may_split: Bools = ~self.young | at_once
        self.may_move: Bools = (age_s >= max(settings.merge_after_s, settings.split_after_s)) | at_once
        """(S,) whether the segment is old enough to be merged, or moved for balance."""
        self.taken: Bools = cluster.changing.copy()
        """(S,) whether nothing more may be planned for the segment."""
        self.short: Floats = _cost(loads.bytes_per_s, loads.records_per_s, settings)
        self.long: Floats = _cost(loads.long_bytes_per_s, loads.long_records_per_s, settings)
        unreported = ~loads.reported[cluster.primary] | (cluster.primary < 0)
        unknown = self.young | (unreported & (loads.bytes_per_s == 0))
        if unknown.any():
            expected = self._expected_of(unknown)
            self.short[unknown] = np.maximum(self.short[unknown], expected)
            self.long[unknown] = np.maximum(self.long[unknown], expected)
        self.weight: Floats = (self.short + self.long) / 2
        """(S,) cost of the primary for its broker."""
        self.costs: Floats = self.costs_of(self.weight)
        """(B,) cost of each broker once the planned changes are made."""
        self.budget = (
            CHANGES_AT_ONCE_MAX if at_once else max(0, settings.changes_at_once_max - int(cluster.changing.sum()))
        )
        """Number of changes that may still be started."""
        of_topic = self.budget if at_once else max(1, settings.changes_at_once_max // 2)
        self.left: Ints = of_topic - np.bincount(cluster.topic[cluster.changing], minlength=len(cluster.topics))
        """(T,) number of changes of each topic that may still be started."""
        self.usable_count = int(cluster.usable.sum())
        wanted = np.minimum(cluster.topic_replicas, self.usable_count)[cluster.topic]
        self.under_replicated: Bools = cluster.replica_count < wanted
        """(S,) whether the segment is under-replicated for want of brokers, and could have more replicas now."""
        self.mean = float(self.costs[cluster.usable].mean())

    def costs_of(self, weight: Floats) -> Floats:
        """(B,) cost of all replicas for their brokers, given one weight per segment."""
        total = np.zeros(len(self.cluster.brokers), np.float64)
        for place, replica in enumerate(self.cluster.replicas.T):
            there = replica >= 0
            share = weight[there] * (FOLLOWER_COST if place else 1.0)
            total += np.bincount(replica[there], share, minlength=len(total))
        return total

    def _expected_of(self, unknown: Bools) -> Floats:
        """(unknown,) mean load of the topic's other segments, so that no broker looks empty before its report."""
        cluster, old = self.cluster, ~unknown
        topics = len(cluster.topics)
        count = np.bincount(cluster.topic[old], minlength=topics)
        total = np.bincount(cluster.topic[old], self.short[old], minlength=topics)
        alone = UNKNOWN_SHARE * np.minimum(
            cluster.topic_target_bytes_per_s / self.settings.segment_target_bytes_per_s,
            cluster.topic_target_records_per_s / self.settings.segment_target_records_per_s,
        )
        expected: Floats = np.where(count > 0, total / np.maximum(count, 1), alone)[cluster.topic[unknown]]
        return expected

    def replicas_of(self, row: int) -> list[int]:
        """Return the broker indices of the replicas whose brokers live."""
        return [int(b) for b in self.cluster.replicas[row] if b >= 0]

    def wanted(self, row: int) -> int:
        """Return the replicas of a successor: as many as the topic requests, or as there are brokers for."""
        return min(int(self.cluster.topic_replicas[self.cluster.topic[row]]), self.usable_count)

    def may_begin(self, row: int) -> bool:
        """Whether the pace allows one more change of the segment's topic."""
        return self.budget > 0 and bool(self.left[self.cluster.topic[row]] > 0)

    def begin(self, row: int, action: Action) -> None:
        """Plan a change that counts against the pace."""
        self.budget -= 1
        self.left[self.cluster.topic[row]] -= 1
        self.taken[row] = True
        self.actions.append(action)

    def add(self, replicas: Sequence[int], weight: float) -> None:
        """Add a segment of ``weight`` on ``replicas``, the primary first; a negative weight removes it."""
        for place, broker in enumerate(replicas):
            self.costs[broker] += weight * (FOLLOWER_COST if place else 1.0)

    def cheapest(self, count: int, kept: Sequence[int] = ()) -> list[int]:
        """Return ``kept`` and the cheapest other usable brokers, the cheapest first, up to ``count`` in all."""
        free = np.where(self.cluster.usable, self.costs, np.inf)
        chosen = list(kept[:count])
        free[chosen] = np.inf
        while len(chosen) < count:
            best = int(np.argmin(free))
            if free[best] == np.inf:
                break
            free[best] = np.inf
            chosen.append(best)
        return chosen


def healthy(cluster: ClusterColumns) -> Bools:
    """(S,) whether every recorded replica lives and is usable."""
    good = ((cluster.replicas >= 0) & cluster.usable[cluster.replicas]).sum(axis=1)
    result: Bools = good == cluster.replica_count
    return result


def heaviest_first(rows: Ints, weight: Floats) -> Ints:
    """Return the rows in descending order of their weight (shape of ``rows``), equal ones in the order given."""
    ordered: Ints = rows[np.argsort(-weight, kind="stable")]
    return ordered


def _cost(bytes_per_s: Floats, records_per_s: Floats, settings: BalancerSettings) -> Floats:
    cost: Floats = np.maximum(
        bytes_per_s / settings.segment_target_bytes_per_s, records_per_s / settings.segment_target_records_per_s
    )
    return cost + IDLE_COST
