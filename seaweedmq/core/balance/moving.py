"""Moves of segments from brokers with much more load than the mean, or to those with much less."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from seaweedmq.core.balance.actions import Move
from seaweedmq.core.balance.input import Bools, Floats, Ints
from seaweedmq.core.balance.plan import FOLLOWER_COST, Plan

UNEVEN_SHARE = 0.15
"""Distance from the mean, as a fraction of it, above which a broker takes part in moves; by both averages."""

EVEN_SHARE = 0.05
"""Distance from the mean, as a fraction of it, that moves aim for, so that noise does not trigger the next move."""

GAIN_MIN_SHARE = 0.05
"""Fraction of the mean by which the larger of the two brokers' loads must fall if no segment fits into the gap."""

GAIN_MIN_PART = 0.25
"""Fraction of the moved load by which the larger of the two must fall: otherwise noise would move it back."""

UNEVEN_COST_MIN = 0.05
"""Least cost difference that is worth a move, in segments at their target."""

PARTNERS_MAX = 8
"""Most partners tried for an uneven broker."""

PER_BROKER_MAX = 4
"""Most moves of one decision that a broker takes part in."""


@dataclass(frozen=True, slots=True)
class _Relief:
    """A move that shifts ``cost`` from one broker to another."""

    row: int
    cost: float
    replicas: tuple[int, ...]


