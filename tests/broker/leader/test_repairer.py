"""The limit of segments that are replaced at the same time."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.broker.leader.repairer import RECOVERIES_AT_ONCE, Repairer
from seaweedmq.broker.leader.transition_runner import Transition
from seaweedmq.core.lineage.repair import Repair
from tests.support.segments import make_segment


class Slow:
    """A succession that takes some time."""

    def __init__(self) -> None:
        self.most = self.now = 0

    async def carry_out_here(self, _: Transition) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1


@pytest.mark.parametrize(("live", "most"), [({"a", "b"}, 40), ({"b"}, 40), (set(), RECOVERIES_AT_ONCE)])
async def test_only_segments_of_which_no_replica_lives_are_replaced_a_few_at_a_time(live: set[str], most: int) -> None:
    """Only a segment without a living replica is recovered from files; elsewhere a follower has all records."""
    view = SimpleNamespace(brokers=dict.fromkeys(live))
    metadata = SimpleNamespace(view=view, is_open=lambda _: True)
    repairs = Repairer(metadata=cast(Any, metadata), placement=cast(Any, SimpleNamespace()))
    transitions = Slow()
    segments = [replace(make_segment(), id=number, replicas=("a", "b")) for number in range(40)]
    lost = [Repair(segment=segment, reason="lost", healthy_replicas=()) for segment in segments]
    await asyncio.gather(*(repairs.carry_out(cast(Any, transitions), repair) for repair in lost))
    assert transitions.most == most
