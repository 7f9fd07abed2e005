"""Kafka's side of the demo: librdkafka publishes, and a group of its consumers reads. All of it in threads.

What Kafka promises a group is that it gets every record at least once. A member goes on where it stands as long as it
keeps its partitions, whatever happens to brokers; only who takes a partition over begins at what was committed last,
and gets again what lies between. So as long as nobody had to share out anew, nothing may come twice.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.demo.flights import check
from benchmarks.demo.records import ARRIVED
from benchmarks.demo.threads import in_thread
from seaweedmq.cli.output import note

Count = Callable[[int], None]
"""Told how many there are by now."""

COMMON = {"log_level": 2, "error_cb": lambda _: None}
"""librdkafka tells of every broker it loses, in its log and here. What it can not mend shows as records that are not
there."""
PUBLISHER = {
    **COMMON,
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as SeaweedMQ's publishers and Kafka's in Java do
    "compression.type": "lz4",
    "linger.ms": 5,
}
MEMBER = {**COMMON, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
POLL_S = 0.1
TOLD_EVERY = 1_000
QUEUED_MAX = 20_000
"""Records that librdkafka has to send, or to hear of."""
CONSUMED_MAX = 2_000
"""Records that a member takes at once."""
REQUEST_S = 20.0


def publish(servers: str, topic: str, records: pa.Table, count: Count, given_up: threading.Event) -> None:
    """Publish ``_key`` and ``_value`` of all rows and wait for what became of them, unless it is given up.

    Raises:
        DemoFailed: a record was refused, or never acknowledged.
    """
    refused: list[KafkaError] = []
    acknowledged = 0

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            refused.append(error)
        acknowledged += 1
        if acknowledged % TOLD_EVERY == 0 or acknowledged == records.num_rows:
            count(acknowledged)

    producer = Producer({**PUBLISHER, "bootstrap.servers": servers})
    for batch in records.to_batches(max_chunksize=TOLD_EVERY):
        while len(producer) + batch.num_rows > QUEUED_MAX and not given_up.is_set():
            producer.poll(POLL_S)
        for key, value in zip(*(batch.column(name).to_pylist() for name in ("_key", "_value")), strict=True):
            producer.produce(topic, value, key, on_delivery=delivered)
        producer.poll(0)
    while producer.flush(POLL_S) and not given_up.is_set():
        pass
    check(not refused, f"{len(refused)} of librdkafka's records were refused: {refused and refused[0]}")
    check(len(producer) == 0, f"{len(producer)} of librdkafka's records are not acknowledged")


class KafkaGroup:
    """Consumers that share the partitions of a topic and read until they are told that it is over."""

    def __init__(
        self, servers: str, topic: str, name: str, *, members: int, partitions: int, expected: int, count: Count
    ) -> None:
        """``expected``: how many records there will be. ``count``: called in their threads."""
        self._servers = {**COMMON, "bootstrap.servers": servers}
        self._topic = topic
        self._name = name
        self._partitions = partitions
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._shares: list[Sequence[int]] = [()] * members
        self._ends: dict[int, int] = {}
        """Of every partition: offset after the last record that came."""
        self._records = 0
        self._expected = expected
        self.complete = asyncio.Event()
        """Every member has its share."""
        self.finished = asyncio.Event()
        """They have as many different records as are expected."""
        self.pieces: list[pa.Table] = []
        """As they came; see ``ARRIVED``."""
        self.rebalances = 0
        """How often they shared out anew since they were complete."""

    async def read(self, over: threading.Event, given_up: threading.Event) -> None:
        """Read until it is over, or given up. Raises DemoFailed: a member can not go on."""
        members = range(len(self._shares))
        await asyncio.gather(*(in_thread(partial(self._member, member, over, given_up)) for member in members))

    def coordinator(self) -> str:
        """``host:port`` of the broker that has the group."""
        admin = AdminClient(self._servers)  # it has to live until it has answered
        described = admin.describe_consumer_groups([self._name], request_timeout=REQUEST_S)
        node = described[self._name].result(REQUEST_S).coordinator
        return f"{node.host}:{node.port}"

    def committed(self) -> int:
        """Up to which offsets the group has committed, the partitions together."""
        partitions = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        asker = Consumer({**self._servers, "group.id": self._name})
        try:
            return sum(max(0, p.offset) for p in asker.committed(partitions, timeout=REQUEST_S))
        finally:
            asker.close()

    def _member(self, number: int, over: threading.Event, given_up: threading.Event) -> None:
        consumer = Consumer({**MEMBER, **self._servers, "group.id": self._name})
        share = partial(self._share, number, over)
        consumer.subscribe(
            [self._topic],
            on_assign=lambda _, got: share(got),
            on_revoke=lambda *_: share(()),
            on_lost=lambda *_: share(()),
        )
        while not over.is_set() and not given_up.is_set():
            messages = consumer.consume(CONSUMED_MAX, timeout=POLL_S)
            if messages:
                self._take(messages)
        if not given_up.is_set():
            consumer.close()  # commits, and leaves the group: for that it waits until there is a coordinator

    def _share(self, member: int, over: threading.Event, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            self._shares[member] = [p.partition for p in partitions]
            if self.complete.is_set():
                self.rebalances += not over.is_set()
            elif all(self._shares) and len({p for s in self._shares for p in s}) == self._partitions:
                self._loop.call_soon_threadsafe(self.complete.set)

    def _take(self, got: Sequence[Any]) -> None:
        messages = [message for message in got if not self._is_news(message.error())]
        if not messages:
            return
        columns = zip(*((m.partition(), m.offset(), m.key(), m.value()) for m in messages), strict=True)
        piece = pa.table([pa.array(column, f.type) for column, f in zip(columns, ARRIVED, strict=True)], schema=ARRIVED)
        with self._lock:
            self.pieces.append(piece)
            for message in messages:
                if message.offset() >= self._ends.get(message.partition(), 0):
                    self._ends[message.partition()] = message.offset() + 1
                    self._records += 1
            self._count(self._records)
            if self._records >= self._expected:
                self._loop.call_soon_threadsafe(self.finished.set)

    def _is_news(self, error: KafkaError | None) -> bool:
        """What is no record is news of something that librdkafka tries again, unless it is fatal."""
        if error is None:
            return False
        check(not error.fatal(), f"a member of {self._name} can not go on: {error}")
        note(f"a member of {self._name} was told: {error}")
        return True
