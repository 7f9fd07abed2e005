"""Blows at brokers: their processes, their machines, and the network between them."""

import asyncio
import random
from typing import TYPE_CHECKING

from seaweedmq.codec.state import keys
from seaweedmq.model.segment import Segment
from tests.sim.machines.loop import Owner
from tests.sim.machines.network import KEEPALIVE_TIMEOUT_S
from tests.sim.machines.process import BrokerProcess
from tests.sim.nemesis.etcd import EtcdNemesis
from tests.sim.nemesis.losses import Losses
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World

PARTED_S = (0.2, 1.0, 4.0)


class BrokerNemesis:
    """Random blows at brokers; brokers with the only copy of records are spared."""

    def __init__(self, world: "World", rng: random.Random, losses: Losses, etcd: EtcdNemesis) -> None:
        self._world = world
        self._rng = rng
        self._losses = losses
        self._etcd = etcd

    async def kill_broker(self) -> None:
        process = self._losses.some_broker(self._rng)
        if process is not None:
            await self.kill([process])

    async def kill_leader(self) -> None:
        leader = self.leader()
        if leader is not None and leader.name not in self._losses.spared:
            await self.kill([leader])

    async def kill_all(self) -> None:
        if not self._losses.spared:
            await self.kill([p for p in self._world.processes if p.is_running])

    async def kill(self, processes: list[BrokerProcess]) -> None:
        """Send SIGKILL to all of them; each is restarted after a while."""
        machine = self._world.scenario.machines_fail and self._rng.random() < 0.5
        for process in processes:
            process.kill(machine=machine)
        if machine and not any(p.is_running for p in self._world.processes):
            self._world.lose_all_power()
        await asyncio.sleep(self._rng.choice((0.0, 0.3, 1.0, 3.0)))
        for process in processes:
            if not process.is_running:
                process.start()

    async def stop_broker(self) -> None:
        """Send SIGTERM, even to a broker with the only copy of records: a clean stop loses nothing, if the storage
        accepts writes."""
        running = [p for p in self._world.processes if p.is_running]
        if running and self._world.disk.is_calm:
            self._rng.choice(running).request_stop()

    async def stop_while_starting(self) -> None:
        """Send SIGTERM to a broker that is about to join."""
        process = self._losses.some_broker(self._rng)
        if process is None:
            return
        process.kill(machine=False)
        process.start()
        owner = process.owner
        await asyncio.sleep(self._rng.uniform(0, 0.05))
        if process.owner is owner and process.is_running:
            process.request_stop()

    async def freeze_broker(self) -> None:
        process = self._losses.some_broker(self._rng)
        if process is not None and not process.is_frozen:
            await self.hold(process, process.freeze())

    async def suspend_machine(self) -> None:
        """Suspend a machine, perhaps beyond its lease; its monotonic clock does not advance."""
        process = self._losses.some_broker(self._rng)
        if process is not None and not process.is_frozen:
            await self.hold(process, process.suspend())

    async def hold(self, process: BrokerProcess, owner: Owner) -> None:
        """Keep a frozen process frozen for a short or a long time, then thaw it."""
        pause_s = self._rng.choice((0.2, 1.0, 4.0))
        await asyncio.sleep(min(pause_s, KEEPALIVE_TIMEOUT_S))
        if pause_s > KEEPALIVE_TIMEOUT_S and process.owner is owner:
            self._world.network.break_streams_of(owner)
            await asyncio.sleep(pause_s - KEEPALIVE_TIMEOUT_S)
        process.thaw(owner)

    async def rolling_restart(self) -> None:
        for process in self._world.processes:
            if process.is_running and not process.is_frozen and process.name not in self._losses.spared:
                process.request_stop()
                await process.wait_stopping()
                await asyncio.sleep(1.0)

    async def lose_a_machine(self) -> None:
        """Lose a broker's unflushed writes with its machine, while the last blows are still in effect."""
        covered = [p for p in self._world.processes if p.is_running and self._losses.is_covered(p)]
        if not covered:
            return
        process = self._rng.choice([p for p in covered if self._losses.at_stake(p)] or covered)
        self._losses.lose(process)
        await asyncio.sleep(self._rng.choice((0.0, 0.3, 1.0, 3.0)))
        if not process.is_running:
            process.start()

    # --- the network between them -------------------------------------------------------------------------------------

    async def part_brokers(self) -> None:
        """Cut the network between two brokers, in one direction or both."""
        machines = [p.name for p in self._world.processes]
        if len(machines) < 2:
            return
        one, other = self._rng.sample(machines, 2)
        await self.part(one, other, both=self._rng.random() < 0.5, for_s=self._rng.choice(PARTED_S))

    async def drain_behind_the_leaders_back(self) -> None:
        """Have the leader move segments whose primaries it cannot reach, although their followers can."""
        leader = self.leader()
        spared = self._losses.spared
        others = [p for p in self._world.processes if p.is_well and p is not leader and p.name not in spared]
        if leader is None or len(others) < 2:
            return
        primary, leaving = self._rng.sample(others, 2)
        leaving.request_stop()
        await self.part(leader.name, primary.name, both=True, for_s=self._rng.choice(PARTED_S))

    async def seal_behind_the_primarys_back(self) -> None:
        """Have the leader seal a segment whose primary it cannot reach. The primary learns of it last: only its fenced
        followers stop it."""
        leader = self.leader()
        chosen = [s for s in self._open_segments() if self._can_be_sealed_unseen(s, leader)]
        if leader is None or not chosen:
            return
        segment = self._rng.choice(chosen)
        self._note(f"has {segment} sealed behind the back of {segment.primary}")
        primary = self._process_of(segment.primary)
        assert primary is not None
        primary.request_stop()
        network = self.part(
            leader.name, primary.name, both=self._rng.random() < 0.5, for_s=self._rng.choice((1.0, 3.0, 5.0))
        )
        etcd = (
            self._etcd.delay_news(primary)
            if self._rng.random() < 0.5
            else self._etcd.cut_off(primary, self._rng.uniform(1, 3))
        )
        await asyncio.gather(network, etcd)

    def _can_be_sealed_unseen(self, segment: Segment, leader: BrokerProcess | None) -> bool:
        """Whether it has followers, none of its replicas is the leader, all are well, and it is in use."""
        replicas = [self._process_of(replica) for replica in segment.replicas]
        if len(replicas) < 2 or not all(p is not None and p is not leader and p.is_well for p in replicas):
            return False
        if replicas[0] is None or replicas[0].name in self._losses.spared:
            return False
        owned = replicas[0] and replicas[0].broker and Insides(replicas[0].broker).segments.get(segment.key)
        return bool(owned) and owned.log.end > segment.start_offset

    async def part(self, one: str, other: str, *, both: bool, for_s: float) -> None:
        self._note(f"cuts {one} {'and' if both else '->'} {other}")
        network = self._world.network
        network.cut(one, other)
        if both:
            network.cut(other, one)
        await asyncio.sleep(for_s)
        network.join(one, other)
        if both:
            network.join(other, one)

    def leader(self) -> BrokerProcess | None:
        lock = self._world.etcd.server.get(keys.LEADER)
        return None if lock is None else self._process_of(lock.value.decode())

    def _process_of(self, broker_id: str) -> BrokerProcess | None:
        return next((p for p in self._world.processes if p.runs_as(broker_id)), None)

    def _open_segments(self) -> list[Segment]:
        segments = self._world.cluster.state.segments.values()
        return [s for numbered in segments for s in numbered.values() if s.is_open]

    def _note(self, what: str) -> None:
        self._world.note("nemesis", what)
