"""An idempotent Kafka producer with a few frames in flight to each partition.

After any failure it resends them in their order, with the same sequences, to the current leader. A final error leaves a
gap in the sequences. Like librdkafka it then begins a new epoch, and resends all unacknowledged frames with new
sequences: those that were stored before are stored twice."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.wire.messages import API, ProduceRequest
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.producer import KAFKA_PRODUCERS, KAFKA_SEQUENCES
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.sim.scenario import KafkaPlan
from tests.sim.users.kafka_client import METADATA_VERSION, Connection, KafkaClient, Refused, metadata_of
from tests.support.history import History, Outcome, Sent
from tests.support.kafka_wire import partition_of

if TYPE_CHECKING:
    from tests.sim.world import World

IN_FLIGHT_MAX = 5
REPLY_TIMEOUT_S = 5.0
RETRY_S_MAX = 0.3
FRAME_RECORDS_MAX = 4
PRODUCE_VERSIONS = (3, 9, 12)
TIMEOUT_MS = 3_000
BATCH_BYTES_MAX = 1 << 20
LOOKS_SHARE = 0.1
"""Share of batches followed by a metadata request on the same connection, as librdkafka sends."""
NONE, LZ4 = 0, 3
RETRIABLE = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS, Code.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
"""For a producer, as in Kafka's own."""


@dataclass(slots=True, eq=False)
class _Batch:
    sequence: int
    numbers: range
    data: bytes


class KafkaProducer:
    """A producer that sends its records to each partition of a topic, and notes each outcome. It never gives up."""

    def __init__(self, world: "World", plan: KafkaPlan, number: int, history: History) -> None:
        self.world = world
        self.plan = plan
        self.producer_id = KAFKA_PRODUCERS.start + number
        self.history = history
        self.owner = Owner(plan.name)
        self.unexpected: list[str] = []

    async def run(self) -> None:
        """Run until each record has its outcome."""
        await asyncio.sleep(self.plan.starts_s)
        await asyncio.gather(*(_Lane(self, partition).run() for partition in range(self.plan.partitions)))
        self.world.note(self.plan.name, "has an outcome for every record")

    def locate(self, segment_at: Callable[[int, int], int | None]) -> None:
        """Add the segment, by partition and offset, to acknowledged records: replies do not contain it."""
        sent = self.history.sent
        for number, one in enumerate(sent):
            if one.producer == self.plan.name and one.offset is not None:
                sent[number] = replace(one, segment=segment_at(self.partition_of(one), one.offset))

    def partition_of(self, one: Sent) -> int:
        """Return the partition that the record was sent to."""
        return partition_of(one.key, self.plan.partitions)


