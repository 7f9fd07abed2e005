"""Steps of wall clocks: of one broker, of all, and of the storage, by seconds to days, forward and back."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from seaweedmq.broker.upkeep.maintained_segments import is_maintainer
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from tests.sim.machines.clocks import STORAGE
from tests.sim.machines.process import BrokerProcess
from tests.sim.nemesis.brokers import BrokerNemesis
from tests.sim.nemesis.losses import Losses
from tests.sim.users.operator import Operator
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World

LEAST_S, MOST_S = 2.0, 40 * 86_400.0
WRONG_S = (0.5, 6.0)
STAYS_SHARE = 0.2
"""Share of the steps that last until everything is healed."""
WRONG_BETWEEN_LOOKS_S = (0.3, 1.5)
"""Seconds of a step that most brokers miss: they read the clock of the storage every second or two."""


class ClockSteps:
    """Blows that set clocks wrong for a while and correct them."""

    def __init__(self, world: "World", operator: Operator, brokers: BrokerNemesis, losses: Losses) -> None:
        self._world = world
        self._operator = operator
        self._brokers = brokers
        self._losses = losses
        self._rng = world.rng("clock steps")

    async def step_clocks(self) -> None:
        """Step some clocks together, and back after a while."""
        rng, clocks = self._rng, self._world.clocks
        brokers = [process.name for process in self._world.processes]
        storage = [STORAGE] if clocks.has_storage else []
        machines = rng.choice(([rng.choice(brokers)], brokers, storage or brokers, brokers + storage))
        step_s = rng.choice((-1, 1, 1)) * math.exp(rng.uniform(math.log(LEAST_S), math.log(MOST_S)))
        self._step(machines, step_s)
        await asyncio.sleep(rng.uniform(*WRONG_S))
        if rng.random() < STAYS_SHARE:
            return
        self._step(machines, -step_s)

    async def step_between_two_seals(self) -> None:
        """Move a partition twice and step clocks in between, while its producers resend lost batches."""
        rng = self._rng
        segment = self._some_segment()
        if segment is None:
            return
        brokers = [process.name for process in self._world.processes]
        machines = rng.choice((brokers, [rng.choice(brokers)]))
        step_s = rng.choice((-1, 1, 1, 1)) * math.exp(rng.uniform(math.log(900.0), math.log(MOST_S)))
        await self._operator.seal(segment)
        self._world.network.break_some(1.0)
        self._step(machines, step_s)
        successor = self._successor(segment)
        if successor is not None:
            await self._operator.seal(successor)
        await asyncio.sleep(rng.uniform(*WRONG_S))
        self._step(machines, -step_s)

    async def date_tables_back(self) -> None:
        """Date tables back while no broker reads the clock of the storage, then kill the broker that saw them appear.

        The broker that takes the topic over has never seen a clock step."""
        rng = self._rng
        step_s = math.exp(rng.uniform(math.log(60.0), math.log(MOST_S)))
        self._step([STORAGE], -step_s)
        await asyncio.sleep(rng.uniform(*WRONG_BETWEEN_LOOKS_S))
        self._step([STORAGE], step_s)
        known = self._segments()
        if not known:
            return
        first = known[min(known)]
        spared = self._losses.spared
        keepers = [p for p in self._world.processes if p.name not in spared and self._looks_after(p, first)]
        await self._brokers.kill(keepers)

    def heal(self) -> None:
        self._world.clocks.end_steps()

    def _step(self, machines: Sequence[str], by_s: float) -> None:
        for machine in machines:
            self._world.clocks.step(machine, by_s)
        self._world.note("nemesis", f"steps the clocks of {', '.join(machines)} by {by_s:+,.0f} s")

    def _some_segment(self) -> Segment | None:
        opened = [segment for segment in self._segments().values() if segment.is_open]
        return self._rng.choice(opened) if opened else None

    def _looks_after(self, process: BrokerProcess, segment: Segment) -> bool:
        broker = process.broker
        return process.is_running and broker is not None and is_maintainer(segment, broker.id, Insides(broker).view)

    def _successor(self, segment: Segment) -> Segment | None:
        known = self._segments()
        found = (known.get(number) for number in known[segment.id].successors) if segment.id in known else ()
        return next((s for s in found if s is not None and s.is_open), None)

    def _segments(self) -> Mapping[int, Segment]:
        return self._world.cluster.state.segments.get(TopicName.parse(self._world.scenario.topics[0].name), {})
