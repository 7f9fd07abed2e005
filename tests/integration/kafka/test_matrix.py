"""Every client reads the records of every other unchanged: each codec, headers, nulls and times."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka import aiokafka_client, confluent_client, elsewhere, kafka_python_client
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.records import APPEND_TIME, CODECS, CREATE_TIME, Read, Sent, of_every_kind
from tests.support.kafka_wire import partition_of

pytestmark = pytest.mark.integration

MODULES = {
    "librdkafka": confluent_client,
    "librdkafka 2.0": confluent_client,
    "aiokafka": aiokafka_client,
    "kafka-python": kafka_python_client,
}
CLIENTS = tuple(MODULES)
PARTITIONS = 7
KEYS = [b"key %d" % number for number in range(150)] + [b"", b"\x00\xff" * 9]


def can_send(name: str, record: Sent) -> bool:
    """Some clients refuse a record with neither key nor value, and headers without value."""
    match name:
        case "aiokafka":
            return record[:2] != (None, None)
        case "kafka-python":
            return record[:2] != (None, None) and all(value is not None for _, value in record.headers)
    return True


class Client:
    """One of the clients, in any process."""

    def __init__(self, name: str, bootstrap: str, others: Path | None) -> None:
        self._module = MODULES[name]
        self._bootstrap = bootstrap
        self._others = others

    def publish(self, topic: str, records: list[Sent], codec: str = "none", **settings: Any) -> None:
        self._call("publish", topic, records, codec, **settings)

    def read(self, topic: str, count: int, partitions: int = 1, **settings: Any) -> list[Read]:
        found: list[Read] = self._call("read", topic, count, partitions, **settings)
        return found

    def _call(self, function: str, *arguments: Any, **settings: Any) -> Any:
        if self._others is None:
            return getattr(self._module, function)(self._bootstrap, *arguments, **settings)
        return elsewhere.call(self._others, self._module.__name__, function, self._bootstrap, *arguments, **settings)


Clients = Callable[[str], Client]
"""Return any client by name; one that cannot be installed skips the test."""


@pytest.fixture(scope="module")
def client(kafka: Kafka, others: Callable[[str], Path]) -> Clients:
    def client(name: str) -> Client:
        return Client(name, kafka.bootstrap, others(name) if name in elsewhere.PACKAGES else None)

    return client


@pytest.fixture(scope="module")
def of_all_codecs(client: Clients, create: Callable[..., str]) -> Callable[[str], tuple[str, list[Sent]]]:
    """Return a topic with the records of a client, and these. It publishes once, for all readers."""

    @functools.cache
    def published(name: str) -> tuple[str, list[Sent]]:
        publisher, topic, sent = client(name), create(), list[Sent]()
        for codec in CODECS:
            records = [record for record in of_every_kind(codec.encode()) if can_send(name, record)]
            settings = {"enable.idempotence": codec == "zstd"} if name.startswith("librdkafka") else {}
            publisher.publish(topic, records, codec, **settings)
            sent += records
        return topic, sent

    return published


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("publisher", CLIENTS)
def test_what_a_client_publishes_is_read_as_it_was(
    client: Clients, of_all_codecs: Callable[[str], tuple[str, list[Sent]]], publisher: str, reader: str
) -> None:
    topic, sent = of_all_codecs(publisher)
    found = client(reader).read(topic, len(sent))
    assert [record.sent for record in found] == sent
    assert [record.offset for record in found] == list(range(len(sent)))
    assert {record.timestamp_type for record in found} == {CREATE_TIME}


@pytest.fixture(scope="module")
def of_the_brokers_time(client: Clients, create: Callable[..., str]) -> Callable[[str], tuple[str, list[Sent], range]]:
    """Return a topic whose records have the broker's time, its records, and their time."""

    @functools.cache
    def published(codec: str) -> tuple[str, list[Sent], range]:
        topic, sent = create(message_timestamp_type="LogAppendTime"), of_every_kind(b"x")
        began_ms = time.time_ns() // 1_000_000
        client("librdkafka").publish(topic, sent, codec)
        return topic, sent, range(began_ms - 50, time.time_ns() // 1_000_000 + 51)

    return published


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_broker_may_give_its_own_time(
    client: Clients, of_the_brokers_time: Callable[[str], tuple[str, list[Sent], range]], codec: str, reader: str
) -> None:
    topic, sent, when_ms = of_the_brokers_time(codec)
    found = client(reader).read(topic, len(sent))
    assert {record.timestamp_type for record in found} == {APPEND_TIME}
    assert all(record.timestamp_ms in when_ms for record in found)
    assert [record[2:5] for record in found] == [record[:3] for record in sent]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("aiokafka", {}),
        ("kafka-python", {}),
        ("librdkafka", {"partitioner": "murmur2_random"}),
        ("librdkafka 2.0", {"partitioner": "murmur2_random"}),
    ],
)
def test_a_key_is_where_javas_client_would_put_it(
    client: Clients, create: Callable[..., str], name: str, settings: dict[str, str]
) -> None:
    topic = create(PARTITIONS)
    client(name).publish(topic, [Sent(key, b"x") for key in KEYS], **settings)
    found = client("librdkafka").read(topic, len(KEYS), PARTITIONS)
    wrong = {
        record.key: record.partition for record in found if record.partition != partition_of(record.key, PARTITIONS)
    }
    assert not wrong
    assert sorted(record.key for record in found) == sorted(KEYS)