class _Lane:
    """The sender of one partition."""

    def __init__(self, producer: KafkaProducer, partition: int) -> None:
        self._producer = producer
        self._world = producer.world
        self._plan = producer.plan
        self._topic = TopicName.parse(producer.plan.topic).name
        self._partition = partition
        self._name = f"{producer.plan.name}-p{partition}"
        self._rng: random.Random = producer.world.rng(self._name)
        self._looks: random.Random = producer.world.rng(f"{self._name} looks")
        self._key = self._key_of_partition()
        self._epoch = 0
        self._next = producer.plan.first_sequence
        self._has_gap = False
        """Whether a frame met a final error: no later one can be stored in this epoch."""
        self._unsettled: deque[_Batch] = deque()
        """Batches without an outcome, oldest first."""
        self._work = asyncio.Event()
        self._is_fed = False
        self._client = KafkaClient(producer.world, producer.owner, self._rng)
        self._version = self._rng.choice(PRODUCE_VERSIONS)
        self._codec = self._rng.choice((NONE, NONE, LZ4))

    async def run(self) -> None:
        feeding = asyncio.create_task(self._feed(), name=f"feed {self._name}")
        try:
            while not self._is_fed or self._unsettled:
                try:
                    await self._work.wait()
                    await self._converse()
                except SeaweedMQError as error:
                    self._world.note(self._name, f"begins again: {error!r}")
                    if self._has_gap:
                        self._begin_epoch()
                    await asyncio.sleep(self._rng.uniform(0.01, RETRY_S_MAX))
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})
            self._client.close()

    def _begin_epoch(self) -> None:
        self._epoch, self._next, self._has_gap = self._epoch + 1, 0, False
        self._unsettled = deque(self._batch(batch.numbers) for batch in self._unsettled)

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
        sequence, now_ms = self._next, self._world.clocks.here_us() // 1_000
        pid = self._producer.producer_id
        builder = DefaultRecordBatchBuilder(2, self._codec, 0, pid, self._epoch, sequence, BATCH_BYTES_MAX)
        for i, number in enumerate(numbers):
            builder.append(i, now_ms + i, self._key, self._value(number), [])
        self._next = (sequence + len(numbers)) % KAFKA_SEQUENCES
        return _Batch(sequence, numbers, bytes(builder.build()))

    def _value(self, number: int) -> bytes:
        return f"{self._name}/{number}/".encode()

    def _key_of_partition(self) -> bytes:
        """Return a key whose hash belongs to the partition."""
        candidates = (f"{self._name}-key-{n}".encode() for n in range(10_000))
        return next(key for key in candidates if partition_of(key, self._plan.partitions) == self._partition)

    # --- connections ------------------------------------------------------------------------------------------------

    async def _converse(self) -> None:
        """Send batches to the current leader until an error, or until none is left."""
        connection = await self._leader()
        sent: deque[tuple[_Batch, asyncio.Future[Any]]] = deque()
        failed: SeaweedMQError | None = None
        while True:
            if failed is None:
                under_way = [batch for batch, _ in sent]
                for batch in [b for b in self._unsettled if b not in under_way][: IN_FLIGHT_MAX - len(sent)]:
                    sent.append((batch, self._send(connection, batch)))
            elif not sent:
                raise failed
            if not sent and self._is_fed:
                return
            if not sent:
                self._work.clear()
                await self._work.wait()
                continue
            batch, reply = sent.popleft()
            said = await connection.replied(reply, REPLY_TIMEOUT_S)
            error = self._settle(batch, said.responses[0].partition_responses[0])
            failed = failed or error

    def _send(self, connection: Connection, batch: _Batch) -> "asyncio.Future[Any]":
        make = ProduceRequest.TopicProduceData
        data = make.PartitionProduceData(index=self._partition, records=batch.data)
        reply = connection.begin(
            API.PRODUCE,
            self._version,
            transactional_id=None,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[make(name=self._topic, partition_data=[data])],
        )
        if self._looks.random() < LOOKS_SHARE:  # answered long before the batch, and sent behind it
            connection.begin(API.METADATA, METADATA_VERSION, **metadata_of(self._topic))
        return reply

    async def _leader(self) -> Connection:
        """Connect to the broker that leads the partition according to any broker."""
        await self._client.refresh(self._topic)
        leader = self._client.leaders.get(self._partition)
        if leader is None or leader.node < 0:
            raise Unavailable(f"partition {self._partition} has no leader")
        return self._client.connection(leader.node, "produce")

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def _settle(self, batch: _Batch, reply: Any) -> SeaweedMQError | None:
        """Note the outcome of the oldest batch in flight; return the error if it must be resent."""
        code = Code(reply.error_code)
        if code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER):
            self._unsettled.remove(batch)
            self._acked(batch, reply.base_offset if code is Code.NONE else None)
            return None
        error = Refused(code, str(reply.error_message))
        is_behind = batch is not self._unsettled[0]
        if code not in RETRIABLE and not (code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and is_behind):
            self._world.note(self._name, f"{batch.sequence} failed: {error!r}")
            self._producer.unexpected.append(f"{self._name}, sequence {batch.sequence}: {error!r}")
            self._unsettled.remove(batch)
            self._note(batch, Outcome.UNKNOWN, None)
            self._has_gap = True
        return error

    def _acked(self, batch: _Batch, base: int | None) -> None:
        self._world.note(self._name, f"{batch.numbers} acknowledged at {base}")
        self._note(batch, Outcome.ACKED, base)

    def _note(self, batch: _Batch, outcome: Outcome, base: int | None) -> None:
        self._producer.history.sent += [
            Sent(
                producer=self._plan.name,
                key=self._key,
                sequence=number,
                value=self._value(number),
                outcome=outcome,
                offset=None if base is None else base + number - batch.numbers.start,
            )
            for number in batch.numbers
        ]
