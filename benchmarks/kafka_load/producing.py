"""A producer process: an idempotent librdkafka producer that sends orders by a schedule."""

import time
from array import array
from collections import Counter
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

from confluent_kafka import KafkaError, Producer

from benchmarks.contest.errors import Failed
from benchmarks.kafka_load.records import Orders
from benchmarks.measure import percentile

PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": 60_000,
}
"""Compression and partitioner that are Java's default or common."""
SLOT_S = 0.002
CONNECT_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 90.0
"""Above the delivery timeout: every record has its outcome."""
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """Results of one producer."""

    producer: int
    sent: int
    refused: list[int]
    """Sequences without an acknowledgement."""
    errors: dict[str, int]
    """Number of errors by name: of delivery and of the client."""
    wall_s: float
    """Time from the first record due to the last passed to the client: above the plan if the producer was delayed."""
    ack_ms_p99: float
    ack_ms_max: float
    ack_gap_s: float
    """The longest time without an acknowledgement, from the first to the last."""


def produce(
    *,
    servers: str,
    topic: str,
    producer: int,
    records_per_s: float,
    linger_ms: float,
    seconds: float,
    ready: Event,
    begin: Event,
) -> Produced:
    """Send records by a steady schedule, which is an open loop, and wait for every outcome.

    Args:
        producer: Its number, which its records contain.
        ready: Set when the producer knows the topic.
        begin: The producer waits for it.

    Raises:
        Failed: If records have no outcome.
    """
    errors: Counter[str] = Counter()
    refused: list[int] = []
    took_ns = array("q")
    acked_ns = gap_ns = 0
    now = time.monotonic_ns

    def failed(error: KafkaError) -> None:
        errors[error.name()] += 1

    def delivered(sequence: int, due_ns: int, error: KafkaError | None, _: object) -> None:
        nonlocal acked_ns, gap_ns
        if error is None:
            at_ns = now()
            took_ns.append(at_ns - due_ns)
            gap_ns = max(gap_ns, at_ns - acked_ns if acked_ns else 0)
            acked_ns = at_ns
        else:
            refused.append(sequence)
            failed(error)

    client = Producer(PRODUCER | {"bootstrap.servers": servers, "linger.ms": linger_ms, "error_cb": failed})
    client.list_topics(topic, timeout=CONNECT_TIMEOUT_S)
    orders = Orders(producer)
    total = round(records_per_s * seconds)
    ready.set()
    begin.wait()
    began, sequence = now(), 0
    while sequence < total:
        overdue = min(total, int((now() - began) * records_per_s / 1e9) + 1)
        while sequence < overdue:
            due_ns = began + int(sequence * 1e9 / records_per_s)
            key, value = orders.record(sequence, due_ns)
            if not _handed_over(client, topic, key, value, partial(delivered, sequence, due_ns)):
                break
            sequence += 1
        client.poll(SLOT_S)
    wall_s = (now() - began) / 1e9
    left = client.flush(FLUSH_TIMEOUT_S)
    if left:
        raise Failed(f"producer {producer} has no outcome of {left} records after {FLUSH_TIMEOUT_S:.0f} s")
    ascending = sorted(took_ns) or [0]
    return Produced(
        producer=producer,
        sent=total,
        refused=refused,
        errors=dict(errors),
        wall_s=wall_s,
        ack_ms_p99=percentile(ascending, 0.99) / NS_PER_MS,
        ack_ms_max=ascending[-1] / NS_PER_MS,
        ack_gap_s=gap_ns / 1e9,
    )


def _handed_over(client: Producer, topic: str, key: bytes, value: bytes, on_delivery: Any) -> bool:
    """Pass a record to the client; False if its queue is full, so that outcomes must be processed first."""
    try:
        client.produce(topic, value, key, on_delivery=on_delivery)
    except BufferError:
        return False
    return True
