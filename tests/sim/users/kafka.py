"""A producer as Kafka's clients are: idempotent, with a few frames under way to each partition, which it sends again in
their order whenever anything is wrong, under the same sequences, to whoever leads by then."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seaweedmq.codec.frame import FLAG_KEY, FLAG_TIMESTAMP
from seaweedmq.codec.murmur2 import partition_of
from seaweedmq.codec.payload.arrow import payload_schema
from seaweedmq.codec.payload.batch import encode_frame
from seaweedmq.errors import DuplicateSequence, SeaweedMQError, Unavailable
from seaweedmq.model.calls import DescribeTopic
from seaweedmq.model.description import OPEN
from seaweedmq.model.producer import KAFKA_PRODUCERS, KAFKA_SEQUENCES
from seaweedmq.model.topic import TopicName
from tests.sim.machines.kafka import Produce, Produced, kafka_address
from tests.sim.machines.loop import Owner
from tests.sim.scenario import KafkaPlan
from tests.support.history import History, Outcome, Sent

if TYPE_CHECKING:
    from tests.sim.world import World

IN_FLIGHT_MAX = 5
REPLY_TIMEOUT_S = 5.0
RETRY_S_MAX = 0.3
SAME_CONNECTION_SHARE = 0.5
"""Of retries: a client may not know yet that another broker leads, or the same one leads again."""
FRAME_RECORDS_MAX = 4


@dataclass(slots=True, eq=False)
class _Batch:
    sequence: int
    numbers: range
    data: bytes


class KafkaProducer:
    """Sends its records to each partition of a topic, and notes each outcome. It never gives up."""

    def __init__(self, world: "World", plan: KafkaPlan, number: int, history: History) -> None:
        self.world = world
        self.plan = plan
        self.producer_id = KAFKA_PRODUCERS.start + number
        self.history = history
        self.owner = Owner(plan.name)
        self.unexpected: list[str] = []

    async def run(self) -> None:
        """Until each record has its outcome."""
        await asyncio.sleep(self.plan.starts_s)
        await asyncio.gather(*(_Lane(self, partition).run() for partition in range(self.plan.partitions)))
        self.world.note(self.plan.name, "has an outcome for every record")


class _Lane:
    """Of one partition."""

    def __init__(self, producer: KafkaProducer, partition: int) -> None:
        self._producer = producer
        self._world = producer.world
        self._plan = producer.plan
        self._topic = TopicName.parse(producer.plan.topic)
        self._partition = partition
        self._name = f"{producer.plan.name}-p{partition}"
        self._rng: random.Random = producer.world.rng(self._name)
        self._key = self._key_of_partition()
        self._next = producer.plan.first_sequence
        self._unsettled: deque[_Batch] = deque()
        """In their order, the oldest first."""
        self._work = asyncio.Event()
        self._is_fed = False

    async def run(self) -> None:
        feeding = asyncio.create_task(self._feed(), name=f"feed {self._name}")
        try:
            while not self._is_fed or self._unsettled:
                try:
                    await self._work.wait()
                    await self._converse()
                except SeaweedMQError as error:
                    self._world.note(self._name, f"begins again: {error!r}")
                    await asyncio.sleep(self._rng.uniform(0.01, RETRY_S_MAX))
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})

    async def _feed(self) -> None:
        number, plan = 0, self._plan
        while number < plan.records:
            count = min(self._rng.randint(1, FRAME_RECORDS_MAX), plan.records - number)
            self._unsettled.append(self._batch(range(number, number + count)))
            self._work.set()
            number += count
            if plan.pause_s_max:
                await asyncio.sleep(self._rng.uniform(0, plan.pause_s_max))
        self._is_fed = True
        self._work.set()

    def _batch(self, numbers: range) -> _Batch:
        flags, sequence, count = FLAG_KEY | FLAG_TIMESTAMP, self._next, len(numbers)
        now_us = self._world.clocks.here_us()
        columns = [
            pa.array([self._key] * count, pa.binary()),
            pa.array([now_us] * count, pa.timestamp("us", "UTC")),
            pa.array([self._value(number) for number in numbers], pa.binary()),
        ]
        data = encode_frame(
            pa.RecordBatch.from_arrays(columns, schema=payload_schema(flags, None)),
            flags=flags,
            producer_id=self._producer.producer_id,
            producer_epoch=0,
            first_sequence=sequence,
            timestamp_min=now_us,
            timestamp_max=now_us,
            slot_min=self._partition,
            slot_max=self._partition,
            histogram=(0,) * 16,
        )
        self._next = (sequence + count) % KAFKA_SEQUENCES
        return _Batch(sequence, numbers, bytes(data))

    def _value(self, number: int) -> bytes:
        return f"{self._name}/{number}/".encode()

    def _key_of_partition(self) -> bytes:
        """One that the partition has by its hash, too."""
        candidates = (f"{self._name}-key-{n}".encode() for n in range(10_000))
        return next(key for key in candidates if partition_of(key, self._plan.partitions) == self._partition)

    # --- conversations ------------------------------------------------------------------------------------------------

    async def _converse(self) -> None:
        """With whoever leads now, until something is wrong, or there is nothing to do."""
        address = kafka_address(await self._leader())
        requests: asyncio.Queue[Produce | None] = asyncio.Queue()
        api: Any = self._world.network.dialer(self._producer.owner).dial(address)
        async with aclosing(api.publish(_given(requests))) as replies:
            sent: deque[_Batch] = deque()
            failed: SeaweedMQError | None = None
            while True:
                if failed is None:
                    for batch in [b for b in self._unsettled if b not in sent][: IN_FLIGHT_MAX - len(sent)]:
                        sent.append(batch)
                        requests.put_nowait(Produce(self._topic, self._partition, batch.data))
                elif not sent and self._rng.random() < SAME_CONNECTION_SHARE:
                    self._world.note(self._name, f"sends again: {failed!r}")
                    await asyncio.sleep(self._rng.uniform(0.01, RETRY_S_MAX))
                    failed = None
                    continue
                elif not sent:
                    raise failed
                if not sent and self._is_fed:
                    return
                if not sent:
                    self._work.clear()
                    await self._work.wait()
                    continue
                reply = await self._reply(replies)
                error = self._settle(sent.popleft(), reply)
                failed = failed or error

    async def _reply(self, replies: AsyncIterator[Produced]) -> Produced:
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                reply = await anext(replies, None)
        except TimeoutError:
            raise Unavailable("no reply in time") from None
        if reply is None:
            raise Unavailable("the connection was closed")
        return reply

    async def _leader(self) -> str:
        """Address of the broker that leads the partition, as any broker says."""
        process = self._rng.choice(self._world.processes)
        api: Any = self._world.network.dialer(self._producer.owner).dial(process.address)
        description = await api.call(DescribeTopic(self._topic, OPEN))
        segment = next((s for s in description.segments if s.is_open and self._partition in s.slots), None)
        address = None if segment is None else description.addresses.get(segment.primary)
        if address is None:
            raise Unavailable(f"nobody leads partition {self._partition}")
        return str(address)

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def _settle(self, batch: _Batch, reply: Produced) -> SeaweedMQError | None:
        """Note what became of the oldest batch under way; what is wrong if it is to be sent again."""
        error = reply.error
        if error is None or isinstance(error, DuplicateSequence):
            self._unsettled.remove(batch)
            self._acked(batch, reply)
            return None
        if not error.retryable:  # a gap is none: librdkafka would begin a new epoch, and store again what was not told
            self._world.note(self._name, f"{batch.sequence} failed: {error!r}")
            self._producer.unexpected.append(f"{self._name}, sequence {batch.sequence}: {error!r}")
            self._unsettled.remove(batch)
            self._note(batch, Outcome.UNKNOWN, None, None)
        return error

    def _acked(self, batch: _Batch, reply: Produced) -> None:
        base = reply.frames[0].base_offset if reply.frames else None
        self._world.note(self._name, f"{batch.numbers} acknowledged at {reply.segment}:{base}")
        self._note(batch, Outcome.ACKED, reply.segment, base)

    def _note(self, batch: _Batch, outcome: Outcome, segment: int | None, base: int | None) -> None:
        self._producer.history.sent += [
            Sent(
                producer=self._plan.name,
                key=self._key,
                sequence=number,
                value=self._value(number),
                outcome=outcome,
                segment=segment,
                offset=None if base is None else base + number - batch.numbers.start,
            )
            for number in batch.numbers
        ]


async def _given(requests: "asyncio.Queue[Produce | None]") -> AsyncIterator[Produce]:
    while (request := await requests.get()) is not None:
        yield request
