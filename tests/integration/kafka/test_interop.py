"""Kafka clients and SeaweedMQ's own on the same topics: each reads the other's records, and files have them all."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import ModuleType

import pyarrow as pa
import pyarrow.dataset
import pytest

import seaweedmq
from tests.integration.kafka import aiokafka_client, confluent_client, kafka_python_client
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.members import Member, until
from tests.integration.kafka.records import CODECS, T0_MS, TIMEOUT_S, Sent, of_every_kind
from tests.support.kafka_wire import partition_of

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
PARTITIONS = 4
"""Partitions of an automatically created topic."""
KEYS = [b"key-%d" % number for number in range(20)]
SENT = [record for codec in CODECS for record in of_every_kind(codec.encode())]


@pytest.fixture(scope="module")
def published(kafka: Kafka) -> str:
    """A topic with every kind of record of a Kafka client, in every codec, and created by its first use."""
    topic = "published"
    for codec in CODECS:
        confluent_client.publish(kafka.bootstrap, topic, of_every_kind(codec.encode()), codec, partitioner="murmur2")
    return topic


def natively(message: seaweedmq.Message) -> Sent:
    """A message as its publisher passed it."""
    pairs = tuple(message.header_pairs or ())
    return Sent(message.key, message.value, pairs, message.timestamp_us // 1_000)


def test_a_native_subscriber_reads_what_kafkas_clients_wrote(native: seaweedmq.Client, published: str) -> None:
    with native.subscriber(f"kafka/{published}", start="earliest", stop_at="latest") as subscriber:
        messages = list(subscriber)
    assert sorted(map(repr, map(natively, messages))) == sorted(map(repr, SENT))
    of_one_key = [message.value for message in messages if message.key == b"many"]
    assert of_one_key == [record.value for record in SENT if record.key == b"many"], "and in order"


def table_of(kafka: Kafka, topic: str, count: int) -> pa.Table:
    """Return what any reader of Parquet sees, once it is complete."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        files = sorted(kafka.table(topic).glob("*.parquet"))
        table = pyarrow.dataset.dataset(files).to_table() if files else None
        if table is not None and table.num_rows >= count:
            return table
        assert time.monotonic() < deadline, f"{table and table.num_rows} of {count} rows are in tables"
        time.sleep(0.1)


def test_plain_parquet_has_what_kafkas_clients_wrote(kafka: Kafka, published: str) -> None:
    table = table_of(kafka, published, len(SENT))
    keyed = [row for row in table.select(["_key", "_partition"]).to_pylist() if row["_key"]]
    assert all(row["_partition"] == partition_of(row["_key"], PARTITIONS) for row in keyed)
    columns = [table.column(name).to_pylist() for name in ("_key", "_value", "_headers")]
    stamps = table.column("_timestamp").cast(pa.int64()).to_pylist()
    found = [Sent(k, v, tuple(h or ()), t // 1_000) for k, v, h, t in zip(*columns, stamps, strict=True)]
    assert sorted(map(repr, found)) == sorted(map(repr, SENT))


def test_kafkas_clients_read_what_natives_sent(
    kafka: Kafka, native: seaweedmq.Client, create: Callable[..., str]
) -> None:
    topic = create()
    sent = [Sent(b"k%d" % n, b"v%d" % n, (("n", b"%d" % n),), T0_MS + n) for n in range(50)]
    rows = [Sent(b"t%d" % n if n % 3 else None, b"row %d" % n, (), T0_MS + n) for n in range(5_000)]
    with native.publisher(f"kafka/{topic}") as publisher:
        for record in sent:
            headers = {name: value or b"" for name, value in record.headers}
            stamp = record.timestamp_ms * 1_000 + 999
            publisher.send(record.value or b"", key=record.key, headers=headers, timestamp=stamp)
        publisher.flush()
        table = pa.table(
            {
                "_key": pa.array([row.key for row in rows], pa.binary()),
                "_value": pa.array([row.value for row in rows], pa.binary()),
                "_timestamp": pa.array([row.timestamp_ms * 1_000 for row in rows], pa.timestamp("us", "UTC")),
            }
        )
        publisher.send_table(table).result(TIMEOUT_S)
    for client in (confluent_client, aiokafka_client, kafka_python_client):
        found = client.read(kafka.bootstrap, topic, len(sent) + len(rows))
        assert [record.sent for record in found] == sent + rows, client.__name__
        assert [record.offset for record in found] == list(range(len(found)))


def test_in_a_topic_that_both_write_and_read_each_key_is_in_order(
    kafka: Kafka, native: seaweedmq.Client, create: Callable[..., str]
) -> None:
    topic = create(5)
    member = Member("librdkafka", kafka.bootstrap, "mixed", topic)
    with native.publisher(f"kafka/{topic}") as publisher:

        def by_send(records: Sequence[Sent]) -> None:
            for record in records:
                publisher.send(record.value or b"", key=record.key)
            publisher.flush()

        def by_table(records: Sequence[Sent]) -> None:
            publisher.send_table(pa.table({"_key": [r.key for r in records], "_value": [r.value for r in records]}))
            publisher.flush()

        def by(client: ModuleType, **settings: str) -> Callable[[Sequence[Sent]], None]:
            return lambda records: client.publish(kafka.bootstrap, topic, records, "gzip", **settings)

        writers = [by_send, by(aiokafka_client), by_table, by(kafka_python_client)]
        writers += [by(confluent_client, partitioner="murmur2_random")]
        numbers = iter(range(10_000))
        for write in writers * 2:
            write([Sent(key, b"%d" % next(numbers)) for _ in range(5) for key in KEYS])
    sent = next(numbers)
    until(lambda: len(member.got) == sent, "the Kafka group reads it all")
    member.leave()
    by_partition: dict[int, list[int]] = defaultdict(list)
    for got in member.got:
        by_partition[got.partition].append(int(got.value or b""))
    values: dict[bytes, list[int]] = defaultdict(list)
    places: dict[bytes, set[int]] = defaultdict(set)
    with native.subscriber(f"kafka/{topic}", start="earliest", stop_at="latest") as subscriber:
        for message in subscriber:
            values[message.key].append(int(message.value))
            places[message.key].add(message.partition)
    for key, number in zip(KEYS, range(len(KEYS)), strict=True):
        assert values[key] == list(range(number, sent, len(KEYS)))
        [place] = places[key]
        assert [n for n in by_partition[place] if n % len(KEYS) == number] == values[key]
