"""A consumer process: a member of a group that checks every record and writes it to a journal."""

import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError

from benchmarks.kafka_load.journal import JournalWriter
from benchmarks.kafka_load.records import Damaged, head_of

CONSUMER: dict[str, Any] = {
    "enable.auto.commit": True,
    "auto.commit.interval.ms": 1_000,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "fetch.queue.backoff.ms": 10,
}
POLL_S = 0.1
EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Results of one member, beside its journal."""

    damaged: int
    examples: list[str]
    errors: dict[str, int]
    """Number of errors by name: of the client, of messages and of commits."""


def consume(
    *,
    servers: str,
    topic: str,
    group: str,
    strategy: str,
    member: str,
    journal: Path,
    progress: Any,
    stop: Event,
) -> Consumed:
    """Consume until stopped; then commit and leave the group.

    Args:
        strategy: ``range`` or ``cooperative-sticky``.
        progress: Numbers shared with the parent: current partitions, and delivered records.
    """
    errors: Counter[str] = Counter()
    damaged: list[str] = []
    now = time.monotonic_ns

    def failed(error: KafkaError) -> None:
        errors[error.name()] += 1

    def committed(error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:  # noqa: SLF001 - librdkafka's own names
            errors[f"commit {error.name()}"] += 1

    def assigned(_: object, partitions: list[Any]) -> None:
        progress[0] += len(partitions)

    def revoked(_: object, partitions: list[Any]) -> None:
        progress[0] -= len(partitions)

    def lost(_: object, partitions: list[Any]) -> None:
        errors["partitions lost"] += 1
        progress[0] -= len(partitions)

    own: dict[str, Any] = {"bootstrap.servers": servers, "group.id": group, "client.id": member}
    own |= {"partition.assignment.strategy": strategy, "error_cb": failed, "on_commit": committed}
    consumer = Consumer(CONSUMER | own)
    with JournalWriter(journal) as writer:
        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        while not stop.is_set():
            message = consumer.poll(POLL_S)
            if message is None:
                writer.flush()  # the parent reads it while it drains the topic
                continue
            error = message.error()
            if error is not None:
                failed(error)
                continue
            progress[1] += 1
            try:
                head = head_of(message.key(), message.value())
            except Damaged as why:
                damaged.append(f"{message.partition()}@{message.offset()}: {why}")
                continue
            took_ns = now() - head.due_ns
            writer.add(message.partition(), message.offset(), head.producer, head.key, head.sequence, took_ns)
        consumer.close()
    return Consumed(damaged=len(damaged), examples=damaged[:EXAMPLES], errors=dict(errors))
