"""A Kafka group in the simulated cluster: classic members that read their partitions from the committed offsets.

They die, freeze, leave and return."""

import asyncio
from typing import TYPE_CHECKING

from seaweedmq.codec.kafka.assignment import assigned_partitions
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.sim.rules.kafka import GroupRules
from tests.sim.rules.retention import without
from tests.sim.users.kafka_client import KafkaClient, Refused
from tests.sim.users.kafka_membership import ASK_AGAIN, JOIN_VERSIONS, RETRY_S, KafkaMembership
from tests.sim.users.kafka_reading import Fetcher, Got
from tests.sim.users.places import Place
from tests.support.history import History, Outcome, Violation

if TYPE_CHECKING:
    from tests.sim.world import World

HEARTBEAT_S = 0.5
LOOK_AGAIN_S = 0.1
COMMIT_SHARE = 0.4
"""Share of the polls with records after which a member commits."""
JOIN_AGAIN = frozenset({Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID})


class KafkaMember(Place):
    """A member that reads its assigned partitions."""

    def __init__(self, world: "World", group: "KafkaGroup", name: str) -> None:
        super().__init__(world, name)
        self._group = group
        self._rules = group.rules
        self.is_behind = False
        """Whether it has processed records beyond its commit."""

    async def _live(self) -> None:
        client = KafkaClient(self._world, self.owner, self._rng)
        membership = KafkaMembership(
            client, self._rules, self._group.topic.name, version=self._rng.choice(JOIN_VERSIONS)
        )
        try:
            while not self._leaving:
                try:
                    await self._take_part(client, membership)
                except Refused as refused:
                    self._world.note(self.owner.name, f"was refused: {refused}")
                    if refused.code is Code.UNKNOWN_MEMBER_ID:
                        membership.forget()
                    elif refused.code not in JOIN_AGAIN | ASK_AGAIN:
                        self._world.violations.append(Violation("member gave up", f"{self.owner.name}: {refused}"))
                        await asyncio.sleep(1)
                except SeaweedMQError as error:
                    self._world.note(self.owner.name, f"begins again: {error}")
                await asyncio.sleep(self._rng.uniform(0, RETRY_S))
            await membership.leave()
        finally:
            client.close()

    async def _take_part(self, client: KafkaClient, membership: KafkaMembership) -> None:
        """Take part in one generation, until the next."""
        members = await membership.join()
        assignment = await membership.sync(members)
        mine = [number for _, number in assigned_partitions(assignment)]
        self._rules.owns(membership.id, membership.generation, membership.leader, mine)
        self._world.note(self.owner.name, f"owns {mine} in generation {membership.generation}")
        fetcher = Fetcher(client, self._group.topic, self._world.watermarks, follows_all=False)
        fetcher.positions = await membership.committed(mine)
        count = len(client.leaders)
        loop = self._world.loop
        heartbeat_at, done = loop.time() + HEARTBEAT_S, dict(fetcher.positions)
        while not self._leaving:
            for got in await fetcher.poll() if mine or members else await _nothing():  # the leader sees a topic grow
                await self._process(got)
            self.is_behind = fetcher.positions != done
            if fetcher.positions != done and self._rng.random() < COMMIT_SHARE:
                await membership.commit({p: o for p, o in fetcher.positions.items() if o != done[p]})
                done = dict(fetcher.positions)
            if loop.time() >= heartbeat_at:
                heartbeat_at = loop.time() + HEARTBEAT_S
                code = await membership.heartbeat()
                if code is Code.REBALANCE_IN_PROGRESS:
                    break
            if members and len(client.leaders) > count:
                break  # the leader has new partitions to assign
        if fetcher.positions != done:
            await membership.commit({p: o for p, o in fetcher.positions.items() if o != done[p]})

    async def _process(self, got: Got) -> None:
        self._world.note(self.owner.name, f"got {got.partition}:{got.offset} {got.value[:24]!r}")
        if self._rng.random() < 0.1:
            await asyncio.sleep(self._rng.uniform(0, 0.05))
        self._group.on_delivered(got)


async def _nothing() -> list[Got]:
    """Return nothing: a member without partitions waits for the next generation."""
    await asyncio.sleep(LOOK_AGAIN_S)
    return []


class KafkaLooker:
    """A client outside the group that fetches committed offsets."""

    def __init__(self, world: "World", group: "KafkaGroup") -> None:
        self.owner = Owner("kafka-looker")
        self._world = world
        self._group = group
        self._client = KafkaClient(world, self.owner, world.rng("kafka-looker"))

    async def look(self) -> None:
        """Fetch all offsets, until an answer comes."""
        membership = self._membership()
        while True:
            try:
                await self._client.refresh(self._group.topic.name)
                await membership.committed(sorted(self._client.leaders))
            except SeaweedMQError as error:
                self._world.note(self.owner.name, f"asks again: {error}")
                await asyncio.sleep(RETRY_S)
            else:
                self._client.close()
                return

    async def look_at(self, address: str) -> None:
        """Fetch from this broker alone, once."""
        self._client.note_node(0, address)
        try:
            await self._membership(coordinator=0).committed(range(self._group.partitions))
        except SeaweedMQError as error:
            self._world.note(self.owner.name, f"was not told: {error}")
        self._client.close()

    def _membership(self, coordinator: int | None = None) -> KafkaMembership:
        return KafkaMembership(
            self._client, self._group.rules, self._group.topic.name, version=JOIN_VERSIONS[-1], coordinator=coordinator
        )


class KafkaGroup:
    """The members of a group that reads one topic, and their observations."""

    def __init__(self, world: "World", topic: str, members: int, sent: History) -> None:
        self.topic = TopicName.parse(topic)
        self.rules = GroupRules()
        self._world = world
        self._sent = sent
        self._values: set[bytes] = set()
        self.partitions = world.scenario.topics[0].partitions or 1
        """Initial number of partitions."""
        self.members = [KafkaMember(world, self, f"kafka-member-{number}") for number in range(members)]

    def on_delivered(self, got: Got) -> None:
        """Note that a member has processed a record."""
        self.rules.delivered[got.partition].add(got.offset)
        self._values.add(got.value)

    async def finish(self) -> None:
        """Wait until the members got all acknowledged records."""
        while self._missing():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(LOOK_AGAIN_S)

    def _missing(self) -> set[bytes]:
        promised = without(self._sent, self._world.retained.starts(self.topic)).sent
        return {s.value for s in promised if s.outcome is Outcome.ACKED} - self._values

    async def look(self) -> None:
        """Check that committed offsets are kept, by any coordinator's answer."""
        looker = KafkaLooker(self._world, self)
        await self._world.network.spawn(looker.owner, looker.look())

    async def look_at(self, address: str) -> None:
        """Fetch committed offsets from this broker, whether or not it coordinates the group."""
        looker = KafkaLooker(self._world, self)
        await self._world.network.spawn(looker.owner, looker.look_at(address))
