"""Whole clusters from seeds: every promise is kept, a seed is a run, and broken code is caught."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker import publish
from seaweedmq.broker.segment import OpenSegment
from seaweedmq.core.segment_log import SegmentLog
from seaweedmq.model.segment import SegmentState
from tests.sim.world import simulate

SEEDS = 100
SEEDS_PER_TEST = 5
SEEDS_UNTIL_CAUGHT = 500


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        report = simulate(seed)
        told = "\n".join([*report.log[-40:], *map(str, report.violations[:20])])
        assert report.ok, f"make sim SEED={seed}\n{told}"


@pytest.mark.parametrize("seed", [1, 4, 17])
def test_the_same_seed_is_the_same_run_in_another_process(seed: int) -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--digest"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()

    digests = {digest(hash_seed) for hash_seed in ("0", "1", "2")}
    assert digests == {simulate(seed).digest}


def test_different_seeds_are_different_runs() -> None:
    assert len({simulate(seed).digest for seed in range(5)}) == 5


Break = Callable[[pytest.MonkeyPatch], None]


def commit_before_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentLog, "committable", property(lambda log: log.end))


def commit_before_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentLog, "committable", property(lambda log: log.written))


def trust_a_lease_that_ran_out(patch: pytest.MonkeyPatch) -> None:
    begin = OpenSegment.__init__

    def trusting(segment: Any, topic: Any, metadata: Any, context: Any, *args: Any, **kwargs: Any) -> None:
        begin(segment, topic, metadata, replace(context, lease_alive=lambda: True), *args, **kwargs)

    patch.setattr(OpenSegment, "__init__", trusting)


def ignore_the_end_offset(patch: pytest.MonkeyPatch) -> None:
    recover = publish.recover_segment  # type: ignore[attr-defined]

    async def recover_all(store: Any, topic: Any, segment: Any) -> Any:
        return await recover(store, topic, replace(segment, end_offset=None, state=SegmentState.OPEN))

    patch.setattr(publish, "recover_segment", recover_all)


def forget_sequences_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    sealed = publish.PublishService._sealed

    async def forgetful(service: Any, topic: Any, segment: Any, opening: Any) -> Any:
        return replace(await sealed(service, topic, segment, opening), next_sequence=0, recent=())

    patch.setattr(publish.PublishService, "_sealed", forgetful)


DATA_RULES = {
    "lost",
    "duplicated",
    "one value per offset",
    "reordered",
    "offsets fall",
    "gap",
    "elsewhere",
    "lineage",
}
"""A broken variant counts as caught by these only: not by a hang, nor by something that fails without it too."""


def is_caught(seed: int, break_it: Break) -> bool:
    """Whether the seed keeps every promise as the code is, and breaks one about data with ``break_it``."""
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        rules = {violation.rule for violation in simulate(seed).violations}
    return bool(rules & DATA_RULES) and simulate(seed).ok


@pytest.mark.parametrize(
    ("break_it", "likely"),
    [
        (commit_before_write, 1),
        (commit_before_fsync, 59),
        (trust_a_lease_that_ran_out, 68),
        (ignore_the_end_offset, 116),
        (forget_sequences_at_the_seal, 1),
    ],
)
@pytest.mark.timeout(300)
def test_broken_code_is_caught(break_it: Break, likely: int) -> None:
    seeds = [likely, *(seed for seed in range(SEEDS_UNTIL_CAUGHT) if seed != likely)]
    caught = next((seed for seed in seeds if is_caught(seed, break_it)), None)
    assert caught is not None, f"{break_it.__name__} went unnoticed in {SEEDS_UNTIL_CAUGHT} seeds"
