"""Claims: a flood is spread over all brokers in 15 s, stalls no publisher for 0.5 s; 60 s after it one segment is left.

The scenario is that of the fault tests (``tests/faults/users/flood.py``): two publishers at full speed with keys by
Zipf's law, a topic of one segment with a low target on three brokers, and a group of four, two of which are killed and
replaced."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cluster import scratch
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.model.config import BrokerConfig
from tests.faults.episode import stage
from tests.faults.users.flood import SETTINGS, FloodOutcome, flood

GROWN_S_MAX = 15.0
STALL_S_MAX = 0.5
SHRUNK_S_MAX = 60.0
FLOOD_S = 15.0
QUICK_FLOOD_S = 0.0
"""Duration of a quick flood: until the topic has grown."""
QUICK_SETTINGS = {**SETTINGS, "merge_after_s": 1.0, "load_long_s": 1.0}
"""Settings of a quick flood: its topic shrinks as soon as possible."""
SPLIT_AFTER, MERGE_AFTER, MEDIAN, RECORDS = (
    "split_after_s",
    "merge_after_s",
    "median acknowledgement in the flood",
    "records acknowledged in the flood",
)


def run(scale: Scale) -> list[Measure]:
    """Run one flood. Its times are compared with the settings' delays before splits and merges."""
    flood_s, settings = (QUICK_FLOOD_S, QUICK_SETTINGS) if scale.quick else (FLOOD_S, SETTINGS)
    with scratch(scale.directory) as folder:
        outcome = asyncio.run(_flood(folder, flood_s, settings))
    split_after_s, merge_after_s = BrokerConfig().split_after_s, settings["merge_after_s"]
    median_s, acked = outcome.median_s, float(outcome.acked)
    sizes = {
        "segments_max": outcome.segments_max,
        "segments_ever": outcome.segments,
        "records_per_s": round(outcome.flooded / outcome.flood_s),
    }
    measures = [
        yardstick(SPLIT_AFTER, [split_after_s], "s"),
        yardstick(MERGE_AFTER, [merge_after_s], "s"),
        yardstick(MEDIAN, [median_s], "s"),
        yardstick(RECORDS, [acked], "records"),
        compared("flood_grown", [outcome.grown_s], "s", SPLIT_AFTER, [split_after_s], value_max=GROWN_S_MAX, **sizes),
        compared("flood_stall", [outcome.stall_s], "s", MEDIAN, [median_s], value_max=STALL_S_MAX),
        compared("flood_shrunk", [outcome.shrunk_s], "s", MERGE_AFTER, [merge_after_s], value_max=SHRUNK_S_MAX),
        compared("flood_stall_merging", [outcome.calm_stall_s], "s", MEDIAN, [median_s]),
        compared("flood_redelivered", [float(outcome.again)], "records", RECORDS, [acked]),
    ]
    for name, rules in {
        "flood_lost": ("lost",),
        "flood_duplicated": ("duplicated",),
        "flood_reordered": ("reordered", "offsets fall"),
        "flood_promises_broken": tuple({violation.rule for violation in outcome.violations}),
    }.items():
        found = float(sum(violation.rule in rules for violation in outcome.violations))
        measures.append(compared(name, [found], "records", RECORDS, [acked], value_max=0))
    return measures


async def _flood(folder: Path, flood_s: float, settings: Mapping[str, float]) -> FloodOutcome:
    async with stage(folder, settings=settings) as cluster:
        return await flood(cluster, flood_s=flood_s, say=lambda text: print(text, flush=True))
