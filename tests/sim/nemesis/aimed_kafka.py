"""Blows at coordinators and members of Kafka groups, at harmful moments."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.model.kafka.group_admin import groups_topic
from seaweedmq.model.segment import Segment
from tests.sim.machines.kafka import kafka_address
from tests.sim.machines.network import KEEPALIVE_TIMEOUT_S
from tests.sim.machines.process import BrokerProcess
from tests.sim.nemesis.brokers import PARTED_S, BrokerNemesis
from tests.sim.nemesis.losses import Losses
from tests.sim.users.kafka_membership import GROUP
from tests.sim.users.operator import Operator

if TYPE_CHECKING:
    from tests.sim.world import World

GONE_ON_S_MAX = 9.0
LOOK_AGAIN_S = 0.02
LOOKS = 3


class AimedAtKafka:
    """Blows at the group of ``World.kafka_group``."""

    def __init__(self, world: "World", losses: Losses, brokers: BrokerNemesis, operator: Operator) -> None:
        self._world = world
        self._losses = losses
        self._brokers = brokers
        self._operator = operator
        self._rng = world.rng("aimed at Kafka")
        self._recreating: set[asyncio.Task[None]] = set()

    async def trouble_coordinator(self) -> None:
        """Kill, freeze, suspend or isolate the broker that coordinates the group, or move its segment."""
        found = self._coordinator()
        if found is None:
            return
        process, segment = found
        self._note(f"troubles {process.name}, which has the group of Kafka's")
        kind = self._rng.choice(("kill", "freeze", "suspend", "part", "move"))
        if kind == "kill":
            await self._brokers.kill([process])
        elif kind == "freeze":
            await self._brokers.hold(process, process.freeze())
        elif kind == "suspend":
            await self._brokers.hold(process, process.suspend())
        elif kind == "part":
            await self._part_from_all(process)
        else:
            await self._operator.move(segment)

    async def wake_a_coordinator(self) -> None:
        """Freeze or suspend the coordinator until another has taken over and received commits; query it as it wakes."""
        found = self._coordinator()
        if found is None:
            return
        process, segment = found
        rules = self._world.kafka_group.rules
        acked = rules.acked_commits
        self._note(f"has {process.name} stand still, until the Kafka group moved elsewhere")
        owner = process.freeze() if self._rng.random() < 0.5 else process.suspend()
        await self._until(lambda: rules.acked_commits > acked and self._coordinates() not in (None, segment.primary))
        if process.owner is not owner:
            return
        address = kafka_address(process.address)
        looks = [asyncio.create_task(self._world.kafka_group.look_at(address), name="look") for _ in range(LOOKS)]
        await asyncio.sleep(self._rng.uniform(0, 0.01))
        process.thaw(owner)
        await asyncio.wait(looks)

    async def wake_a_committer(self) -> None:
        """Freeze a member with uncommitted records until the next generation."""
        rules = self._world.kafka_group.rules
        members = [m for m in self._world.kafka_group.members if m.is_running and m.is_behind]
        if not members:
            return
        member, newest = self._rng.choice(members), rules.newest
        owner = member.freeze()
        await asyncio.sleep(KEEPALIVE_TIMEOUT_S)
        self._world.network.break_streams_of(owner)
        await self._until(lambda: rules.newest > newest)
        await asyncio.sleep(self._rng.choice((0.0, 0.1, 1.0)))
        member.thaw(owner)

    async def recreate_behind_a_coordinator(self) -> None:
        """Recreate a topic while the broker that coordinates the Kafka groups, or the native ones, is dead."""
        recreated = self._world.recreated
        if recreated is None or not recreated.is_alive.is_set():
            return
        found = self._coordinator()
        leader = self._brokers.leader()
        candidates = [process for process in (found and found[0], leader) if process is not None and process.is_well]
        if not candidates or self._losses.spared:
            return
        process = self._rng.choice(candidates)
        self._note(f"has {recreated.name} recreated without {process.name}")
        recreating = asyncio.create_task(recreated.recreate(), name="recreate")
        try:
            await asyncio.sleep(self._rng.choice((0.0, 0.05, 0.3)))
            if process.is_running:
                process.kill(machine=False)
            await asyncio.wait({recreating}, timeout=GONE_ON_S_MAX)
            await asyncio.sleep(self._rng.choice((0.0, 1.0)))
        finally:
            if not process.is_running:
                process.start()
            self._recreating.add(recreating)
            recreating.add_done_callback(self._recreating.discard)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        end_s = self._world.loop.time() + GONE_ON_S_MAX
        while not is_so() and self._world.loop.time() < end_s:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _part_from_all(self, process: BrokerProcess) -> None:
        for_s = self._rng.choice(PARTED_S)
        meta = process.meta
        meta.is_cut_off = True
        others = [p.name for p in self._world.processes if p is not process]
        parting = [self._brokers.part(process.name, other, both=True, for_s=for_s) for other in others]
        await asyncio.gather(*parting)
        meta.is_cut_off = False

    def _coordinator(self) -> tuple[BrokerProcess, Segment] | None:
        """Return the broker that coordinates the group, if it may be troubled, and the segment of the group's shard."""
        segment = self._segment()
        if segment is None:
            return None
        process = next((p for p in self._world.processes if p.runs_as(segment.primary)), None)
        if process is None or process.is_frozen or process.name in self._losses.spared:
            return None
        return process, segment

    def _coordinates(self) -> str | None:
        """Return the id of the group's coordinator according to the metadata."""
        segment = self._segment()
        return None if segment is None else segment.primary

    def _segment(self) -> Segment | None:
        broker = self._world.scenario.broker
        partition = partition_of_group(GROUP, broker.kafka_internal_partitions)
        segments = self._world.cluster.state.segments.get(groups_topic(broker.kafka_namespace), {}).values()
        return next((s for s in segments if s.is_open and partition in s.slots), None)

    def _note(self, what: str) -> None:
        self._world.note("nemesis", what)
