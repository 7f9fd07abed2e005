"""A topic that is deleted and created again under load: nothing of the old one may show up in its namesake."""

import asyncio
import itertools
from collections.abc import Awaitable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import AlreadyExists, NotFound, SeaweedMQError
from tests.faults.testbed import FaultTestbed

LIVES = 4
"""Of the topic, one after another."""
LIFE_S_MAX = 0.8
PAUSE_S_MAX = 0.004
"""Between two records."""
KEYS = 5
BEGIN_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
CLIENT = ClientConfig(admin_timeout_s=30.0, delivery_timeout_s=60.0, close_timeout_s=60.0)

_names = itertools.count()


@dataclass(slots=True)
class Life:
    """What was sent while the topic had one uid, by a publisher that does not know that it is going to be deleted."""

    number: int
    acked: set[bytes] = field(default_factory=set)
    sent: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Something is acknowledged: the publisher has seen this life, not the next one."""

    def value(self) -> bytes:
        """Of the next record."""
        self.sent += 1
        return b"life %d record %d" % (self.number, self.sent)

    async def publish(self, client: aio.Client, topic: str, testbed: FaultTestbed) -> None:
        """Until the topic is gone, or this is cancelled."""
        try:
            async with client.publisher(topic) as publisher:
                while True:
                    value = self.value()
                    sent = await publisher.send(value, key=b"%d" % (self.sent % KEYS))
                    sent.add_done_callback(partial(self._note, value))
                    await asyncio.sleep(testbed.rng.uniform(0, PAUSE_S_MAX))
        except SeaweedMQError as error:
            testbed.say(f"the publisher of life {self.number} of {topic} ends: {error}")

    def _note(self, value: bytes, done: "Future[aio.Receipt]") -> None:
        if done.exception() is None:
            self.acked.add(value)
            self.begun.set()


async def recreate(testbed: FaultTestbed) -> None:
    """A topic is deleted and created again some times, while publishers and a subscriber are at it."""
    topic = f"faults/recreated-{next(_names)}"
    publishing: list[asyncio.Task[None]] = []
    async with await aio.connect(testbed.cluster.bootstrap, config=CLIENT) as client:
        try:
            for number in range(LIVES):
                life = Life(number)
                await _create(client, topic, replicas=testbed.rng.choice((1, 2)))
                sending = asyncio.create_task(life.publish(client, topic, testbed), name=f"life {number}")
                publishing.append(sending)
                publishing.append(asyncio.create_task(_read(client, topic, testbed), name=f"reader of life {number}"))
                await asyncio.sleep(testbed.rng.uniform(0, LIFE_S_MAX))
                await _begin(life, sending)
                if number < LIVES - 1:
                    await _gone(client.admin.delete_topic(topic))
            await _judge(client, topic, life, testbed)
        finally:
            for task in publishing:
                task.cancel()
            await asyncio.gather(*publishing, return_exceptions=True)
        await _gone(client.admin.delete_topic(topic))
    testbed.say(f"{topic} was created {LIVES} times")


async def _begin(life: Life, sending: "asyncio.Task[None]") -> None:
    """Once something is acknowledged; a publisher that has nothing yet could begin in the next life, and is stopped."""
    try:
        async with asyncio.timeout(BEGIN_TIMEOUT_S):
            await life.begun.wait()
    except TimeoutError:
        sending.cancel()
        await asyncio.wait({sending})


async def _create(client: aio.Client, topic: str, replicas: int) -> None:
    try:
        await client.admin.create_topic(topic, segments=2, replicas=replicas)
    except AlreadyExists:
        """Of an attempt whose answer was lost."""


async def _gone(deleting: Awaitable[None]) -> None:
    try:
        await deleting
    except NotFound:
        """By an attempt whose answer was lost."""


async def _read(client: aio.Client, topic: str, testbed: FaultTestbed) -> None:
    """A subscriber that sees its topic go."""
    try:
        async with client.subscriber(topic, start="earliest") as subscriber:
            async for _ in subscriber:
                """What it gets is not what this is about."""
    except SeaweedMQError as error:
        testbed.say(f"a subscriber of {topic} ends: {error}")


async def _judge(client: aio.Client, topic: str, life: Life, testbed: FaultTestbed) -> None:
    """The last life has what it acknowledged, once each, and nothing of any other."""
    acked = set(life.acked)
    try:
        async with (
            asyncio.timeout(READ_TIMEOUT_S),
            client.subscriber(topic, start="earliest", stop_at="latest") as subscriber,
        ):
            values = [message.value async for message in subscriber]
    except TimeoutError:
        testbed.exits.append(f"{topic} can not be read to its end within {READ_TIMEOUT_S:g} s")
        return
    mine = b"life %d " % life.number
    if strangers := [v for v in values if not v.startswith(mine)]:
        testbed.exits.append(f"{topic} has {len(strangers)} records of a topic that was deleted: {strangers[:3]}")
    if lost := acked - set(values):
        testbed.exits.append(f"{topic} lost {len(lost)} acknowledged records: {sorted(lost)[:3]}")
    if len(set(values)) < len(values):
        testbed.exits.append(f"{topic} has {len(values) - len(set(values))} records twice")
