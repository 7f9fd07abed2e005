"""Blows at the network, clocks and storage as a whole."""

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world import World


class Surroundings:
    """Random, temporary deterioration of the surroundings."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng

    async def break_streams(self) -> None:
        self._note(f"breaks {self._world.network.break_some(self._rng.choice((0.3, 1.0)))} streams")

    async def slow_network(self) -> None:
        self._note("slows the network")
        self._world.network.faults.slow_share = self._rng.choice((0.05, 0.5))
        await asyncio.sleep(self._rng.uniform(0.5, 3))
        self._world.network.faults.slow_share = 0.0

    async def lossy_network(self) -> None:
        self._note("loses messages and acknowledgements")
        self._world.network.faults.break_share = self._rng.choice((0.005, 0.03))
        self._world.network.faults.lost_ack_share = self._rng.choice((0.0, 0.3))
        await asyncio.sleep(self._rng.uniform(0.5, 3))
        self._world.network.faults.break_share = self._world.network.faults.lost_ack_share = 0.0

    async def set_a_clock(self) -> None:
        machine = self._rng.choice(self._world.processes).name
        self._note(f"sets the clock of {machine}: it is {self._world.clocks.set_wrong(machine):+.1f} s off")

    async def slow_storage(self) -> None:
        self._note("slows the storage")
        self._world.disk.faults.slow_s_max = self._rng.choice((0.05, 0.5))
        await asyncio.sleep(self._rng.uniform(0.5, 3))
        self._world.disk.faults.slow_s_max = 0.0

    async def failing_storage(self) -> None:
        self._note("makes the storage fail")
        self._world.disk.faults.failing_share = self._rng.choice((0.05, 0.3, 1.0))
        await asyncio.sleep(self._rng.uniform(0.2, 1.5))
        self._world.disk.faults.failing_share = 0.0

    def _note(self, what: str) -> None:
        self._world.note("nemesis", what)
