"""Splits of overloaded segments, at the slot that halves their observed load."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from seaweedmq.core.balance.actions import Hold, Split
from seaweedmq.core.balance.input import Bools, ClusterColumns, Floats, Loads
from seaweedmq.core.balance.plan import Plan, heaviest_first
from seaweedmq.core.balance.rate_words import load_beside_target
from seaweedmq.core.lineage.topology import SEGMENTS_PER_TOPIC_MAX
from seaweedmq.model.ring import HISTOGRAM_BUCKETS

SPLIT_ABOVE = 2.0
"""Multiple of its target above which a segment is split. Merging starts far below, so that noise triggers neither."""

UNFAIR_ABOVE = 2.0
"""Multiple of the average broker's load above which a segment beyond its target is also split."""

HOT_SHARE = 0.5
"""Fraction of a segment's load in one bucket that indicates a hot key rather than many keys. Cuts then go around the
bucket, not through it, and each pair of cuts narrows it down by a factor of 16."""

EVEN_SHARE = 0.25
"""Fraction of the load beyond a cut beside a hot bucket above which the more even of its two edges is cut."""

GAIN_MIN = 0.1
"""Least fraction of the load beside a hot slot: with less, a cut would gain nothing."""

PER_BROKER_MAX = 2
"""Most segments of one primary that one decision splits."""

HOLDS_MAX = 100


def plan_splits(plan: Plan, healthy: Bools, pressure: Floats) -> list[Hold]:
    """Plan splits, the most loaded first, and return the segments that should be split but cannot be.

    ``healthy`` (S,) says if all replicas of a segment are; ``pressure`` (S,) is its short average over the target.
    """
    cluster = plan.cluster
    unfair = (pressure > 1) & (plan.short > UNFAIR_ABOVE * plan.mean) & (plan.usable_count > 1)
    wanted = cluster.topic_auto[cluster.topic] & healthy & plan.may_split & ~plan.taken
    rows = np.flatnonzero(wanted & ((pressure > SPLIT_ABOVE) | unfair))
    held: list[Hold] = []
    of_broker: Counter[int] = Counter()
    segments = np.bincount(cluster.topic, minlength=len(cluster.topics))
    for row in heaviest_first(rows, pressure[rows]).tolist():
        topic, primary = int(cluster.topic[row]), int(cluster.primary[row])
        lo, hi, histogram = int(cluster.lo[row]), int(cluster.hi[row]), plan.loads.histograms[row]
        at = split_slot(lo, hi, histogram)
        if at is None or segments[topic] >= SEGMENTS_PER_TOPIC_MAX:
            if len(held) < HOLDS_MAX:
                held.append(_hold(plan, row, float(pressure[row]), int(segments[topic]) if at else None))
        elif plan.may_begin(row) and (plan.at_once or of_broker[primary] < PER_BROKER_MAX):
            below = share_below(lo, hi, histogram, at)
            if pressure[row] <= SPLIT_ABOVE and min(below, 1 - below) < GAIN_MIN:
                continue  # narrowing down a hot key is not worth it for fair shares alone
            segments[topic] += 1
            of_broker[primary] += 1
            _split(plan, row, at, below, float(pressure[row]))
    return held


def pressure_of(cluster: ClusterColumns, loads: Loads) -> Floats:
    """(S,) short average as a multiple of the segment's target, the larger of bytes and records."""
    pressure: Floats = np.maximum(
        loads.bytes_per_s / cluster.topic_target_bytes_per_s[cluster.topic],
        loads.records_per_s / cluster.topic_target_records_per_s[cluster.topic],
    )
    return pressure


