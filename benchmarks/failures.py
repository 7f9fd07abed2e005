"""Claims: the time that users wait when brokers are killed, frozen or restarted, without any loss.

Faults, users and checker are those of the fault tests (``tests/faults``), which must run from the same checkout: the
tested code is measured. A gap is the longest time in which some key had records in flight and none of them was
acknowledged.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster import scratch
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from tests.faults.episode import Outcome, play, stage
from tests.faults.machines.cluster import Cluster
from tests.faults.users.workload import REPLICATED, SINGLE, STORED, TopicPlan

LEASE_TTL_S = 2.0
RECORDS_PER_S = 2_000.0
"""Records per second of each topic of three segments."""
ROUNDS = 3
ATTEMPTS = 5
"""Attempts to find a broker with the wanted roles: the cluster chooses leader and primaries."""
TWO_REPLICAS = (REPLICATED, STORED)
TTL, RECORDS = "lease TTL", "records acknowledged under faults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One kind of fault and its promise."""

    fault: str
    measure: str
    gap_s_max: float
    plans: Sequence[TopicPlan] = TWO_REPLICAS
    """Topics of the strike: with one replica a dead broker's lease must end first."""


STRIKES = (
    Strike(fault="kill_primary", measure="gap_primary_killed", gap_s_max=1.0),
    Strike(fault="kill_leader", measure="gap_leader_and_primary_killed", gap_s_max=LEASE_TTL_S + 1),
    Strike(fault="freeze_primary", measure="gap_primary_frozen", gap_s_max=LEASE_TTL_S + 1),
    Strike(fault="freeze_leader", measure="gap_leader_frozen", gap_s_max=LEASE_TTL_S + 1),
    Strike(fault="rolling_restart", measure="gap_rolling_restart", gap_s_max=2.0, plans=(*TWO_REPLICAS, SINGLE)),
)
QUICK = ("rolling_restart",)
"""The suite ``topics`` also kills the leader."""


def run(scale: Scale) -> list[Measure]:
    """Inject every fault some times on three brokers, beside the lease; the figure of a fault is its worst round."""
    strikes = [strike for strike in STRIKES if not scale.quick or strike.fault in QUICK]
    with scratch(scale.directory) as folder:
        outcomes = asyncio.run(_hurt(folder, strikes, 1 if scale.quick else ROUNDS))
    measures = [yardstick(TTL, [LEASE_TTL_S], "s")]
    measures += [_gap(strike, outcomes[strike.fault]) for strike in strikes]
    everything = [outcome for found in outcomes.values() for outcome in found]
    measures.append(yardstick(RECORDS, [float(sum(o.acked for o in everything))], "records"))
    rolling = outcomes["rolling_restart"]
    measures.append(_count("errors_rolling_restart", everything, rolling, "error", unit="errors"))
    measures.append(_count("lost", everything, everything, "lost"))
    measures.append(_count("duplicated", everything, everything, "duplicated"))
    measures.append(_count("reordered", everything, everything, "reordered", "offsets fall"))
    rules = {violation.rule for outcome in everything for violation in outcome.violations}
    details = {"rules": sorted(rules)} if rules else {}
    measures.append(_count("promises_broken", everything, everything, *rules, unit="violations", **details))
    return measures


async def _hurt(folder: Path, strikes: Sequence[Strike], rounds: int) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {strike.fault: [] for strike in strikes}
    async with stage(folder, lease_ttl_s=LEASE_TTL_S) as cluster:
        for number in range(rounds):
            for strike in strikes:
                outcomes[strike.fault].append(await _fitting(cluster, strike, number))
    return outcomes


async def _fitting(cluster: Cluster, strike: Strike, number: int) -> Outcome:
    for attempt in range(ATTEMPTS):
        seed = f"{strike.fault}-{number}-{attempt}"
        outcome = await play(cluster, [strike.fault], seed=seed, plans=strike.plans, records_per_s=RECORDS_PER_S)
        print(outcome.line(), flush=True)
        if outcome.count("stuck"):
            raise AssertionError(f"no figure: {outcome.violations[0]}")
        if not outcome.unfit:
            return outcome
    raise AssertionError(f"{strike.fault} found no {', '.join(outcome.unfit)} in {ATTEMPTS} attempts")


def _gap(strike: Strike, outcomes: Sequence[Outcome]) -> Measure:
    return compared(
        strike.measure,
        [max(outcome.gap_s for outcome in outcomes)],
        "s",
        TTL,
        [LEASE_TTL_S],
        value_max=strike.gap_s_max,
        rounds=[round(outcome.gap_s, 3) for outcome in outcomes],
        slowest_s=round(max(outcome.slowest_s for outcome in outcomes), 3),
        own_lag_s=round(max(outcome.loop_lag_s for outcome in outcomes), 3),
    )


def _count(
    name: str,
    everything: Sequence[Outcome],
    outcomes: Sequence[Outcome],
    *rules: str,
    unit: str = "records",
    **details: Any,
) -> Measure:
    acked = float(sum(outcome.acked for outcome in everything))
    found = float(sum(outcome.count(*rules) for outcome in outcomes))
    return compared(name, [found], unit, RECORDS, [acked], value_max=0, **details)
