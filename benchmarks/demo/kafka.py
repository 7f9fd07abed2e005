"""Kafka side of the demo: librdkafka publishes, and a group of its consumers reads. All of it runs in threads.

Kafka promises a group every record at least once. A member that keeps its partitions continues at its position,
even if brokers fail. A member that takes over a partition begins at the last committed offset, and receives the
records in between again. So without a rebalance, no record may arrive twice.
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
"""Callback with the current count."""

COMMON = {"log_level": 2, "error_cb": lambda _: None}
"""Settings of all clients: librdkafka reports every lost broker, in its log and to this callback.

Errors that it cannot recover from show as missing records.
"""
PUBLISHER = {
    **COMMON,
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as SeaweedMQ's publishers and Kafka's Java client do
    "compression.type": "lz4",
    "linger.ms": 5,
}
MEMBER = {**COMMON, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
POLL_S = 0.1
TOLD_EVERY = 1_000
QUEUED_MAX = 20_000
"""Maximum number of records that librdkafka has not sent, or that are unacknowledged."""
CONSUMED_MAX = 2_000
"""Maximum number of records that a member takes at once."""
REQUEST_S = 20.0


def publish(servers: str, topic: str, records: pa.Table, count: Count, given_up: threading.Event) -> None:
    """Publish ``_key`` and ``_value`` of all rows and wait for their outcomes, unless given up.

    Raises:
        DemoFailed: If a record was rejected, or never acknowledged.
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
    check(not refused, f"{len(refused)} of librdkafka's records were rejected: {refused and refused[0]}")
    check(len(producer) == 0, f"{len(producer)} of librdkafka's records are not acknowledged")


class KafkaGroup:
    """A group of consumers that share the partitions of a topic and read until stopped."""

    def __init__(
        self, servers: str, topic: str, name: str, *, members: int, partitions: int, expected: int, count: Count
    ) -> None:
        """Create a group; ``expected`` is the number of records, and ``count`` is called in the members' threads."""
        self._servers = {**COMMON, "bootstrap.servers": servers}
        self._topic = topic
        self._name = name
        self._partitions = partitions
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._shares: list[Sequence[int]] = [()] * members
        self._ends: dict[int, int] = {}
        """Offset after the last received record of every partition."""
        self._records = 0
        self._expected = expected
        self.complete = asyncio.Event()
        """Event set once every member has partitions."""
        self.finished = asyncio.Event()
        """Event set once the members have received the expected number of different records."""
        self.pieces: list[pa.Table] = []
        """Records in the order of arrival; see ``ARRIVED``."""
        self.rebalances = 0
        """Number of rebalances since the group was complete."""

    async def read(self, over: threading.Event, given_up: threading.Event) -> None:
        """Read until over or given up.

        Raises:
            DemoFailed: If a member cannot continue.
        """
        members = range(len(self._shares))
        await asyncio.gather(*(in_thread(partial(self._member, member, over, given_up)) for member in members))

    def coordinator(self) -> str:
        """Return ``host:port`` of the group's coordinator."""
        admin = AdminClient(self._servers)  # it has to live until it has answered
        described = admin.describe_consumer_groups([self._name], request_timeout=REQUEST_S)
        node = described[self._name].result(REQUEST_S).coordinator
        return f"{node.host}:{node.port}"

    def committed(self) -> int:
        """Return the sum of the group's committed offsets over all partitions."""
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
            consumer.close()  # commits, and leaves the group, which waits for a coordinator

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
        """Whether the message is an error that librdkafka retries; raises DemoFailed if it is fatal."""
        if error is None:
            return False
        check(not error.fatal(), f"a member of {self._name} cannot continue: {error}")
        note(f"a member of {self._name} reports: {error}")
        return True
