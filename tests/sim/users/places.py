"""Members of any kind of group as processes, one incarnation after another."""

import asyncio
import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.sim.machines.loop import Owner, OwnerState

if TYPE_CHECKING:
    from tests.sim.world import World


class Place(ABC):
    """A place in a group, taken by one incarnation after another."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self._name = name
        self._rng: random.Random = world.rng(name)
        self._life = 0
        self._ended = asyncio.Event()
        self._leaving = False
        self.owner = Owner(f"{name}-0")
        self.owner.state = OwnerState.DEAD

    async def run(self) -> None:
        """Run incarnations until cancelled."""
        world = self._world
        while True:
            self._life += 1
            self._leaving = False
            self._ended = asyncio.Event()
            self.owner = self._next()
            world.note(self.owner.name, "starts")
            life = world.network.spawn(self.owner, self._live(), self.owner.name)
            life.add_done_callback(lambda _, ended=self._ended: ended.set(), context=world.context)
            await self._ended.wait()
            await asyncio.sleep(self._rng.choice((0.0, 0.3, 1.0)))

    @abstractmethod
    async def _live(self) -> None:
        """Run one incarnation, as ``owner``, until it has left."""

    def _next(self) -> Owner:
        """Return the owner of the next incarnation."""
        return Owner(f"{self._name}-{self._life}")

    # --- what the nemesis does ----------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.owner.state is OwnerState.RUNNING

    def kill(self) -> None:
        """Send SIGKILL."""
        self._world.note(self.owner.name, "is killed")
        self.owner.state = OwnerState.DEAD
        self._world.network.break_owner(self.owner, silently=self._rng.random() < 0.5)
        self._ended.set()

    def leave(self) -> None:
        """Have it leave at its next check."""
        self._leaving = True

    def freeze(self) -> Owner:
        """Send SIGSTOP. Return the frozen owner."""
        self._world.note(self.owner.name, "is frozen")
        self.owner.state = OwnerState.FROZEN
        return self.owner

    def thaw(self, owner: Owner) -> None:
        """Send SIGCONT, unless that incarnation is over or thawed already."""
        if owner.state is OwnerState.FROZEN:
            self._world.note(owner.name, "is thawed")
            self._world.loop.thaw(owner)
