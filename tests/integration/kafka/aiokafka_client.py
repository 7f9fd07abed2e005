"""Publisher and reader with aiokafka, in an event loop of its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.integration.kafka.records import TIMEOUT_S, Read, Sent


def publish(bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none", **settings: Any) -> None:
    asyncio.run(_publish(bootstrap, topic, records, None if codec == "none" else codec, settings))


async def _publish(
    bootstrap: str, topic: str, records: Sequence[Sent], codec: str | None, settings: dict[str, Any]
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20, enable_idempotence=True, **settings
    )
    async with asyncio.timeout(TIMEOUT_S), producer:
        futures = [
            await producer.send(
                topic, record.value, record.key, headers=list(record.headers), timestamp_ms=record.timestamp_ms
            )
            for record in records
        ]
        for future in futures:
            await future


def read(bootstrap: str, topic: str, count: int, partitions: int = 1, **settings: Any) -> list[Read]:
    """Return the first records of a topic, in the order of their arrival."""
    return asyncio.run(_read(bootstrap, topic, count, partitions, settings))


async def _read(bootstrap: str, topic: str, count: int, partitions: int, settings: dict[str, Any]) -> list[Read]:
    found: list[Read] = []
    async with asyncio.timeout(TIMEOUT_S), AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        await consumer.seek_to_beginning()
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=200, max_records=count - len(found))).values():
                found += [
                    Read(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp, r.timestamp_type)
                    for r in records
                ]
    return found
