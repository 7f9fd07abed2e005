"""Publisher and reader with kafka-python. It compresses with the codecs installed beside it."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

from tests.integration.kafka.records import TIMEOUT_S, Read, Sent

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def publish(bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none", **settings: Any) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        enable_idempotence=True,
        **settings,
    )
    try:
        futures = [
            producer.send(topic, record.value, record.key, list(record.headers), timestamp_ms=record.timestamp_ms)
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        for future in futures:
            future.get(0)
    finally:
        producer.close(TIMEOUT_S)


def read(bootstrap: str, topic: str, count: int, partitions: int = 1, **settings: Any) -> list[Read]:
    """Return the first records of a topic, in the order of their arrival."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), **settings)
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        consumer.seek_to_beginning()
        found: list[Read] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records were read"
            for records in consumer.poll(200, max_records=count - len(found)).values():
                found += [
                    Read(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp, r.timestamp_type)
                    for r in records
                ]
        return found
    finally:
        consumer.close()
