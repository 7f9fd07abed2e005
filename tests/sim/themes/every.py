"""Themes: seeds that focus on one part of the world, since runs with everything rarely reach corner cases.

After "swarm testing" (Groce et al., ISSTA 2012): among many runs that each omit most features some go deep, while runs
with all features resemble each other. A seed has at most one theme, and independent dice for each, so that a theme
added at the end changes only its own seeds.
"""

import inspect
import random
from collections.abc import Callable, Mapping

from tests.sim.scenario import Scenario
from tests.sim.themes import files as themes_files
from tests.sim.themes import kafka as themes_kafka
from tests.sim.themes import memory as themes_memory
from tests.sim.themes import metadata as themes_metadata
from tests.sim.themes import replicas as themes_replicas
from tests.sim.themes import surroundings as themes_surroundings

SHARE = 0.04
"""Share of the seeds for each theme."""

Theme = Callable[[random.Random, Scenario], Scenario]

_IN_TURN: tuple[Theme, ...] = (
    themes_files.power_fails_behind_an_fsync, themes_files.clocks_disagree, themes_files.sealed_unheard,
    themes_replicas.few_replicas, themes_replicas.repeats, themes_replicas.namesakes, themes_replicas.sleepers,
    themes_metadata.much_is_forgotten, themes_metadata.some_know_less, themes_metadata.nobody_has_been_there,
    themes_metadata.brokers_are_full, themes_memory.large_records, themes_memory.first_data,
    themes_files.files_begin_in_vain, themes_metadata.a_leader_stumbles, themes_metadata.members_come_back_unheard,
    themes_metadata.members_refuse, themes_files.written_again, themes_replicas.members_are_cut_off,
    themes_replicas.deletions_come_late, themes_metadata.partitions_are_added, themes_metadata.kafka_producers,
    themes_metadata.records_are_deleted, themes_kafka.kafka_consumers, themes_kafka.kafka_groups,
    themes_surroundings.etcd_answers_with_errors, themes_surroundings.the_storage_is_full,
    themes_surroundings.the_root_is_lost, themes_surroundings.etcd_is_lost, themes_surroundings.clocks_step,
    themes_surroundings.tables_are_dated_back,
)  # fmt: skip


THEMES: Mapping[str, Theme] = {theme.__name__: theme for theme in _IN_TURN}
"""Themes by name, in the order in which a seed tries them."""


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    scenario = Scenario.of(seed)
    drawn = _drawn(seed)
    if drawn is None:
        return scenario
    name, rng = drawn
    return THEMES[name](rng, scenario)


def theme_of(seed: int) -> str | None:
    """Return the name of the seed's theme, if it has one."""
    drawn = _drawn(seed)
    return drawn and drawn[0]


def told_themes() -> str:
    """Return every theme with its summary, one per line."""
    width = max(map(len, THEMES))
    return "\n".join(
        f"{name:{width}}  {' '.join((inspect.getdoc(theme) or '').split())}" for name, theme in THEMES.items()
    )


def _drawn(seed: int) -> tuple[str, random.Random] | None:
    """Return the first theme that the seed's dice choose, and those dice."""
    for name in THEMES:
        rng = random.Random(f"theme {name} {seed}")
        if rng.random() < SHARE:
            return name, rng
    return None
