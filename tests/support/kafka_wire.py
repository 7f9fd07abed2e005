"""Kafka's requests and partitions, each in one call."""

from typing import Any

from seaweedmq.codec.murmur2 import murmur2
from seaweedmq.kafka.wire.decoding import decoding
from seaweedmq.kafka.wire.frames import reading
from seaweedmq.kafka.wire.messages import Request
from seaweedmq.runtime.turns import at_once


def decode(message: Any, version: int, data: memoryview) -> Any:
    """Decode a message at once."""
    return at_once(decoding(message, version, data))[0]


def read_request(data: memoryview, **of_connection: Any) -> Request:
    """Read a request at once."""
    return at_once(reading(data, **of_connection))


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
