"""``send``, ``send_table``, messages and batches. Topics do not split by themselves, as the other systems' do not."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

import seaweedmq
from benchmarks.contest.client import FLUSH_TIMEOUT_S, IDLE_TIMEOUT_S, LINGER_LATENCY_S, Client, Tally, Topic
from benchmarks.contest.feed import Feed, Schedule
from benchmarks.contest.watch import Watch
from seaweedmq.errors import SeaweedMQError


class SeaweedClient(Client):
    """The client library, with its defaults."""

    not_ready = (SeaweedMQError,)
    call_bytes = {"send_table": 16_000_000}

    def __init__(self, address: str, *, fsync: bool) -> None:
        self._client = seaweedmq.connect(address)
        self._durability = "stored" if fsync else "replicated"

    def close(self) -> None:
        self._client.close()

    def create(self, topics: Sequence[Topic]) -> None:
        for partitions, alike in itertools.groupby(topics, key=lambda topic: topic.partitions):
            names = [_name(topic) for topic in alike]
            self._client.admin.create_topics(names, segments=partitions, durability=self._durability, scaling="fixed")

    def delete(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._client.admin.delete_topic(_name(topic))

    def stored(self, topics: Sequence[Topic]) -> int:
        stats = itertools.chain.from_iterable(self._client.admin.topic_stats(_name(topic)) for topic in topics)
        return sum(segment.high_watermark for segment in stats)

    def publish(self, call: str, topic: Topic, feed: Feed, watch: Watch) -> None:
        with self._client.publisher(_name(topic)) as publisher:
            publish = _send_tables if call == "send_table" else _send
            publish(publisher, topic, feed, watch)

    def consume(self, call: str, topic: Topic) -> Tally:
        records = value_bytes = 0
        with self._client.subscriber(_name(topic), start="earliest", stop_at="latest") as subscriber:
            if call == "batches":
                for batch in subscriber.batches():
                    records += batch.num_rows
                    value_bytes += _value_bytes(batch.column("_value"))
            else:
                for message in subscriber:
                    records += 1
                    value_bytes += len(message.value)
        return Tally(records, value_bytes)

    def send(self, topics: Sequence[Topic], schedule: Schedule, watch: Watch) -> None:
        publishers = [self._client.publisher(_name(topic), linger_s=LINGER_LATENCY_S) for topic in topics]
        sends = itertools.cycle([publisher.send for publisher in publishers])
        with watch:
            for records in schedule:
                for record in records:
                    next(sends)(record)
            for publisher in publishers:
                publisher.flush(timeout=FLUSH_TIMEOUT_S)

    def receive(self, topic: Topic, count: int, ready: Callable[[], None], take: Callable[[bytes], None]) -> None:
        with self._client.subscriber(_name(topic), start="earliest", limit=count, timeout=IDLE_TIMEOUT_S) as subscriber:
            ready()
            for message in subscriber:
                take(message.value)


def _send(publisher: "seaweedmq.Publisher", topic: Topic, feed: Feed, watch: Watch) -> None:
    send = publisher.send
    with watch:
        for chunk in feed:
            if topic.keyed:
                for value, key in zip(chunk.values, chunk.keys, strict=True):
                    send(value, key=key)
            else:
                for value in chunk.values:
                    send(value)
        publisher.flush(timeout=FLUSH_TIMEOUT_S)


def _send_tables(publisher: "seaweedmq.Publisher", topic: Topic, feed: Feed, watch: Watch) -> None:
    """Build the tables before the clock runs: users of this call have tables."""
    columns = ["_value", "_key"] if topic.keyed else ["_value"]
    tables = {
        id(chunk): pa.table({"_value": chunk.values, "_key": chunk.keys}).select(columns) for chunk in feed.chunks
    }
    with watch:
        for chunk in feed:
            publisher.send_table(tables[id(chunk)])
        publisher.flush(timeout=FLUSH_TIMEOUT_S)


def _value_bytes(column: pa.BinaryArray) -> int:
    """Return the size of all values, from the first and the last offset."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return int(offsets[column.offset + len(column)] - offsets[column.offset])


def _name(topic: Topic) -> str:
    return f"peers/{topic.name}"
