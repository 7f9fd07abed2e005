"""Blows at etcd and at the network to it."""

import asyncio
import random
from typing import TYPE_CHECKING

from tests.sim.machines.process import BrokerProcess
from tests.sim.nemesis.losses import Losses

if TYPE_CHECKING:
    from tests.sim.world import World


class EtcdNemesis:
    """Random blows at etcd."""

    def __init__(self, world: "World", rng: random.Random, losses: Losses) -> None:
        self._world = world
        self._rng = rng
        self._losses = losses

    async def stop_etcd(self) -> None:
        etcd = self._world.etcd
        if etcd.server.is_running and not etcd.server.is_frozen and not self._losses.spared:
            self._note("stops etcd")
            etcd.run(etcd.server.stop)
            await asyncio.sleep(self._rng.uniform(0.2, 4))
            self.end_outage()

    async def freeze_etcd(self) -> None:
        etcd = self._world.etcd
        if etcd.server.is_running and not etcd.server.is_frozen and not self._losses.spared:
            self._note("freezes etcd")
            etcd.run(etcd.server.freeze)
            await asyncio.sleep(self._rng.uniform(0.2, 4))
            self.end_outage()

    def end_outage(self) -> None:
        """Thaw etcd or start it, so that it answers."""
        etcd = self._world.etcd
        if etcd.server.is_frozen:
            self._note("thaws etcd")
            etcd.run(etcd.server.thaw)
        if not etcd.server.is_running:
            self._note("starts etcd")
            etcd.run(etcd.server.start)

    async def lose_leases(self) -> None:
        if not self._losses.spared and self._world.etcd.is_well:
            self._note("makes etcd lose all leases")
            self._world.etcd.lose_leases()

    async def lossy_etcd(self) -> None:
        if self._losses.spared:
            return
        self._note("loses requests to etcd and its answers")
        self._world.etcd.lost_share = self._rng.choice((0.05, 0.3))
        await asyncio.sleep(self._rng.uniform(0.5, 3))
        self._world.etcd.lost_share = 0.0

    async def cut_off_from_etcd(self) -> None:
        process = self._losses.some_broker(self._rng)
        if process is not None:
            await self.cut_off(process)

    async def cut_off(self, process: BrokerProcess, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        if process.name in self._losses.spared:
            return
        self._note(f"cuts {process.owner.name} off from etcd")
        meta = process.meta
        meta.is_cut_off = True
        await asyncio.sleep(self._rng.choice((0.3, 1.0, 4.0)))
        meta.is_cut_off = False

    async def late_news(self) -> None:
        process = self._losses.some_broker(self._rng)
        if process is not None:
            await self.delay_news(process)

    async def delay_news(self, process: BrokerProcess) -> None:
        """Delay the metadata of a process, which keeps its lease and acts on stale metadata."""
        self._note(f"delays what {process.owner.name} hears from etcd")
        meta = process.meta
        meta.hears.clear()
        await asyncio.sleep(self._rng.choice((0.3, 1.0, 4.0)))
        meta.hears.set()

    async def compact_etcd(self) -> None:
        server = self._world.etcd.server
        if server.compacted_revision < server.revision:
            self._note("compacts etcd")
            self._world.etcd.run(server.compact, server.revision)

    def _note(self, what: str) -> None:
        self._world.note("nemesis", what)
