"""``produce`` and ``produce_batch``; ``consume`` of 10,000 messages at a time, which is faster than ``poll``."""

import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.contest.client import FLUSH_TIMEOUT_S, IDLE_TIMEOUT_S, LINGER_LATENCY_S, Client, Tally, Topic
from benchmarks.contest.errors import Failed, Unacknowledged
from benchmarks.contest.feed import Chunk, Feed, Schedule
from benchmarks.contest.watch import Watch

Settings = dict[str, Any]
PRODUCER: Settings = {
    "acks": "all",
    "compression.type": "none",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 65_536,
    "delivery.report.only.error": True,
}
"""The queue is as large as SeaweedMQ's; a larger one is slower, as its memory is touched for the first time.

There is no report for each record, as SeaweedMQ's futures cost nothing unless kept; ``flush`` waits for all of them,
and the broker's end offsets are compared at the end."""
STATISTICS_MS = 500
"""Interval of librdkafka's statistics, which report the id of an idempotent producer."""
IDEMPOTENT: Settings = {"enable.idempotence": True, "statistics.interval.ms": STATISTICS_MS}
"""Settings of Java's default producer, as SeaweedMQ's always is: stored once and in order, in spite of retries."""
PROMPT: Settings = {"linger.ms": LINGER_LATENCY_S * 1_000}
ON_SYNCING_SERVER: Settings = {"max.in.flight": 5}
"""With the default, any number of requests in flight, every small batch would be synced separately."""
CONSUMER: Settings = {
    "group.id": "peers",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 8_388_608,
    "fetch.queue.backoff.ms": 10,
}
"""With the default backoff, 1,000, a consumer that gets ahead of its queue waits most of the time: 150,000 records/s
where these settings have 1,150,000."""
CONSUME_RECORDS = 10_000
TIMEOUT_S = 30.0
FULL_WAIT_S = 0.005
"""Seconds to wait for room in a full queue."""


class KafkaClient(Client):
    """librdkafka through confluent-kafka."""

    not_ready = (KafkaException,)
    call_bytes = {"produce_batch": 1_000_000}

    def __init__(self, address: str, *, fsync: bool) -> None:
        self._servers: Settings = {"bootstrap.servers": address}
        self._producer_settings = self._servers | PRODUCER | (ON_SYNCING_SERVER if fsync else {})
        self._admin = AdminClient(self._servers)

    def close(self) -> None:
        """Do nothing: no connection stays open between calls."""

    def create(self, topics: Sequence[Topic]) -> None:
        """Create all topics in one request, as the API permits."""
        wanted = [NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=1) for topic in topics]
        for future in self._admin.create_topics(wanted, operation_timeout=TIMEOUT_S).values():
            future.result()

    def delete(self, topics: Sequence[Topic]) -> None:
        for future in self._admin.delete_topics([topic.name for topic in topics], operation_timeout=TIMEOUT_S).values():
            future.result()

    def stored(self, topics: Sequence[Topic]) -> int:
        consumer = Consumer(self._servers | CONSUMER)
        try:
            return sum(_end(consumer, topic) for topic in topics)
        finally:
            consumer.close()

    def publish(self, call: str, topic: Topic, feed: Feed, watch: Watch) -> None:
        producer, errors = self._producer([topic], IDEMPOTENT if call == "produce, idempotent" else {})
        publish = _produce_batch if call == "produce_batch" else _produce
        with watch:
            for chunk in feed:
                publish(producer, topic, chunk)
            left = producer.flush(FLUSH_TIMEOUT_S)
        _check(left, errors)

    def consume(self, call: str, topic: Topic) -> Tally:
        """Consume without requesting more records than there are, since it would wait for them."""
        records = value_bytes = 0
        consumer = Consumer(self._servers | CONSUMER)
        try:
            end = _end(consumer, topic)
            _from_beginning(consumer, topic)
            while records < end:
                messages = consumer.consume(min(CONSUME_RECORDS, end - records), IDLE_TIMEOUT_S)
                if not messages:
                    break
                value_bytes += sum(len(_value(message)) for message in messages)
                records += len(messages)
        finally:
            consumer.close()
        return Tally(records, value_bytes)

    def send(self, topics: Sequence[Topic], schedule: Schedule, watch: Watch) -> None:
        producer, errors = self._producer(topics, PROMPT)
        names = itertools.cycle([topic.name for topic in topics])
        with watch:
            for records in schedule:
                for record in records:
                    producer.produce(next(names), record)
                producer.poll(0)
            left = producer.flush(FLUSH_TIMEOUT_S)
        _check(left, errors)

    def receive(self, topic: Topic, count: int, ready: Callable[[], None], take: Callable[[bytes], None]) -> None:
        consumer = Consumer(self._servers | CONSUMER)
        try:
            _from_beginning(consumer, topic)
            consumer.poll(1.0)  # opens the connection; the topic is empty
            ready()
            for _ in range(count):
                message = consumer.poll(IDLE_TIMEOUT_S)
                if message is None:
                    return
                take(_value(message))
        finally:
            consumer.close()

    def _producer(self, topics: Sequence[Topic], settings: Settings) -> tuple[Producer, list[Any]]:
        """Open a producer that knows the topics and has its id; return it with the list of its delivery errors."""
        errors: list[Any] = []
        idempotence = _Idempotence()
        callbacks = {"on_delivery": lambda error, _: errors.append(error), "stats_cb": idempotence.hear}
        producer = Producer(self._producer_settings | settings | callbacks)
        for topic in topics:
            producer.list_topics(topic.name, timeout=TIMEOUT_S)
        if "enable.idempotence" in settings:
            idempotence.wait(producer)
        return producer, errors