def split_slot(lo: int, hi: int, histogram: Sequence[float]) -> int | None:
    """Return the slot in ``(lo, hi)`` that halves the load; None if one slot has the load, so that no cut helps.

    ``histogram`` is the load per sixteenth of ``[lo, hi)``, see ``codec.slots.histogram_of``; empty or zero if unknown.
    """
    if hi - lo < 2:
        return None
    total = sum(histogram)
    if total <= 0:
        return (lo + hi) // 2
    hot = max(range(HISTOGRAM_BUCKETS), key=lambda bucket: histogram[bucket])
    if histogram[hot] < HOT_SHARE * total:
        return _halving(lo, hi, histogram, total)
    first, last = _edge(lo, hi, hot), _edge(lo, hi, hot + 1)
    if last - first == 1 and total - histogram[hot] < GAIN_MIN * total:
        return None
    below = sum(histogram[:hot]) / total
    above = 1 - below - histogram[hot] / total
    if max(below, above) >= EVEN_SHARE:
        return _inside(lo, hi, first if below >= above else last)
    return _inside(lo, hi, first if first - lo >= hi - last else last)


def share_below(lo: int, hi: int, histogram: Sequence[float], at: int) -> float:
    """Return the fraction of the load in ``[lo, at)``, assuming even load within a bucket."""
    total = sum(histogram)
    if total <= 0:
        return (at - lo) / (hi - lo)
    below = 0.0
    for bucket, load in enumerate(histogram):
        first, last = _edge(lo, hi, bucket), _edge(lo, hi, bucket + 1)
        if last > first:
            below += load * min(1.0, max(0.0, (at - first) / (last - first)))
    return below / total


def _halving(lo: int, hi: int, histogram: Sequence[float], total: float) -> int:
    half = total / 2
    sums = list(accumulate(histogram))
    bucket = next(b for b, through in enumerate(sums) if through >= half)
    first, last = _edge(lo, hi, bucket), _edge(lo, hi, bucket + 1)
    inside = (half - (sums[bucket] - histogram[bucket])) / histogram[bucket]
    return _inside(lo, hi, round(first + inside * (last - first)))


def _inside(lo: int, hi: int, at: int) -> int:
    """Return the cut, or the nearest one that leaves a slot on each side.

    With fewer slots than buckets, some buckets have no slot, and loads that clients count there are ignored.
    """
    return min(max(at, lo + 1), hi - 1)


def _edge(lo: int, hi: int, bucket: int) -> int:
    """Return the first slot of the bucket: a slot's bucket is ``(slot - lo) * 16 // (hi - lo)``."""
    return lo - -(bucket * (hi - lo)) // HISTOGRAM_BUCKETS


def _hold(plan: Plan, row: int, pressure: float, segments: int | None) -> Hold:
    why = (
        "it is one hot key, which cannot be split"
        if segments is None
        else f"its topic has {segments} segments, which is the limit"
    )
    cluster = plan.cluster
    return Hold(cluster.topics[cluster.topic[row]], int(cluster.id[row]), f"{_too_much(plan, row, pressure)}: {why}")


def _too_much(plan: Plan, row: int, pressure: float) -> str:
    words = f"segment {plan.cluster.id[row]} {load_beside_target(plan.cluster, plan.loads, row)}"
    if pressure > SPLIT_ABOVE:
        return words
    return f"{words} and {plan.short[row] / plan.mean:.1f} times what an average broker carries"


def _split(plan: Plan, row: int, at: int, below: float, pressure: float) -> None:
    """Place both successors on the cheapest brokers, the heavier first: no broker holds their records yet."""
    cluster, weight = plan.cluster, float(plan.weight[row])
    plan.add(plan.replicas_of(row), -weight)
    placement: list[tuple[str, ...]] = [(), ()]
    for child, share in sorted(enumerate((below, 1 - below)), key=lambda item: -item[1]):
        replicas = plan.cheapest(plan.wanted(row))
        plan.add(replicas, share * weight)
        placement[child] = cluster.ids(replicas)
    reason = f"{_too_much(plan, row, pressure)}: split at slot {at}, {below:.0%} below"
    plan.begin(
        row, Split(cluster.topics[cluster.topic[row]], int(cluster.id[row]), at, (placement[0], placement[1]), reason)
    )
