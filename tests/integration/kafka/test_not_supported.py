"""Errors that librdkafka gets for unsupported features, as in the README. Transactions are in test_offsets.py."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.integration.kafka.conftest import TIMEOUT_S, Kafka

pytestmark = pytest.mark.integration


def first_complaint(kafka: Kafka, wanted: str, **settings: str) -> KafkaError | None:
    """Return a producer's first error about its connections with these words; None if there is none in time."""
    told: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "error_cb": told.append, "log_level": 0}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        producer.poll(0.1)
        for error in told:
            if wanted in error.str():
                return error
    return None


def test_who_wants_sasl_is_told_that_there_is_none(kafka: Kafka) -> None:
    plain = {"sasl_mechanism": "PLAIN", "sasl_username": "somebody", "sasl_password": "something"}
    told = first_complaint(kafka, "SASL Handshake not supported by broker", security_protocol="SASL_PLAINTEXT", **plain)
    assert told is not None


def test_who_wants_tls_is_closed_and_the_log_says_why(kafka: Kafka) -> None:
    assert first_complaint(kafka, "SSL handshake failed", security_protocol="SSL") is not None
    assert "the client speaks TLS: set its security.protocol" in (kafka.data.parent / "up.log").read_text()


def test_who_wants_the_new_group_protocol_is_told_at_once_and_classic_is_served(
    kafka: Kafka, create: Callable[..., str]
) -> None:
    topic = create()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(TIMEOUT_S) == 0

    def read(protocol: str) -> Message:
        group = {"group.id": f"{protocol}-{topic}", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **group})) as consumer:
            consumer.subscribe([topic])
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "there is no message"
            return message

    error = read("consumer").error()
    assert error is not None
    assert error.code() == KafkaError._FATAL  # noqa: SLF001 - the name that it has
    assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in error.str()
    assert read("classic").value() == b"one"
