"""What any client publishes, any other reads as it was: each codec, headers, nulls and times."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seaweedmq.codec.murmur2 import partition_of
from tests.integration.kafka import aiokafka_client, confluent_client, elsewhere, kafka_python_client
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.records import APPEND_TIME, CODECS, CREATE_TIME, Read, Sent, of_every_kind

pytestmark = pytest.mark.integration

MODULES = {
    "librdkafka": confluent_client,
    "librdkafka 2.0": confluent_client,
    "aiokafka": aiokafka_client,
    "kafka-python": kafka_python_client,
}
ELSEWHERE = {"librdkafka 2.0", "kafka-python"}
"""Those that are no part of the environment, or compress with what is none."""
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
    """One of the clients, wherever it runs."""

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


@pytest.fixture
def client(kafka: Kafka, request: pytest.FixtureRequest) -> Callable[[str], Client]:
    """Any of them by name."""

    def client(name: str) -> Client:
        others = request.getfixturevalue("others") if name in ELSEWHERE else None
        return Client(name, kafka.bootstrap, others)

    return client


@pytest.mark.parametrize("name", CLIENTS)
def test_what_a_client_publishes_is_read_as_it_was_by_all(
    client: Callable[[str], Client], create: Callable[..., str], name: str
) -> None:
    topic = create()
    publisher = client(name)
    sent: list[Sent] = []
    for codec in CODECS:
        records = [record for record in of_every_kind(codec.encode()) if can_send(name, record)]
        settings = {"enable.idempotence": codec == "zstd"} if name.startswith("librdkafka") else {}
        publisher.publish(topic, records, codec, **settings)
        sent += records
    for other in CLIENTS:
        found = client(other).read(topic, len(sent))
        assert [record.sent for record in found] == sent, other
        assert [record.offset for record in found] == list(range(len(sent)))
        assert {record.timestamp_type for record in found} == {CREATE_TIME}


@pytest.mark.parametrize("codec", CODECS)
def test_a_broker_may_give_its_own_time(
    client: Callable[[str], Client], create: Callable[..., str], codec: str
) -> None:
    topic = create(message_timestamp_type="LogAppendTime")
    began_ms = time.time_ns() // 1_000_000
    client("librdkafka").publish(topic, of_every_kind(b"x"), codec)
    ended_ms = time.time_ns() // 1_000_000
    for other in ("librdkafka", "aiokafka"):
        found = client(other).read(topic, len(of_every_kind(b"x")))
        assert {record.timestamp_type for record in found} == {APPEND_TIME}
        assert all(began_ms - 50 <= record.timestamp_ms <= ended_ms + 50 for record in found)
        assert [record[2:5] for record in found] == [record[:3] for record in of_every_kind(b"x")]


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
    client: Callable[[str], Client], create: Callable[..., str], name: str, settings: dict[str, str]
) -> None:
    topic = create(PARTITIONS)
    client(name).publish(topic, [Sent(key, b"x") for key in KEYS], **settings)
    found = client("librdkafka").read(topic, len(KEYS), PARTITIONS)
    wrong = {
        record.key: record.partition for record in found if record.partition != partition_of(record.key, PARTITIONS)
    }
    assert not wrong
    assert sorted(record.key for record in found) == sorted(KEYS)
