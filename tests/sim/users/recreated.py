"""A topic that is recreated while coordinators are down, and the groups that commit its offsets.

A Kafka client commits and fetches offsets that name the topic's incarnation; a native group reads each incarnation.
Neither may get commits of an earlier one.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound, SeaweedMQError
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.sim.rules.kafka import GroupRules
from tests.sim.scenario import RecreatedPlan
from tests.sim.users.kafka_client import KafkaClient, Refused
from tests.sim.users.kafka_membership import ASK_AGAIN, JOIN_VERSIONS, RETRY_S, KafkaMembership
from tests.sim.users.workload import connect
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

TRY_AGAIN_S = 0.2
HEARD_S = 0.3
"""Seconds after the acknowledged creation by which every broker that reaches etcd knows the topic."""
OFFSETS_PER_LIFE = 1_000
GROUP = "readers-of-lives"


class RecreatedTopic:
    """The topic, its incarnations, and its two groups."""

    def __init__(self, world: "World", plan: RecreatedPlan) -> None:
        self.name = plan.topic.name
        self.topic = TopicName.parse(plan.topic.name)
        self.violations: list[Violation] = []
        self.rules = GroupRules(violations=self.violations)
        self.is_alive = asyncio.Event()
        """Set while the topic exists and its users know of it."""
        self.life = 0
        self._plan = plan
        self._world = world
        self._rng = world.rng("recreated topic")
        self._partitions = range(plan.topic.partitions or 1)
        for partition in self._partitions:  # these offsets identify incarnations, not records
            self.rules.delivered[partition] = set(range((plan.lives_max + 1) * OFFSETS_PER_LIFE))
        self._acked: set[bytes] = set()
        """Acknowledged values of this incarnation."""
        self._delivered: set[bytes] = set()
        self._users: list[asyncio.Task[None]] = []
        self._is_ending = False

    async def begin(self) -> None:
        """Create the topic and start its users."""
        await self._with_client(self._create)
        await self._come()

    async def recreate(self) -> None:
        """Stop the users, delete the topic, and recreate it."""
        if not self.is_alive.is_set() or self.life >= self._plan.lives_max:
            return
        await self._leave()
        await self._with_client(self._delete)
        await self._with_client(self._create)
        self.rules.recreated()
        await self._come()

    async def finish(self) -> None:
        """Wait until the native group got all acknowledged records of the last incarnation, and the Kafka group its
        offsets."""
        await self.is_alive.wait()
        while not self._acked or self._acked - self._delivered:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(TRY_AGAIN_S)
        await self._leave()

    def stop(self) -> None:
        """Stop the users."""
        for user in self._users:
            user.cancel()

    # --- the topic ----------------------------------------------------------------------------------------------------

    async def _with_client(self, change: Any) -> None:
        while True:
            try:
                client = await connect(self._world, Owner("owner of the recreated topic"), self._plan.config)
                async with client:
                    return await change(client)
            except SeaweedMQError as error:
                self._note(f"{change.__name__.strip('_')} is not done yet: {error}")
                await asyncio.sleep(TRY_AGAIN_S)

    async def _create(self, client: Any) -> None:
        topic = self._plan.topic
        with suppress(AlreadyExists):  # by an attempt whose answer was lost
            await client.admin.create_topic(
                topic.name, partitions=topic.partitions, replicas=topic.replicas, durability=topic.durability
            )
        self._note(f"exists, life {self.life + 1}")

    async def _delete(self, client: Any) -> None:
        with suppress(NotFound):
            await client.admin.delete_topic(self.name)
        self._note("is deleted")

    # --- its users ----------------------------------------------------------------------------------------------------

    async def _come(self) -> None:
        await asyncio.sleep(HEARD_S)
        self.life += 1
        self._is_ending = False
        self._acked, self._delivered = set(), set()
        spawn = self._world.network.spawn
        owners = [Owner(f"{who}-of-life-{self.life}") for who in ("committer", "publisher", "member")]
        lives = (self._commit, self._publish, self._read)
        self._users = [spawn(owner, live(owner), owner.name) for owner, live in zip(owners, lives, strict=True)]
        self.is_alive.set()

    async def _leave(self) -> None:
        """Wait until each attempt of the users has its outcome, or is certainly lost."""
        self.is_alive.clear()
        self._is_ending = True
        await asyncio.wait(self._users[:1])
        for user in self._users:
            user.cancel()
        await asyncio.wait(self._users)

    async def _commit(self, owner: Owner) -> None:
        """Commit and fetch in turns. The first fetch precedes the first commit."""
        client = KafkaClient(self._world, owner, self._rng)
        membership = KafkaMembership(client, self.rules, self.topic.name, version=JOIN_VERSIONS[-1])
        number = 0
        try:
            while not (self._is_ending and number):
                try:
                    await membership.committed(self._partitions)
                    number += 1
                    offset = self.life * OFFSETS_PER_LIFE + number
                    await membership.commit(dict.fromkeys(self._partitions, offset))
                except Refused as refused:
                    self._world.note(owner.name, f"was refused: {refused}")
                    if refused.code not in ASK_AGAIN | {Code.UNKNOWN_TOPIC_OR_PARTITION}:
                        self.violations.append(Violation("member gave up", f"{owner.name}: {refused}"))
                except SeaweedMQError as error:
                    self._world.note(owner.name, f"begins again: {error}")
                await asyncio.sleep(self._rng.uniform(0, 2 * RETRY_S))
        finally:
            client.close()

    async def _publish(self, owner: Owner) -> None:
        number = 0
        while True:
            try:
                client = await connect(self._world, owner, self._plan.config)
                async with client, await client.publisher(self.name) as publisher:
                    while number < self._plan.records:
                        value = f"life-{self.life}/{number}".encode()
                        await (await publisher.send(value, key=b"%d" % (number % 3)))
                        self._acked.add(value)
                        number += 1
                        await asyncio.sleep(self._rng.uniform(0, 0.1))
                    return
            except InvalidArgument as error:
                if "created again" not in str(error):
                    raise
                await asyncio.sleep(TRY_AGAIN_S)
            except SeaweedMQError as error:
                self._world.note(owner.name, f"begins again: {error}")
                await asyncio.sleep(TRY_AGAIN_S)

    async def _read(self, owner: Owner) -> None:
        while True:
            try:
                client = await connect(self._world, owner, self._world.scenario.subscriber)
                async with (
                    client,
                    client.subscriber(self.name, group=GROUP, start="earliest", member=owner.name) as subscriber,
                ):
                    async for message in subscriber:
                        self._world.note(owner.name, f"got {message.segment}:{message.offset} {message.value!r}")
                        self._delivered.add(bytes(message.value))
                        message.ack()
            except SeaweedMQError as error:
                self._world.note(owner.name, f"begins again: {error}")
                await asyncio.sleep(TRY_AGAIN_S)

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)
