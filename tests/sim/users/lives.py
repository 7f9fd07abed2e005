"""A repeatedly deleted and recreated topic: data and errors of one topic must never appear in the next one.

Each incarnation of the topic has its own publisher, which keeps sending after the deletion, and a reader. Only the last
one is read to its end.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_from_json
from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound, SeaweedMQError
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.sim.scenario import LivesPlan, PublisherPlan
from tests.sim.users.workload import Publisher, Subscriber, connect
from tests.support.history import History, Violation, check

if TYPE_CHECKING:
    from tests.sim.world import World

TRY_AGAIN_S = 0.2
FIRST_RECORD_S_MAX = 3.0
"""Seconds after which a publisher without an acknowledgement may have missed its topic, and could begin in the next."""


@dataclass(slots=True)
class Life:
    """The data sent to the topic between its creation and its deletion."""

    number: int
    publisher: Publisher
    history: History = field(default_factory=History)


class _Witness(Subscriber):
    """A reader of one incarnation, or of the one before, if its broker does not know of that one's deletion yet."""

    def _is_committed(self, segment: int, offset: int) -> bool:
        return True  # no broker knows the commits to a topic that is deleted since


class Lives:
    """A topic that is created and deleted again and again during other faults."""

    def __init__(self, world: "World", plan: LivesPlan) -> None:
        self.plan = plan
        self.name = plan.topic.name
        self._world = world
        self._rng = world.rng("lives")
        self._last: Life | None = None
        self.is_ending = False
        """Whether its deletion was requested and not acknowledged yet."""
        self._under_way: list[asyncio.Task[Any]] = []

    @property
    def is_last(self) -> bool:
        """Whether no other incarnation follows."""
        return self._last is not None and self._last.number == self.plan.lives - 1

    @property
    def is_last_but_one(self) -> bool:
        """Whether one other incarnation follows."""
        return self._last is not None and self._last.number == self.plan.lives - 2

    async def run(self) -> None:
        """Run through all incarnations except the end of the last one."""
        world, network = self._world, self._world.network
        client = await connect(world, Owner("owner of lives"), world.scenario.subscriber)
        async with client:
            for number in range(self.plan.lives):
                await self._create(client)
                world.note("lives", f"{self.name} lives for the {number + 1}. time")
                life = self._life(number)
                publisher = life.publisher
                sending = network.spawn(publisher.owner, self._send(publisher), publisher.plan.name)
                reader = _Witness(world, f"reader of life {number}", self.name, life.history)
                reading = network.spawn(reader.owner, self._read(reader), reader.name)
                self._under_way += [sending, reading]
                self._last = life
                if number == self.plan.lives - 1:
                    return
                await asyncio.sleep(self._rng.uniform(self.plan.life_s_min, self.plan.life_s_max))
                if not await self._has_begun(life):
                    sending.cancel()
                    await asyncio.wait({sending})
                self.is_ending = True
                await self._delete(client)
                self.is_ending = False

    async def finish(self) -> None:
        """Wait until the last incarnation has an outcome for every record."""
        assert self._last is not None
        await asyncio.wait({self._under_way[-2]})

    def stop(self) -> None:
        """Stop readers and publishers of deleted incarnations."""
        for task in self._under_way:
            task.cancel()

    async def read(self, name: str) -> None:
        """Read the last incarnation, from its beginning to its end."""
        assert self._last is not None
        reader = Subscriber(self._world, name, self.name, self._last.history)
        await self._world.network.spawn(reader.owner, reader.run(stop_at="latest"), name)

    def on_deleted(self, keys_deleted: Sequence[str]) -> list[Violation]:
        """Judge a deletion in the metadata: an attempt from the end of one incarnation must not end the next one."""
        if self.is_ending or keys.topic_key(self.topic) not in keys_deleted:
            return []
        return [Violation("deleted unasked", f"{self.name} is gone in its {self._number + 1}. life")]

    @property
    def _number(self) -> int:
        return -1 if self._last is None else self._last.number

    def violations(self, readers: list[str]) -> list[Violation]:
        """Judge the last incarnation: records sent to others must not appear in it."""
        assert self._last is not None
        history = self._last.history
        # A reader that begins at a broker unaware of the latest deletion reads deleted records until the broker learns
        # of it.
        stale = {r for r in (p.reader for p in history.polled) if r not in readers}
        polled = [p for p in history.polled if p.reader not in stale or self._is_of_the_last(p.value)]
        found = check(History(history.sent, polled), complete=readers)
        # A user that begins at a lagging broker gets an error to begin again, and has lost nothing.
        refused = [u for u in self._last.publisher.unexpected if "created again: open a new publisher" not in u]
        return found + [Violation("refused", u) for u in refused]

    def _is_of_the_last(self, value: bytes) -> bool:
        assert self._last is not None
        return value.startswith(f"{self._last.publisher.plan.name}/".encode())

    def _life(self, number: int) -> Life:
        history = History()
        plan = PublisherPlan(
            name=f"life-{number}",
            topic=self.name,
            keys=2,
            records=self.plan.records,
            pause_s_max=2 * self.plan.life_s_max / self.plan.records,
            value_bytes=20,
            config=self.plan.config,
        )
        return Life(number, Publisher(self._world, plan, history), history)

    async def _has_begun(self, life: Life) -> bool:
        try:
            async with asyncio.timeout(FIRST_RECORD_S_MAX):
                await life.publisher.begun.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, publisher: Publisher) -> None:
        try:
            await publisher.run()
        except SeaweedMQError as error:
            self._world.note(publisher.plan.name, f"ends: {error!r}")

    async def _read(self, reader: Subscriber) -> None:
        try:
            await reader.read(None)
        except SeaweedMQError as error:
            self._world.note(reader.name, f"ends: {error!r}")

    async def _create(self, client: Any) -> None:
        topic = self.plan.topic
        while True:
            try:
                await client.admin.create_topic(
                    topic.name, segments=topic.segments, replicas=topic.replicas, durability=topic.durability
                )
            except AlreadyExists:  # by an attempt whose answer was lost
                return
            except InvalidArgument:  # not enough brokers are registered
                self._restart_a_drained_broker()
                await asyncio.sleep(TRY_AGAIN_S)
            except SeaweedMQError as error:
                self._world.note("lives", f"{topic.name} is not created yet: {error}")
                await asyncio.sleep(TRY_AGAIN_S)
            else:
                return

    def _restart_a_drained_broker(self) -> None:
        """Restart a broker whose drain had its answer lost: it takes no segments until then."""
        entries = self._world.cluster.state.brokers.values()
        draining = {info.address for info in (broker_from_json(e.value) for e in entries) if info.draining}
        process = next((p for p in self._world.processes if p.is_well and p.address in draining), None)
        if process is not None:
            process.request_stop()

    async def _delete(self, client: Any) -> None:
        while True:
            try:
                await client.admin.delete_topic(self.name)
            except NotFound:  # by an attempt whose answer was lost
                return
            except SeaweedMQError as error:
                self._world.note("lives", f"{self.name} is not deleted yet: {error}")
                await asyncio.sleep(TRY_AGAIN_S)
            else:
                self._world.note("lives", f"{self.name} is deleted")
                return

    @property
    def topic(self) -> TopicName:
        return TopicName.parse(self.name)
