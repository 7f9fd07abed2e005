"""Blows at members of groups."""

import asyncio
import random
from collections.abc import Sequence

from tests.sim.machines.network import KEEPALIVE_TIMEOUT_S, Network, machine_of
from tests.sim.users.group import Group, Member
from tests.sim.users.places import Place

READING_S_MAX = 2.0
SHARED_S_MAX = 2.0
OUT_S_MAX = 10.0


class MemberNemesis:
    """Blows at members of any group."""

    def __init__(self, members: Sequence[Place], network: Network, rng: random.Random) -> None:
        self._members = members
        self._network = network
        self._rng = rng

    async def trouble_member(self) -> None:
        """Kill one, freeze it for a short or a long time, or have it leave."""
        running = [m for m in self._members if m.is_running]
        if not running:
            return
        member = self._rng.choice(running)
        kind = self._rng.choice(("kill", "freeze", "leave"))
        if kind == "kill":
            member.kill()
        elif kind == "leave":
            member.leave()
        else:
            owner = member.freeze()
            pause_s = self._rng.choice((0.3, 3.0, 8.0))
            await asyncio.sleep(min(pause_s, KEEPALIVE_TIMEOUT_S))
            if pause_s > KEEPALIVE_TIMEOUT_S:
                self._network.break_streams_of(owner)
                await asyncio.sleep(pause_s - KEEPALIVE_TIMEOUT_S)
            member.thaw(owner)

    def heal(self) -> None:
        for member in self._members:
            member.thaw(member.owner)


class GroupNemesis(MemberNemesis):
    """Blows at members of a native group."""

    def __init__(self, group: Group, network: Network, rng: random.Random) -> None:
        super().__init__(group.members, network, rng)
        self._group = group

    async def _one_that_reads(self) -> Member | None:
        """Return a member that is processing records, or None if none does in time."""
        reading: list[Member] = []

        def look() -> bool:
            reading[:] = self._group.reading()
            return bool(reading)

        return self._rng.choice(reading) if await self._group.until(look, READING_S_MAX) else None

    async def freeze_until_out(self) -> None:
        """Freeze a member that is processing records until the group continues without it; thaw it soon after."""
        member = await self._one_that_reads()
        if member is None:
            return
        owner = member.freeze()
        await self._group.until(lambda: self._group.is_removed(owner.name), OUT_S_MAX)
        await asyncio.sleep(self._rng.choice((0.0, 0.1, 0.5)))
        member.thaw(owner)

    async def cut_off_until_out(self) -> None:
        """Cut a member that is processing records off from all brokers until the group continues without it."""
        member = await self._one_that_reads()
        if member is None:
            return
        owner = member.owner
        machine, brokers = machine_of(owner), self._group.brokers
        for broker in brokers:
            self._network.cut(machine, broker)
            self._network.cut(broker, machine)
        await self._group.until(lambda: self._group.is_removed(owner.name), OUT_S_MAX)
        await asyncio.sleep(self._rng.uniform(0, KEEPALIVE_TIMEOUT_S))
        for broker in brokers:
            self._network.join(machine, broker)
            self._network.join(broker, machine)

    async def come_back_unheard(self) -> None:
        """Disconnect a member while it is assigned segments; it returns as these are assigned to another."""
        group = self._group
        running = [m for m in group.members if m.is_running]
        if len(running) < 2:
            return
        away, other = self._rng.sample(running, 2)
        had, leaving = group.owns(away.owner.name), other.owner.name
        other.leave()
        owner = away.freeze()
        self._network.break_streams_of(owner)
        if await group.until(lambda: bool(group.owns(owner.name) - had), SHARED_S_MAX):
            await group.until(lambda: bool(group.present - {owner.name, leaving}), SHARED_S_MAX)
            await asyncio.sleep(self._rng.uniform(0, 0.03))
        away.thaw(owner)
