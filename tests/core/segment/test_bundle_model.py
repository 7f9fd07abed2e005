"""Histories of a writer and three leaders on an object store that answers late, twice or never; and broken variants."""

from typing import Any

import pytest

from seaweedmq.errors import Corrupt
from tests.core.segment.bundle_model import Broken, run
from tests.core.segment.bundle_mutants import MUTANTS

SEEDS = range(60)
DEEP_SEEDS = 6_000
DEEP_PARTS = 20


def failures(seeds: range) -> list[str]:
    found = []
    for seed in seeds:
        try:
            run(seed)
        except (Broken, AssertionError, Corrupt) as error:
            found.append(f"seed {seed}: {error}")
    return found


def is_caught(seed: int, broken: dict[str, Any]) -> bool:
    try:
        run(seed, **broken)
    except (Broken, Corrupt):
        return True
    return False


def test_no_acknowledged_frame_is_lost_doubled_or_reordered() -> None:
    assert failures(SEEDS) == []


def test_the_histories_have_everything_in_them_and_the_same_seed_gives_the_same() -> None:
    worlds = [run(seed) for seed in SEEDS[:20]]
    assert sum(sum(world.writer.acknowledged.values()) for world in worlds) > 2_000
    assert any(world.writer.puts.ended_at is not None for world in worlds), "a writer meets the fence"
    assert any(world.writer.floor > 0 for world in worlds), "bundles are deleted"
    assert any(number not in world.store.entries for world in worlds for number in range(1, 5))
    assert any(run.is_reference for world in worlds for e in world.writer.entries.values() for run in e.runs)
    assert any(found for world in worlds for _, found, _ in world.results), "segments come from bundles"
    assert any(not found for world in worlds for _, found, _ in world.results), "or leftovers were written"
    one, other = run(7), run(7)
    assert (one.trace, one.writer.acknowledged) == (other.trace, other.writer.acknowledged)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_variant_is_found_by_its_seeds(name: str) -> None:
    mutant = MUTANTS[name]
    found = [seed for seed in mutant.seeds if is_caught(seed, mutant.broken)]
    assert found == list(mutant.seeds), "name others with `python -m tests.core.segment.bundle_mutants`"


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(DEEP_PARTS))
def test_six_thousand_histories(part: int) -> None:
    count = DEEP_SEEDS // DEEP_PARTS
    assert failures(range(1_000 + part * count, 1_000 + (part + 1) * count)) == []
