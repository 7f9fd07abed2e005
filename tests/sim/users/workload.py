"""Users of the simulated cluster: publishers and subscribers that are real clients, and note their observations."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.errors import DeadlineExceeded, InvalidArgument, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.sim.machines.process import environment
from tests.sim.scenario import IMPATIENT_S, PublisherPlan
from tests.support.history import History, Outcome, Polled, Sent, Violation
from tests.support.kafka_wire import partition_of

if TYPE_CHECKING:
    from tests.sim.world import World

LOOK_AGAIN_S = 0.1
OPEN_AGAIN_S = 0.5
DAWDLING_SHARE = 0.1
"""Share of the records after which a slow reader pauses."""


async def connect(world: "World", owner: Owner, config: ClientConfig) -> Any:
    """Return a real client of ``owner``, over the simulated network."""
    return await aio.connect(
        ",".join(process.address for process in world.processes),
        dialer=world.network.dialer(owner),
        env=environment(world.loop, world.clocks.here_us, f"{world.seed} {owner.name}"),
        config=config,
    )


class Publisher:
    """A publisher of keyed records with unique values, several at once, that notes each outcome."""

    def __init__(self, world: "World", plan: PublisherPlan, history: History) -> None:
        self.world = world
        self.plan = plan
        self.history = history
        self.rng = world.rng(plan.name)
        self.owner = Owner(plan.name)
        self.unexpected: list[str] = []
        self.begun = asyncio.Event()
        """Set once a record is acknowledged."""

    def value(self, number: int) -> bytes:
        head = f"{self.plan.name}/{number}/".encode()
        return head + b"." * max(0, self.plan.value_bytes - len(head))

    async def run(self) -> None:
        """Send everything; return when each record has its outcome."""
        plan = self.plan
        await asyncio.sleep(plan.starts_s)
        client, publisher = await self._opened()
        if plan.waits_s:
            await asyncio.sleep(plan.waits_s)
        outcomes: list[asyncio.Task[None]] = []
        try:
            for number in range(plan.records):
                key = f"{plan.name}-key-{self.rng.randrange(plan.keys)}".encode()
                sent = await publisher.send(self.value(number), key=key)
                outcomes.append(asyncio.create_task(self._note(number, key, sent), name=f"outcome {number}"))
                if plan.pause_s_max:
                    await asyncio.sleep(self.rng.uniform(0, plan.pause_s_max))
            await asyncio.gather(*outcomes)
        finally:
            await publisher.close()
            await client.close()
        self.world.note(plan.name, "has an outcome for every record")

    async def _opened(self) -> tuple[Any, Any]:
        """Return a client with a publisher; retry if it starts during an outage."""
        while True:
            try:
                client = await connect(self.world, self.owner, self.plan.config)
                return client, await client.publisher(self.plan.topic)
            except Unavailable as error:
                self.world.note(self.plan.name, f"cannot begin: {error}")
                await asyncio.sleep(OPEN_AGAIN_S)

    async def _note(self, number: int, key: bytes, sent: Any) -> None:
        value = self.value(number)
        outcome, segment, offset = Outcome.UNKNOWN, None, None
        try:
            receipt = await sent
            outcome, segment, offset = Outcome.ACKED, receipt.segment, receipt.offset
            self.begun.set()
            self.world.note(self.plan.name, f"{number} acknowledged at {segment}:{offset}")
        except SeaweedMQError as error:
            if isinstance(error, InvalidArgument):
                outcome = Outcome.REFUSED
            self._on_error(number, error)
        self.history.sent.append(
            Sent(
                producer=self.plan.name,
                key=key,
                sequence=number,
                value=value,
                outcome=outcome,
                segment=segment,
                offset=offset,
            )
        )

    def _on_error(self, number: int, error: SeaweedMQError) -> None:
        self.world.note(self.plan.name, f"{number} failed: {error!r}")
        if isinstance(error, DeadlineExceeded) and self.plan.config.delivery_timeout_s <= IMPATIENT_S:
            return
        if not isinstance(error, OutOfRange):
            self.unexpected.append(f"record {number} failed: {error!r}")
        elif not self.world.scenario.forgets:
            # The outcome is unknowable, which is for publishers that return after their segment was pruned.
            self.world.violations.append(Violation("forgotten", f"{self.plan.name}, record {number}: {error!r}"))


class Reader:
    """A reader of a topic from its beginning, by any client, that notes received records."""

    def __init__(self, world: "World", name: str, topic: str, history: History) -> None:
        self.world = world
        self.name = name
        self.topic = topic
        self._topic = TopicName.parse(topic)
        self.history = history
        self.owner = Owner(name)
        self.places: set[tuple[int, int]] = set()
        """Segment and offset of received records, over all incarnations."""
        self.life = name

    def take(self, segment: int, offset: int, key: bytes | None, value: bytes, partition: int | None) -> None:
        """Note a received record."""
        world = self.world
        world.note(self.name, f"got {segment}:{offset} {value[:24]!r}")
        self.places.add((segment, offset))
        if not self._is_committed(segment, offset):
            place = f"{self.topic}#{segment} offset {offset}"
            world.violations.append(Violation("uncommitted", f"{self.name} got {place}"))
        self.history.polled.append(
            Polled(reader=self.life, segment=segment, offset=offset, key=key, value=value, partition=partition)
        )

    def _is_committed(self, segment: int, offset: int) -> bool:
        return self.world.watch.is_committed(self._topic, segment, offset)

    async def reach_the_end(self) -> None:
        """Wait until it got all records that any reader got and retention left."""
        while self._unread():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(LOOK_AGAIN_S)

    def _unread(self) -> bool:
        starts = self.world.retained.starts(self._topic)
        places = {(p.segment, p.offset) for p in self.history.polled} - self.places
        return any(offset >= starts.get(segment, 0) for segment, offset in places)


class Subscriber(Reader):
    """A reader with a native client."""

    def __init__(self, world: "World", name: str, topic: str, history: History) -> None:
        super().__init__(world, name, topic, history)
        self.count = 0

    async def run(self, *, stop_at: str | None = None) -> None:
        """Read until cancelled, or with ``stop_at="latest"`` until all records present now were read."""
        lives = itertools.count(2)
        try:
            while not await self._live(stop_at):
                self.life = f"{self.name}'{next(lives)}"
        except SeaweedMQError as error:
            self.world.note(self.name, f"gave up: {error!r}")
            self.world.violations.append(Violation("reader gave up", f"{self.name}: {error!r}"))
            raise

    async def _live(self, stop_at: str | None) -> bool:
        """Whether it got to the end; False if it got the error that retention overtook it, and should restart."""
        try:
            await self.read(stop_at)
        except OutOfRange as error:
            if not self.world.retained.starts(self._topic) and not self._may_have_missed_some():
                raise
            self.world.note(self.name, f"begins again: {error}")
            return False
        return True

    def _may_have_missed_some(self) -> bool:
        """Whether a segment that was open a moment ago may be pruned: with retention it may have had records.

        Retention prunes it, or a recovery does not know it: the storage had none of its records when etcd was lost."""
        cluster = self.world.cluster
        topic = cluster.state.topics[self._topic]
        return topic.has_retention and bool(topic.pruned or cluster.recoveries)

    def _partition_of(self, message: Message) -> int | None:
        """Return the record's partition, which its key must belong to for some past number of partitions."""
        if message.partition is None:
            return None
        topic = self.world.cluster.last_known.topics.get(TopicName.parse(self.topic))
        most = message.partition + 1 if topic is None else topic.partitions or 0
        if not any(partition_of(message.key or b"", count) == message.partition for count in range(1, most + 1)):
            place = f"{self.topic}#{message.segment} offset {message.offset}, partition {message.partition}"
            self.world.violations.append(Violation("elsewhere", f"{message.key!r} is in {place}"))
        return message.partition

    async def read(self, stop_at: str | None) -> None:
        """Read as ``run``, once. Raises the subscriber's error."""
        client = await connect(self.world, self.owner, self.world.scenario.subscriber)
        async with client, client.subscriber(self.topic, start="earliest", stop_at=stop_at) as subscriber:
            async for message in subscriber:
                self.count += 1
                partition = self._partition_of(message)
                self.take(message.segment, message.offset, message.key, message.value, partition)
                await self._dawdle()
        self.world.note(self.name, f"read to the end, {self.count} records")

    async def _dawdle(self) -> None:
        """Take the next record at once."""


class Dawdler(Subscriber):
    """A subscriber that stops reading at times, for a while or forever, with records in transit to it."""

    def __init__(self, world: "World", name: str, topic: str, history: History) -> None:
        super().__init__(world, name, topic, history)
        self._rng = world.rng(name)

    async def _dawdle(self) -> None:
        if self._rng.random() < DAWDLING_SHARE:
            pause_s = self._rng.choice((0.5, 3.0, 3_600.0))
            self.world.note(self.name, f"reads nothing for {pause_s:g} s")
            await asyncio.sleep(pause_s)
