"""Producing and fetching at the full speed of one connection."""

import time
from collections.abc import Sequence

from benchmarks.contest.errors import Failed
from benchmarks.kafka.wire import PRODUCE_VERSION, Wire, decoded, fetch_request, fetched, produce_head
from seaweedmq.kafka.wire.messages import API

IN_FLIGHT = 5
"""Default of Kafka clients."""
FETCH_BYTES = 1_048_576
"""Bytes of one partition, the default request of Kafka clients."""
IDLE_S = 30.0


def produce(address: str, topic: str, batches: Sequence[bytes]) -> float:
    """Produce all batches to partition 0; return seconds to the last acknowledgement. Raises Failed at an error."""
    with Wire(address) as wire:
        began = time.perf_counter()
        for number, batch in enumerate(batches):
            if number >= IN_FLIGHT:
                _acknowledged(wire)
            wire.send(produce_head(topic, len(batch)), batch)
        for _ in range(min(IN_FLIGHT, len(batches))):
            _acknowledged(wire)
        return time.perf_counter() - began


def produce_same(address: str, topic: str, batch: bytes, count: int) -> float:
    """Send so many requests with the same small batch; return seconds. Replies after the first are only counted."""
    request = produce_head(topic, len(batch)) + batch
    with Wire(address) as wire:
        wire.send(request)
        _acknowledged(wire)
        began = time.perf_counter()
        for number in range(count):
            if number >= IN_FLIGHT:
                wire.receive()
            wire.send(request)
        for _ in range(min(IN_FLIGHT, count)):
            wire.receive()
        took_s = time.perf_counter() - began
        wire.send(request)
        _acknowledged(wire)
        return took_s


def fetch_all(address: str, topic: str, count: int) -> float:
    """Fetch ``count`` records of partition 0 from the beginning; return seconds. Raises Failed if it has others."""
    found, offset = 0, 0
    with Wire(address) as wire:
        began = moved = time.perf_counter()
        while found < count:
            wire.send(fetch_request(topic, offset, FETCH_BYTES))
            records, _, following = fetched(wire.receive(), topic)
            if records:
                found, offset, moved = found + records, following, time.perf_counter()
            elif time.perf_counter() > moved + IDLE_S:
                raise Failed(f"{topic} has {found:,} of {count:,} records for a Kafka consumer")
        took_s = time.perf_counter() - began
    if found != count:
        raise Failed(f"{topic} has {found:,} records where {count:,} were published")
    return took_s


def _acknowledged(wire: Wire) -> None:
    reply = decoded(API.PRODUCE, PRODUCE_VERSION, wire.receive())
    error = reply.responses[0].partition_responses[0].error_code
    if error:
        raise Failed(f"Produce says error {error}")
