"""Consumer of a group: ``python -m tests.kafka.group_consumer CLIENT BOOTSTRAP GROUP TOPIC [NAME=VALUE]``.

CLIENT is ``librdkafka``, which takes settings, ``kafka-python`` or ``aiokafka``. Prints ``owns P,P,...`` whenever that
changes and ``got PARTITION OFFSET VALUE`` for every record, commits the records, and leaves when its stdin ends.
"""

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka

POLL_S = 0.1
PYTHON_SETTINGS: Mapping[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
}
"""Settings of the clients written in Python."""


class Stop:
    """Flag that is set when stdin ends."""

    def __init__(self) -> None:
        self.is_set = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        sys.stdin.read()
        self.is_set = True


def say(*words: object) -> None:
    print(*words, flush=True)


def owns(partitions: Iterable[int]) -> None:
    say("owns", ",".join(map(str, sorted(partitions))))


def librdkafka(bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            **settings,
        }
    )
    owned: set[int] = set()
    is_cooperative = settings.get("partition.assignment.strategy") == "cooperative-sticky"

    def assigned(_: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        owned.update(p.partition for p in partitions)
        owns(owned)

    def revoked(_: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        owned.difference_update(p.partition for p in partitions)
        if is_cooperative or not owned:
            owns(owned)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    stop = Stop()
    while not stop.is_set:
        messages = [m for m in consumer.consume(500, POLL_S) if m.error() is None]
        for message in messages:
            say("got", message.partition(), message.offset(), message.value().decode())
        if messages:
            commit(consumer)
    consumer.close()


def commit(consumer: confluent_kafka.Consumer) -> None:
    """Commit; retry while there is no coordinator, or the client has not found it."""
    while True:
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if (
                error.args[0].name() not in ("_WAIT_COORD", "_TRANSPORT", "_TIMED_OUT")
                and not error.args[0].retriable()
            ):
                raise
            consumer.consume(0, POLL_S)
        else:
            return


def telling(listener: Any, consumer: Any) -> Any:
    """Return a listener of this class that prints what the consumer owns."""

    class Told(listener):
        def on_partitions_revoked(self, revoked: object) -> None:
            owns(())

        def on_partitions_assigned(self, assigned: object) -> None:
            owns(p.partition for p in consumer.assignment())

    return Told()


def kafka_python(bootstrap: str, group: str, topic: str, _: Mapping[str, str]) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **PYTHON_SETTINGS)

    consumer.subscribe([topic], listener=telling(ConsumerRebalanceListener, consumer))
    stop = Stop()
    while not stop.is_set:
        found = consumer.poll(timeout_ms=int(POLL_S * 1_000))
        for partition, records in found.items():
            for record in records:
                say("got", partition.partition, record.offset, record.value.decode())
        if found:
            consumer.commit()
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, _: Mapping[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    async def run() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **PYTHON_SETTINGS)

        consumer.subscribe([topic], listener=telling(ConsumerRebalanceListener, consumer))
        await consumer.start()
        stop = Stop()
        while not stop.is_set:
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
            for partition, records in found.items():
                for record in records:
                    say("got", partition.partition, record.offset, record.value.decode())
            if found:
                await consumer.commit()
        await consumer.stop()

    asyncio.run(run())


CLIENTS = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    client, bootstrap, group, topic, *settings = sys.argv[1:]
    CLIENTS[client](bootstrap, group, topic, dict(setting.split("=", 1) for setting in settings))
