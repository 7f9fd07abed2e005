"""Blows at the most harmful moment, which random blows hit too rarely."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from seaweedmq.codec.state import keys
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Durability, TopicName
from tests.sim.machines.process import BrokerProcess
from tests.sim.nemesis.losses import Losses
from tests.support.insides import Insides

if TYPE_CHECKING:
    from seaweedmq.broker.segment.primary import OpenSegment
    from tests.sim.world import World

LOOK_AGAIN_S = 0.002
MOMENT_S_MAX = 1.0
"""Longest wait in seconds for the right moment."""
SEALED_S_MAX = 8.0
ANSWER_S_MAX = 0.006
"""Travel time of an acknowledgement; most fsyncs take longer."""
FRESH_LEASE_SHARE = 0.8
"""Remaining share of a lease that was just renewed."""


class Aimed:
    """Blows that read brokers' state, without changing it, to find the moment."""

    def __init__(self, world: "World", losses: Losses) -> None:
        self._world = world
        self._losses = losses
        self._rng = world.rng("aimed")
        topics = world.scenario.all_topics
        self._stored = {TopicName.parse(t.name) for t in topics if t.durability is Durability.STORED}

    async def lose_a_writer(self) -> None:
        """Fail the power while records of a ``stored`` topic are written and not fsynced."""
        found = await self.moment(lambda segment: segment.topic in self._stored and self.has_unsynced(segment))
        if found is None:
            return
        await asyncio.sleep(self._rng.uniform(0, ANSWER_S_MAX))
        lost = self.running(found) if self._world.scenario.machines_fail else self.running(found)[:1]
        if not lost or not all(self._losses.is_covered(process) for process in lost):
            return
        for process in lost:
            self._losses.lose(process)
        await self.start_again(lost)

    async def lose_a_writer_after_the_seal(self) -> None:
        """Fail the power of a dead writer after its segment was sealed from its files, which may count unflushed
        records."""
        found = await self.moment(self.has_unsynced)
        if found is None:
            return
        self._note(f"has {found} sealed from its files, and loses the machine of its writer then")
        dead = self.running(found)
        writer = dead[0]
        for process in dead:
            process.kill(machine=False)
        await self.start_again(dead)
        if not await self.until(lambda: self.is_over(found), SEALED_S_MAX):
            return
        if writer.is_running and self._losses.is_covered(writer):
            self._losses.lose(writer)
            await self.start_again([writer])

    async def forget_replicas(self) -> None:
        """End the leases of a segment's replicas and the leader; replicas continue with each other and publishers."""
        leader = self.leader()
        found = await self.moment(lambda segment: len(segment.replicas) > 1 and self.is_apart(segment, leader))
        replicas = self._well(found)
        if leader is None or not replicas:
            return
        await self._forget(
            found, replicas, leader, self._world.scenario.broker.lease_ttl_s + self._rng.uniform(2.5, 4.5)
        )

    async def _forget(
        self, found: Segment | None, replicas: list[BrokerProcess], leader: BrokerProcess, for_s: float
    ) -> None:
        self._note(f"{found} is forgotten: cuts {[p.name for p in replicas]} off from etcd and from {leader.name}")
        network = self._world.network
        pairs = [pair for p in replicas for pair in ((p.name, leader.name), (leader.name, p.name))]
        for one, other in pairs:
            network.cut(one, other)
        with self._without_etcd(replicas):
            await asyncio.sleep(for_s)
        for one, other in pairs:
            network.join(one, other)

    async def stop_while_rejoining(self) -> None:
        """Send SIGTERM to a broker that was frozen beyond its lease and has just learned of its expiry."""
        world = self._world
        process = self._rng.choice(world.processes)
        broker = process.broker
        if self._losses.spared or not process.is_well or broker is None or Insides(broker).incarnation is None:
            return
        owner, session = process.freeze(), Insides(broker).incarnation.session
        await asyncio.sleep(world.scenario.broker.lease_ttl_s + self._rng.uniform(0, 0.3))
        process.thaw(owner)
        if not await self.until(lambda: session.lost.is_set() or process.owner is not owner, SEALED_S_MAX):
            return
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0, 0.01), self._rng.uniform(0, 0.1))))
        if process.owner is owner and process.is_running:
            process.request_stop()

    async def lose_all_leases(self) -> None:
        """Lose etcd's leases, without the replicas of a segment noticing, while another broker joins."""
        world = self._world
        ttl_s = world.scenario.broker.lease_ttl_s
        found = await self.moment(self._has_fresh_lease)
        replicas = self._well(found)
        if self._losses.spared or not world.etcd.is_well:
            return
        others = [p for p in world.processes if p.is_well and p not in replicas]
        self._note(f"etcd loses all leases, and {[p.name for p in replicas]} do not notice")
        with self._without_etcd(replicas):
            world.etcd.lose_leases()
            for process in others:
                process.kill(machine=False)
                process.start()
            await asyncio.sleep(ttl_s + self._rng.uniform(0, 1))

    # --- looking ----------------------------------------------------------------------------------------------------

    async def moment(self, is_right: Callable[[Segment], bool]) -> Segment | None:
        """Return a segment for which ``is_right`` becomes true soon, while all its replicas are well and none is
        spared."""
        found: list[Segment] = []

        def look() -> bool:
            if not self._losses.spared:
                found[:] = [s for s in self.open_segments() if self._well(s) and is_right(s)]
            return bool(found)

        return self._rng.choice(found) if await self.until(look, MOMENT_S_MAX) else None

    async def until(self, is_so: Callable[[], bool], for_s: float) -> bool:
        end_s = self._world.loop.time() + for_s
        while not is_so():  # time is virtual
            if self._world.loop.time() >= end_s:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    def open_segments(self) -> list[Segment]:
        segments = self._world.cluster.state.segments.values()
        return [s for numbered in segments for s in numbered.values() if s.is_open]

    def is_over(self, segment: Segment) -> bool:
        current = self._world.cluster.state.segments.get(segment.topic, {}).get(segment.id)
        return current is None or not current.is_open

    def _well(self, segment: Segment | None) -> list[BrokerProcess]:
        """Return the processes of its replicas, primary first, or none unless all are well."""
        if segment is None:
            return []
        replicas = self.running(segment)
        complete = len(replicas) == len(segment.replicas) and all(process.is_well for process in replicas)
        return replicas if complete else []

    def running(self, segment: Segment) -> list[BrokerProcess]:
        processes = self._world.processes
        found = (next((p for p in processes if p.runs_as(replica)), None) for replica in segment.replicas)
        return [process for process in found if process is not None]

    def leader(self) -> BrokerProcess | None:
        lock = self._world.etcd.server.get(keys.LEADER)
        return next((p for p in self._world.processes if lock and p.runs_as(lock.value.decode())), None)

    def _owned(self, segment: Segment) -> "OpenSegment | None":
        running = self.running(segment)
        broker = running[0].broker if running else None
        return None if broker is None else Insides(broker).segments.get(segment.key)

    def has_unsynced(self, segment: Segment) -> bool:
        owned = self._owned(segment)
        return owned is not None and owned.log.written > owned.log.flushed

    def has_unsynced_acks(self, segment: Segment) -> bool:
        owned = self._owned(segment)
        return owned is not None and owned.log.committed > owned.log.flushed

    def is_in_use(self, segment: Segment) -> bool:
        owned = self._owned(segment)
        return owned is not None and owned.log.end > segment.start_offset

    def is_apart(self, segment: Segment, leader: BrokerProcess | None) -> bool:
        """Whether it is in use and no replica of it leads."""
        return leader not in self.running(segment) and self.is_in_use(segment)

    def _has_fresh_lease(self, segment: Segment) -> bool:
        broker = self.running(segment)[0].broker
        if broker is None or Insides(broker).incarnation is None or not self._owned(segment):
            return False
        session = Insides(broker).incarnation.session
        return session.remaining_s > FRESH_LEASE_SHARE * session.ttl_s

    # --- striking ---------------------------------------------------------------------------------------------------

    def end(self, process: BrokerProcess) -> None:
        """Lose its machine if the promise covers that now, or only the process."""
        if self._losses.is_covered(process) and self._rng.random() < 0.7:
            self._losses.lose(process)
        else:
            process.kill(machine=False)

    def _note(self, what: str) -> None:
        self._world.note("nemesis", what)

    @contextmanager
    def _without_etcd(self, processes: list[BrokerProcess]) -> Iterator[None]:
        metas = [process.meta for process in processes]
        for meta in metas:
            meta.is_cut_off = True
        try:
            yield
        finally:
            for meta in metas:
                meta.is_cut_off = False

    async def start_again(self, processes: list[BrokerProcess]) -> None:
        await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.3)))
        for process in processes:
            if not process.is_running:
                process.start()
