"""Manual offsets: committed with and without members, sought by number and by time; and clear errors for the others."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.integration.kafka import confluent_client
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.records import T0_MS, TIMEOUT_S, Sent

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

pytestmark = pytest.mark.integration

COUNT = 10


@pytest.fixture
def topic(kafka: Kafka, create: Callable[..., str]) -> str:
    """Ten records, a second apart, in the only partition."""
    name = create()
    records = [Sent(None, b"%d" % n, (), T0_MS + 1_000 * n) for n in range(COUNT)]
    for half in (records[:5], records[5:]):
        confluent_client.publish(kafka.bootstrap, name, half)
    return name


@contextmanager
def consumer(kafka: Kafka, group: str, **settings: object) -> Iterator[Consumer]:
    """A consumer that commits only on request."""
    found = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        | {"auto.offset.reset": "earliest"}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    with closing(found):
        yield found


def values(reader: Consumer, count: int) -> list[bytes]:
    """Return the values of the next records."""
    found = reader.consume(count, TIMEOUT_S)
    assert [message.error() for message in found] == [None] * count
    return [message.value() for message in found]


def test_librdkafka_without_members_commits_and_finds_its_offsets_again(kafka: Kafka, topic: str) -> None:
    group = f"alone-{topic}"
    with consumer(kafka, group) as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert values(reader, 4) == [b"0", b"1", b"2", b"3"]
        (said,) = reader.commit(asynchronous=False)
        assert (said.error, said.offset) == (None, 4)
    with consumer(kafka, group) as reader:
        (found,) = reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert found.offset == 4
        reader.assign([TopicPartition(topic, 0)])
        assert values(reader, 1) == [b"4"]
        metadata = TopicPartition(topic, 0, 9, "manual")
        reader.commit(offsets=[metadata], asynchronous=False)
        (found,) = reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert (found.offset, found.metadata) == (9, "manual")


def test_a_member_commits_by_hand_and_no_further(kafka: Kafka, topic: str) -> None:
    group = f"by-hand-{topic}"
    with consumer(kafka, group) as reader:
        reader.subscribe([topic])
        message = None
        while message is None:
            message = reader.poll(TIMEOUT_S)
        assert values(reader, 5) == [b"1", b"2", b"3", b"4", b"5"]
        reader.commit(message, asynchronous=False)
        values(reader, 4)
    with consumer(kafka, group) as reader:
        reader.subscribe([topic])
        assert values(reader, 1) == [b"1"], "only the first was committed"


def test_seeking_times_and_watermarks(kafka: Kafka, topic: str) -> None:
    with consumer(kafka, "seeks") as reader:
        partition = TopicPartition(topic, 0)
        assert reader.get_watermark_offsets(partition, TIMEOUT_S) == (0, COUNT)
        reader.assign([TopicPartition(topic, 0, 5)])
        assert values(reader, 1) == [b"5"]
        reader.seek(TopicPartition(topic, 0, 2))
        assert values(reader, 2) == [b"2", b"3"]
        assert [p.offset for p in reader.position([partition])] == [4]
        for time_ms, offset in ((T0_MS, 0), (T0_MS + 2_500, 3), (T0_MS + 9_000, 9), (T0_MS + 9_001, -1), (0, 0)):
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, time_ms)], TIMEOUT_S)
            assert found.offset == offset, time_ms
    with closing(KafkaConsumer(bootstrap_servers=kafka.bootstrap.split(","))) as python:
        partition = PythonPartition(topic, 0)
        assert python.beginning_offsets([partition]) == {partition: 0}
        assert python.end_offsets([partition]) == {partition: COUNT}
        found = python.offsets_for_times({partition: T0_MS + 2_500})[partition]
        assert (found.offset, found.timestamp) == (3, T0_MS + 3_000)


def test_an_offset_that_is_out_of_range_goes_where_the_consumer_wants_it(kafka: Kafka, topic: str) -> None:
    with consumer(kafka, "far") as reader:
        reader.assign([TopicPartition(topic, 0, 1_000)])
        assert values(reader, 1) == [b"0"]
    with consumer(kafka, "far", auto_offset_reset="error") as reader:
        reader.assign([TopicPartition(topic, 0, 1_000)])
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        assert message.error().name() == "_AUTO_OFFSET_RESET"


def test_librdkafka_is_told_at_once_that_there_are_no_transactions(kafka: Kafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t", "log_level": 0})
    with pytest.raises(KafkaException, match="transactions are not supported yet: use a producer without") as refused:
        producer.init_transactions(TIMEOUT_S)
    assert refused.value.args[0].fatal()
