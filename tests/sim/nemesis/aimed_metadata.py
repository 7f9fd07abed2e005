"""Blows at brokers with stale metadata, and at segments that may be pruned."""

import asyncio
from typing import TYPE_CHECKING

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.messages.calls import GetClusterStatus, SealSegment
from seaweedmq.model.segment import Segment
from tests.sim.machines.loop import Owner
from tests.sim.machines.process import BrokerProcess
from tests.sim.nemesis.aimed import Aimed
from tests.sim.nemesis.losses import Losses
from tests.sim.users.operator import Operator
from tests.support.insides import Insides

if TYPE_CHECKING:
    from seaweedmq.broker.segment.primary import OpenSegment
    from tests.sim.world import World

BEHIND_S_MAX = 3.0
CALLS_MAX = 40
STUMBLE_S_MAX = 0.4


class AimedAtMetadata(Aimed):
    """Blows that read brokers' state to find the moment."""

    def __init__(self, world: "World", losses: Losses, operator: Operator) -> None:
        super().__init__(world, losses)
        self._rng = world.rng("aimed at metadata")
        self._operator = operator
        self._dialer = world.network.dialer(Owner("impatient client"))

    async def leave_behind(self) -> None:
        """Delay a broker's metadata, while users connect to it and their streams break repeatedly."""
        world, rng = self._world, self._rng
        leader = self.leader()
        others = [p for p in world.processes if p.is_well and p is not leader]
        if not others:
            return
        behind = rng.choice(others)
        self._note(f"leaves {behind.owner.name} behind")
        brokers = {p.name for p in world.processes}
        end_s = world.loop.time() + rng.uniform(0.3, BEHIND_S_MAX)
        behind.meta.hears.clear()
        try:
            while world.loop.time() < end_s:
                if rng.random() < 0.4:
                    await self._operator.reshape()
                world.join_late()
                await asyncio.sleep(rng.uniform(0, 0.1))
                world.network.break_streams_but_of(brokers)
        finally:
            behind.meta.hears.set()

    async def seal_twice(self) -> None:
        """Seal the successor of a segment with records at once: most likely it is empty."""
        used = [s for s in self.open_segments() if (owned := self._owned_by(s)) and owned.log.end > s.start_offset]
        if not used:
            return
        segment = self._rng.choice(used)
        api = self._dialer.dial(self._rng.choice(self._world.processes).address)
        try:
            description = await api.call(SealSegment(segment.topic, segment.id))
            for heir in (s for s in description.segments if segment.id in s.predecessors):
                await api.call(SealSegment(heir.topic, heir.id))
        except SeaweedMQError as error:
            self._note(f"{segment} is not sealed twice: {error}")

    def _owned_by(self, segment: Segment) -> "OpenSegment | None":
        return self._owned(segment) if self.running(segment) else None

    async def lead_without_knowing(self) -> None:
        """Have a broker elected that does not know yet that the last leader lost the lock."""
        world, rng = self._world, self._rng
        leader = self.leader()
        others = [p for p in world.processes if p.is_well and p is not leader]
        if leader is None or not leader.is_well or not others or self._losses.spared:
            return
        next_one = rng.choice(others)
        self._note(f"does not tell {next_one.owner.name} that {leader.owner.name} leads no more")
        next_one.meta.hears_metadata.clear()
        try:
            leader.request_stop()
            for _ in range(CALLS_MAX):
                await asyncio.sleep(rng.uniform(0, 0.1))
                await self._ask(rng.choice(world.processes))
        finally:
            next_one.meta.hears_metadata.set()

    async def stumble_out_of_leading(self) -> None:
        """Stop etcd, and freeze the leader briefly as its lease ends: at once it finds that its leadership is uncertain
        and that it cannot write positions that members wait for. One of those members always rejoins."""
        leader, etcd = self.leader(), self._world.etcd
        incarnation = Insides(leader.broker).incarnation if leader is not None and leader.broker is not None else None
        if leader is None or not leader.is_well or incarnation is None or self._losses.spared or not etcd.is_well:
            return
        self._note(f"stops etcd, and has {leader.owner.name} stumble as its lease ends")
        etcd.run(etcd.server.stop)
        await asyncio.sleep(max(0.0, incarnation.session.remaining_s - self._rng.uniform(0.02, STUMBLE_S_MAX)))
        if leader.is_running:
            owner = leader.freeze()
            await asyncio.sleep(max(0.0, incarnation.session.remaining_s) + self._rng.uniform(0.02, STUMBLE_S_MAX))
            leader.thaw(owner)
        await asyncio.sleep(self._rng.uniform(0, 0.5))
        etcd.run(etcd.server.start)
        if members := self._world.group.members:
            self._world.network.break_streams_of(self._rng.choice(members).owner)
        await asyncio.sleep(self._world.scenario.broker.group_session_timeout_s + self._rng.uniform(0, 1))

    async def _ask(self, process: BrokerProcess) -> None:
        try:
            async with asyncio.timeout(0.2):
                await self._dialer.dial(process.address).call(GetClusterStatus())
        except (SeaweedMQError, TimeoutError) as error:
            self._note(f"gets no status of {process.name}: {error!r}")

    async def forget_an_empty_segment(self) -> None:
        """End leases as ``forget_replicas``, of a segment without records and for long: it may be pruned before its
        primary returns and takes its first records from publishers with stale metadata."""
        leader = self.leader()
        found = await self.moment(lambda segment: len(segment.replicas) > 1 and self._is_empty_apart(segment, leader))
        replicas = self._well(found)
        if leader is None or not replicas:
            return
        config = self._world.scenario.broker
        await self._forget(
            found, replicas, leader, config.lease_ttl_s + config.segment_retention_s + self._rng.uniform(3, 9)
        )

    def _is_empty_apart(self, segment: Segment, leader: BrokerProcess | None) -> bool:
        owned = self._owned(segment)
        is_empty = owned is not None and owned.log.end == segment.start_offset
        return is_empty and leader not in self.running(segment)
