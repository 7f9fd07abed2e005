"""Frames of an internal topic, each one Kafka record batch without a producer and without compression."""

from collections.abc import Iterator, Sequence
from typing import Final

from seaweedmq.codec.frame import HEADER_BYTES, Frame
from seaweedmq.codec.kafka.batch import ALIGNMENT, CheckedBatch, frame_of_batch
from seaweedmq.codec.kafka.build import batches_of_rows
from seaweedmq.codec.kafka.header import read_header

_ANY_OFFSET: Final = 0
_NO_EPOCH: Final = -1
_US_PER_MS: Final = 1_000
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


def frames_of(
    pairs: Sequence[tuple[bytes, bytes | None]], slot: int, at_us: int, frame_bytes_max: int
) -> Iterator[Frame]:
    """Yield keys and values, all with one timestamp, in as few frames of ``frame_bytes_max`` as possible."""
    at_ms = at_us // _US_PER_MS
    rows = ((at_ms, key, value, _NO_HEADERS) for key, value in pairs)
    at_us = at_ms * _US_PER_MS
    for batch in batches_of_rows(rows, _ANY_OFFSET, _NO_EPOCH, frame_bytes_max - HEADER_BYTES - ALIGNMENT):
        yield frame_of_batch(batch, slot, CheckedBatch(read_header(batch), at_us, at_us))
