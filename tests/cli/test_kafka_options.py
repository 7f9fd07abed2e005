"""Kafka options of a broker: the command rejects bad ones before it starts anything."""

import pytest

from seaweedmq.cli.servers import kafka
from seaweedmq.cli.servers.kafka import check_kafka, open_gateway
from seaweedmq.errors import AlreadyExists, InvalidArgument, Unsupported
from seaweedmq.model.config import BrokerConfig


def test_nobody_is_listened_for_unless_it_is_said() -> None:
    check_kafka(BrokerConfig())
    assert open_gateway(BrokerConfig()) is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kafka_listen": "nonsense"}, "is not HOST:PORT"),
        ({"kafka_listen": "0.0.0.0:9092"}, "name one with --kafka-advertise HOST:PORT"),
        ({"kafka_listen": "127.0.0.1:9092", "kafka_advertise": "x:y"}, "is not HOST:PORT"),
    ],
)
def test_addresses_that_no_client_can_dial_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        check_kafka(BrokerConfig(**settings))  # type: ignore[arg-type]


def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "PACKAGES", ("kafka", "a_package_that_is_not_there"))
    with pytest.raises(Unsupported, match=r'\(a_package_that_is_not_there\): pip install "seaweedmq\[kafka\]"'):
        check_kafka(BrokerConfig(kafka_listen="127.0.0.1:9092"))


async def test_what_is_advertised_is_what_was_told_or_what_was_bound() -> None:
    found = open_gateway(BrokerConfig(kafka_listen="127.0.0.1:0"))
    assert found is not None
    host, _, port = found.address.rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    await found.start((), 1 << 20)
    with pytest.raises(AlreadyExists, match="cannot listen for Kafka on"):
        open_gateway(BrokerConfig(kafka_listen=found.address))
    told = open_gateway(BrokerConfig(kafka_listen="0.0.0.0:0", kafka_advertise="kafka.example:9092"))
    assert told is not None
    assert told.address == "kafka.example:9092"
    await found.stop()
    await told.stop()
