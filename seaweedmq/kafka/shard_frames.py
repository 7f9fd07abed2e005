"""Records of an internal topic as frames: each a record batch of Kafka's, of no producer, uncompressed."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from seaweedmq.codec.arrays import array_of, binary_of
from seaweedmq.codec.frame import HEADER_BYTES, Frame
from seaweedmq.codec.kafka.batch import ALIGNMENT, CheckedBatch, frame_of_batch
from seaweedmq.codec.kafka.build import batches_of
from seaweedmq.codec.kafka.header import read_header
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, TIMESTAMP

_ANY_OFFSET: Final = 0
_NO_EPOCH: Final = -1
_US_PER_MS: Final = 1_000
_KEY, _, _HEADERS, _VALUE = PLAIN_SCHEMA


def frames_of(
    pairs: Sequence[tuple[bytes, bytes | None]], slot: int, at_us: int, frame_bytes_max: int
) -> Iterator[Frame]:
    """Keys and values, all with one timestamp, in as few frames as there may be."""
    at_us -= at_us % _US_PER_MS
    rows = pa.RecordBatch.from_arrays(
        [
            binary_of([key for key, _ in pairs]),
            array_of(np.full(len(pairs), at_us, np.int64), TIMESTAMP),
            pa.nulls(len(pairs), _HEADERS.type),
            binary_of([value for _, value in pairs]),
        ],
        schema=PLAIN_SCHEMA,
    )
    for batch in batches_of(rows, _ANY_OFFSET, _NO_EPOCH, frame_bytes_max - HEADER_BYTES - ALIGNMENT):
        yield frame_of_batch(batch, slot, CheckedBatch(read_header(batch), at_us, at_us))
