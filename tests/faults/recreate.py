"""A topic that is deleted and recreated under load: no record of the old topic may appear in the new one."""

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
"""Number of times the topic is created."""
LIFE_S_MAX = 0.8
PAUSE_S_MAX = 0.004
"""Longest pause in seconds between two records."""
KEYS = 5
BEGIN_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
CLIENT = ClientConfig(admin_timeout_s=30.0, delivery_timeout_s=60.0, close_timeout_s=60.0)

_names = itertools.count()


@dataclass(slots=True)
class Life:
    """Records sent to one incarnation of the topic, by a publisher unaware of the coming deletion."""

    number: int
    acked: set[bytes] = field(default_factory=set)
    sent: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a record is acknowledged: the publisher knows this incarnation, not the next."""

    def value(self) -> bytes:
        self.sent += 1
        return b"life %d record %d" % (self.number, self.sent)

    async def publish(self, client: aio.Client, topic: str, testbed: FaultTestbed) -> None:
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
    """Delete and recreate a topic several times, during publishes."""
    topic = f"faults/recreated-{next(_names)}"
    publishing: list[asyncio.Task[None]] = []
    async with await aio.connect(testbed.cluster.bootstrap, config=CLIENT) as client:
        try:
            for number in range(LIVES):
                life = Life(number)
                await _create(client, topic, replicas=testbed.rng.choice((1, 2)))
                sending = asyncio.create_task(life.publish(client, topic, testbed), name=f"life {number}")
                publishing.append(sending)
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
    """Wait for an acknowledgement; stop a publisher without one, which could begin in the next incarnation."""
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
        """An attempt whose answer was lost has created it."""


async def _gone(deleting: Awaitable[None]) -> None:
    try:
        await deleting
    except NotFound:
        """An attempt whose answer was lost has deleted it."""


async def _judge(client: aio.Client, topic: str, life: Life, testbed: FaultTestbed) -> None:
    """Check that the last incarnation has its acknowledged records once each, and no others."""
    acked = set(life.acked)
    try:
        async with (
            asyncio.timeout(READ_TIMEOUT_S),
            client.subscriber(topic, start="earliest", stop_at="latest") as subscriber,
        ):
            values = [message.value async for message in subscriber]
    except TimeoutError:
        testbed.exits.append(f"{topic} cannot be read to its end within {READ_TIMEOUT_S:g} s")
        return
    mine = b"life %d " % life.number
    if strangers := [v for v in values if not v.startswith(mine)]:
        testbed.exits.append(f"{topic} has {len(strangers)} records of a topic that was deleted: {strangers[:3]}")
    if lost := acked - set(values):
        testbed.exits.append(f"{topic} lost {len(lost)} acknowledged records: {sorted(lost)[:3]}")
    if len(set(values)) < len(values):
        testbed.exits.append(f"{topic} has {len(values) - len(set(values))} records twice")