class _Idempotence:
    """A wait until a producer has the id without which it sends nothing, so that this is not part of publishing."""

    def __init__(self) -> None:
        self._assigned = False

    def hear(self, statistics: str) -> None:
        """Receive librdkafka's statistics."""
        if not self._assigned:
            self._assigned = json.loads(statistics)["eos"]["idemp_state"] == "Assigned"

    def wait(self, producer: Producer) -> None:
        """Wait for the id. Raises Failed if it does not arrive."""
        end = time.monotonic() + TIMEOUT_S
        while not self._assigned:
            if time.monotonic() > end:
                raise Failed(f"an idempotent producer has no id after {TIMEOUT_S:.0f} s")
            producer.poll(STATISTICS_MS / 1_000)


def _produce(producer: Producer, topic: Topic, chunk: Chunk) -> None:
    name, produce = topic.name, producer.produce
    keys: Iterable[bytes | None] = chunk.keys if topic.keyed else itertools.repeat(None, len(chunk.values))
    for value, key in zip(chunk.values, keys, strict=True):
        while True:
            try:
                produce(name, value, key)
                break
            except BufferError:
                producer.poll(FULL_WAIT_S)
    producer.poll(0)


def _produce_batch(producer: Producer, topic: Topic, chunk: Chunk) -> None:
    messages: list[dict[str, Any]]
    if topic.keyed:
        messages = [{"value": value, "key": key} for value, key in zip(chunk.values, chunk.keys, strict=True)]
    else:
        messages = [{"value": value} for value in chunk.values]
    while producer.produce_batch(topic.name, messages) < len(messages):
        messages = [message for message in messages if message.pop("_error", None) is not None]
        producer.poll(FULL_WAIT_S)


def _check(left: int, errors: Sequence[Any]) -> None:
    if left or errors:
        raise Unacknowledged(f"{left} records are not acknowledged, {len(errors)} failed: {errors[:1]}")


def _from_beginning(consumer: Consumer, topic: Topic) -> None:
    consumer.assign([TopicPartition(topic.name, number, OFFSET_BEGINNING) for number in range(topic.partitions)])


def _end(consumer: Consumer, topic: Topic) -> int:
    """Return the number of records of all partitions together."""
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    return sum(consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)[1] for partition in partitions)


def _value(message: Any) -> bytes:
    if message.error() is not None:
        raise KafkaException(message.error())
    value: bytes = message.value()
    return value