class MovePlanner:
    """The planner of one decision's moves for balance."""

    def __init__(self, plan: Plan, healthy: Bools) -> None:
        self._plan = plan
        self._fit = healthy & plan.may_move
        cluster = plan.cluster
        unsure = cluster.replicas[(plan.young | cluster.changing) & ~np.bool_(plan.at_once)]
        settled = cluster.usable.copy()
        settled[unsure[unsure >= 0]] = False
        self._settled = settled
        """(B,) whether the broker's load is known: none of its segments is new or changing."""
        self._moves_of: Counter[int] = Counter()
        self._rows_on: dict[int, Ints] = {}
        short, long = plan.costs_of(plan.short), plan.costs_of(plan.long)
        self._mean = float(long[cluster.usable].mean())
        self._costs: Floats = long + plan.costs - plan.costs_of(plan.weight)
        """(B,) cost by the long averages, which noise hardly moves, including the planned changes."""
        self._heavy = settled & _beyond(short, cluster.usable, 1) & _beyond(long, cluster.usable, 1)
        self._light = settled & _beyond(short, cluster.usable, -1) & _beyond(long, cluster.usable, -1)

    def plan_moves(self) -> None:
        """Plan moves until every broker is near the mean, no move fits, or the pace allows no more."""
        while self._plan.budget > 0:
            uneven = self._most_uneven()
            if uneven is None:
                return
            if not (self._relieve(uneven) if self._heavy[uneven] else self._fill(uneven)):
                self._heavy[uneven] = self._light[uneven] = False

    def _most_uneven(self) -> int | None:
        off = self._costs - self._mean
        worth = max(EVEN_SHARE * self._mean, UNEVEN_COST_MIN)
        off = np.where((self._heavy & (off > worth)) | (self._light & (-off > worth)), np.abs(off), 0.0)
        most = int(np.argmax(off))
        return most if off[most] > 0 else None

    def _relieve(self, source: int) -> bool:
        """Shift a segment from ``source`` to one of the cheapest brokers; False if none can be shifted."""
        return any(self._shift(source, target) for target in self._partners(source, self._costs))

    def _fill(self, target: int) -> bool:
        """Shift a segment to ``target`` from one of the most expensive brokers; False if none can be shifted."""
        return any(self._shift(source, target) for source in self._partners(target, -self._costs))

    def _partners(self, broker: int, order: Floats) -> list[int]:
        if self._spent(broker):
            return []
        settled = np.flatnonzero(self._settled)
        ordered = settled[np.argsort(order[settled], kind="stable")].tolist()
        return [b for b in ordered[: PARTNERS_MAX + 1] if b != broker and not self._spent(b)][:PARTNERS_MAX]

    def _spent(self, broker: int) -> bool:
        return not self._plan.at_once and self._moves_of[broker] >= PER_BROKER_MAX

    def _shift(self, source: int, target: int) -> bool:
        relief = self._best_relief(source, target)
        if relief is None:
            return False
        plan, cluster = self._plan, self._plan.cluster
        times = self._costs / max(self._mean, UNEVEN_COST_MIN)
        number = int(cluster.id[relief.row])
        role = "segment" if relief.replicas[0] == target else "a replica of segment"
        there, here = cluster.brokers[source], cluster.brokers[target]
        reason = (
            f"{there} carries {times[source]:.2f} times the mean, {here} {times[target]:.2f} times: "
            f"move {role} {number}"
        )
        plan.add(plan.replicas_of(relief.row), -float(plan.weight[relief.row]))
        plan.add(relief.replicas, float(plan.weight[relief.row]))
        self._costs[source] -= relief.cost
        self._costs[target] += relief.cost
        self._moves_of.update((source, target))
        topic = cluster.topics[cluster.topic[relief.row]]
        plan.begin(relief.row, Move(topic, number, cluster.ids(relief.replicas), reason))
        return True

    def _best_relief(self, source: int, target: int) -> _Relief | None:
        """Return the largest relief that brings both brokers to or near the mean, else the smallest that helps."""
        plan = self._plan
        rows = self._movable(source)
        if not len(rows):
            return None
        costs = plan.long[rows] * _factor(plan.cluster.replicas[rows], source, target)
        higher, lower, mean = float(self._costs[source]), float(self._costs[target]), self._mean
        room = min(higher - (1 - EVEN_SHARE) * mean, (1 + EVEN_SHARE) * mean - lower)
        if room <= 0 and higher - lower < 2 * UNEVEN_SHARE * mean:
            return None
        gain = np.minimum(costs, higher - lower - costs)
        enough = max(GAIN_MIN_SHARE * mean, UNEVEN_COST_MIN / 2)
        worth = (costs > 0) & (gain >= GAIN_MIN_PART * costs)
        fits = worth & (costs <= room)
        if costs[fits].sum() >= enough:
            best = int(np.argmax(np.where(fits, costs, -1.0)))
        else:
            best = int(np.argmax(np.where(worth, gain, -1.0)))
            if not worth[best] or gain[best] < enough:
                return None
        row = int(rows[best])
        return _Relief(row, float(costs[best]), _exchanged(plan.replicas_of(row), source, target))

    def _movable(self, broker: int) -> Ints:
        if broker not in self._rows_on:
            on = (self._plan.cluster.replicas == broker).any(axis=1)
            self._rows_on[broker] = np.flatnonzero(on & self._fit)
        rows = self._rows_on[broker]
        plan = self._plan
        free: Ints = rows[~plan.taken[rows] & (plan.left[plan.cluster.topic[rows]] > 0)]
        return free


def _beyond(costs: Floats, usable: Bools, sign: int) -> Bools:
    """(B,) whether the usable broker is unevenly far above (``sign`` 1) or below (-1) the mean."""
    mean = float(costs[usable].mean())
    far: Bools = usable & (sign * (costs - mean) > max(UNEVEN_SHARE * mean, UNEVEN_COST_MIN))
    return far


def _factor(replicas: Ints, source: int, target: int) -> Floats:
    """(N,) fraction of a segment's weight that an exchange shifts from ``source`` to ``target``; 0 for none."""
    leads = replicas[:, 0] == source
    factor = np.where(leads, 1.0, FOLLOWER_COST)
    both = (replicas == target).any(axis=1)
    factor[both] = np.where(leads[both], 1.0 - FOLLOWER_COST, 0.0)
    return factor


def _exchanged(replicas: list[int], source: int, target: int) -> tuple[int, ...]:
    """Replace ``source`` by ``target``; if both are replicas, swap their roles."""
    swap = {source: target, target: source}
    return tuple(swap.get(broker, broker) for broker in replicas)
