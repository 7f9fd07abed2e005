"""Blows at unflushed records, and at files that are about to be trusted."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from seaweedmq.codec.paths import log_dir
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.config import KIB
from seaweedmq.model.messages.calls import SealSegment
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Durability, TopicName
from tests.doubles.memory_store import StorageOp
from tests.sim.machines.loop import Owner
from tests.sim.machines.process import BrokerProcess
from tests.sim.machines.storage_faults import Trouble
from tests.sim.nemesis.aimed import SEALED_S_MAX, Aimed
from tests.sim.nemesis.losses import Losses
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World

APPEND = frozenset({StorageOp.APPEND})
CREATE = frozenset({StorageOp.CREATE})
SYNC = frozenset({StorageOp.SYNC})
LOOK = frozenset({StorageOp.LOOK})
UNFLUSHED_BYTES = (2 * KIB, 6 * KIB, 16 * KIB)
"""Unflushed bytes at stake when the power fails: parts of a block, or several blocks."""
GROW_S_MAX = 1.5
"""Longest wait in seconds for those bytes."""
GO_ON_S_MAX = 0.3
"""Longest time in seconds to continue afterwards, so that more files begin."""
GO_ON_UNHEARD_S = (0.0, 0.1)
WRITE_AGAIN_S = (0.1, 1.5)
FAR_BACK_S = (100.0, 3_600.0)
LATE_S = (0.3, 2.0)
UNSEEN_S = (1.0, 4.0)
"""Seconds beyond the lease."""


class AimedAtFiles:
    """Blows at files, at moments that ``Aimed`` finds."""

    def __init__(self, world: "World", aimed: Aimed, losses: Losses) -> None:
        self._world = world
        self._aimed = aimed
        self._losses = losses
        self._rng = world.rng("aimed at files")
        self._dialer = world.network.dialer(Owner("hand"))
        topics = world.scenario.all_topics
        self._stored = {TopicName.parse(t.name) for t in topics if t.durability is Durability.STORED}

    async def lose_a_writer_behind_an_fsync(self) -> None:
        """Hang the fsync of a log file while it grows or the next one begins; then fail the power."""
        found = await self._aimed.moment(lambda s: s.topic in self._stored and self._is_fsynced_once(s))
        if found is not None:
            with self._troubled(Trouble(hangs=True, ops=SYNC, path=log_dir(found.topic, found.id))):
                lost = await self._lose_once_grown(found)
            await self._aimed.start_again(lost)

    async def lose_a_writer_before_its_first_fsync(self) -> None:
        """Fail the power of a new segment that took records, before its first fsync."""
        topics = self._world.cluster.state.topics
        opened = [s for s in self._aimed.open_segments() if s.topic in self._stored and s.topic in topics]
        if not opened:
            return
        before = self._rng.choice(opened)
        number = topics[before.topic].next_segment
        with self._troubled(Trouble(hangs=True, ops=SYNC, path=log_dir(before.topic, number))):
            try:
                address = self._rng.choice(self._world.processes).address
                await self._dialer.dial(address).call(SealSegment(before.topic, before.id))
            except SeaweedMQError as error:
                self._note(f"{before} is not sealed: {error}")
            found = self._world.cluster.state.segments.get(before.topic, {}).get(number)
            lost = [] if found is None or not found.is_open else await self._lose_once_grown(found)
        await self._aimed.start_again(lost)

    async def lose_files_that_are_believed(self) -> None:
        """Kill the writers of a segment, and fail their machines while the leader fsyncs its files to seal it."""
        found = await self._aimed.moment(lambda s: s.topic in self._stored and self._aimed.has_unsynced(s))
        if found is None:
            return
        dead = self._aimed.running(found)
        writer = dead[0]
        self._note(f"has {found} sealed from its files, and loses the machine of its writer meanwhile")
        for process in dead:
            process.kill(machine=False)
        trouble = Trouble(hangs=True, ops=SYNC, path=log_dir(found.topic, found.id))
        lost = []
        with self._troubled(trouble):
            await self._aimed.start_again(dead)
            is_asked = await self._aimed.until(lambda: bool(trouble.hung - {writer.name}), SEALED_S_MAX)
            if is_asked and writer.is_running and self._losses.is_covered(writer):
                self._losses.lose(writer)
                lost.append(writer)
        await self._aimed.start_again(lost)

    async def leave_a_fence_unseen(self) -> None:
        """Lose etcd's leases, and hang the storage whenever a primary checks for a fence."""
        for_s = self._world.scenario.broker.lease_ttl_s + self._rng.uniform(*UNSEEN_S)
        await asyncio.gather(self._aimed.lose_all_leases(), self._hide_fences(for_s))

    async def _hide_fences(self, for_s: float) -> None:
        with self._troubled(Trouble(hangs=True, ops=LOOK)):
            await asyncio.sleep(for_s)

    async def seal_behind_a_busy_primary(self) -> None:
        """Have the leader seal a segment through its followers, while its primary keeps its lease, its followers and
        its publishers, and learns of it late."""
        leader = self._aimed.leader()
        found = await self._aimed.moment(lambda s: len(s.replicas) > 1 and self._aimed.is_apart(s, leader))
        if leader is None or found is None:
            return
        primary = self._aimed.running(found)[0]
        self._note(f"has {found} sealed by its followers, and {primary.name} learns of it late")
        network, meta = self._world.network, primary.meta
        pairs = (primary.name, leader.name), (leader.name, primary.name)
        for one, other in pairs:
            network.cut(one, other)
        meta.hears.clear()
        try:
            await self._dialer.dial(leader.address).call(SealSegment(found.topic, found.id))
            await asyncio.sleep(self._rng.uniform(*LATE_S))
        except SeaweedMQError as error:
            self._note(f"{found} is not sealed: {error}")
        finally:
            meta.hears.set()
            for one, other in pairs:
                network.join(one, other)

    async def die_behind_a_torso(self) -> None:
        """Kill the replicas after all complete log files became tables and were deleted, while the next log file cannot
        begin and publishers get no acknowledgement."""
        found = await self._aimed.moment(self._is_fsynced_once)
        if found is None:
            return
        dead = self._aimed.running(found)
        self._note(f"keeps publishers from hearing of {found}, and lets its next log file begin in vain")
        network, broker = self._world.network, self._world.scenario.broker
        deaf = [publisher.owner.name for publisher in self._world.publishers]
        for name in deaf:
            network.cut(dead[0].name, name)
        await asyncio.sleep(self._rng.uniform(*GO_ON_UNHEARD_S))
        with self._troubled(Trouble(hangs=False, ops=CREATE, path=log_dir(found.topic, found.id))):
            await asyncio.sleep(broker.log_grace_s + 4 * broker.maintenance_interval_s)
            for process in dead:
                process.kill(machine=False)
        for name in deaf:
            network.join(dead[0].name, name)
        await self._aimed.start_again(dead)

    async def die_while_writing_again(self) -> None:
        """Fail a write after acknowledged, unflushed records, which must be rewritten to another file, and kill the
        replicas meanwhile. A reader starts as soon as the segment is sealed."""
        found = await self._aimed.moment(self._aimed.has_unsynced_acks)
        if found is None:
            return
        dead = self._aimed.running(found)
        self._note(f"refuses to append to {found}, until its replicas die")
        with self._troubled(Trouble(hangs=False, ops=APPEND, path=log_dir(found.topic, found.id))):
            await asyncio.sleep(self._rng.uniform(*WRITE_AGAIN_S))
            for process in dead:
                if process.is_running:
                    process.kill(machine=False)
        await self._aimed.start_again(dead)
        if await self._aimed.until(lambda: self._aimed.is_over(found), SEALED_S_MAX):
            self._world.join_late()

    async def set_a_clock_far_back(self) -> None:
        """Set a clock back by more than a run's length."""
        machine = self._rng.choice(self._world.processes).name
        error_s = self._world.clocks.set_wrong(machine, -self._rng.uniform(*FAR_BACK_S))
        self._note(f"sets the clock of {machine} back: it is {error_s:+.1f} s off")

    # --- looking and striking ---------------------------------------------------------------------------------------

    def _is_fsynced_once(self, segment: Segment) -> bool:
        broker = self._aimed.running(segment)[0].broker
        owned = None if broker is None else Insides(broker).segments.get(segment.key)
        active = None if owned is None else owned.files.active
        return active is not None and active.is_durable

    def _unflushed_bytes(self, segment: Segment) -> int:
        folder = f"{log_dir(segment.topic, segment.id)}/"
        files = self._world.disk.store.files.items()
        return sum(len(file.data) - file.synced_bytes for path, file in files if path.startswith(folder))

    async def _lose_once_grown(self, segment: Segment) -> list[BrokerProcess]:
        """Lose the machines of all replicas, or the primary's if not all may be lost."""
        wanted = self._rng.choice(UNFLUSHED_BYTES)
        await self._aimed.until(lambda: self._unflushed_bytes(segment) >= wanted, GROW_S_MAX)
        await asyncio.sleep(self._rng.uniform(0, GO_ON_S_MAX))
        replicas = self._aimed.running(segment)
        lost = replicas if self._world.scenario.machines_fail else replicas[:1]
        if not all(self._losses.is_covered(process) for process in lost):
            return []
        for process in lost:
            self._losses.lose(process)
        return lost

    @contextmanager
    def _troubled(self, trouble: Trouble) -> Iterator[None]:
        self._note(f"storage: {trouble}")
        troubles = self._world.disk.troubles
        troubles.append(trouble)
        try:
            yield
        finally:
            troubles.remove(trouble)
            trouble.over.set()

    def _note(self, what: str) -> None:
        self._world.note("nemesis", what)
