"""Publisher and reader with librdkafka through confluent-kafka, in any version."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.integration.kafka.records import TIMEOUT_S, Read, Sent

QUIET = {"log_level": 0, "socket.timeout.ms": 10_000}


def publish(bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none", **settings: Any) -> None:
    producer = Producer(
        QUIET
        | {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
        | {"topic.metadata.refresh.fast.interval.ms": 50}
        | settings
    )
    refused: list[KafkaError] = []

    def heard(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=heard,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not refused, refused


def read(bootstrap: str, topic: str, count: int, partitions: int = 1, **settings: Any) -> list[Read]:
    """Return the first records of a topic, in the order of their arrival."""
    consumer = Consumer(
        QUIET | {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False} | settings
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[Read] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records were read"
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            kind, stamp = message.timestamp()
            found.append(
                Read(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    stamp,
                    kind - 1,
                )
            )
    consumer.close()
    return found
