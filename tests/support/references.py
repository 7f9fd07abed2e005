"""Frames of records by reference, as a publisher sends them."""

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from seaweedmq.codec.frame import FLAG_KEY, FLAG_REFERENCE
from seaweedmq.codec.payload.batch import encode_frame, payload_schema
from seaweedmq.codec.references import column_of
from seaweedmq.model.reference import PayloadReference

NOON_US = 1_600_000_000_000_000


def reference_to(uri: str, payload: bytes, part_bytes: int = 0) -> PayloadReference:
    """Return the reference of a payload at a path."""
    return PayloadReference(
        uri=uri,
        size_bytes=len(payload),
        content_type="text/plain",
        sha256=hashlib.sha256(payload).digest(),
        part_bytes=part_bytes,
    )


def referring_frame(records: Sequence[tuple[bytes | None, bytes | PayloadReference | None]]) -> bytes:
    """Return a frame of records, each a key and either a value or a reference."""
    contents = [content for _, content in records]
    columns = [
        pa.array([key for key, _ in records], pa.binary()),
        pa.array([None if isinstance(c, PayloadReference) else c for c in contents], pa.binary()),
        column_of([c if isinstance(c, PayloadReference) else None for c in contents]),
    ]
    flags = FLAG_KEY | FLAG_REFERENCE
    return bytes(
        encode_frame(
            pa.RecordBatch.from_arrays(columns, schema=payload_schema(flags, None)),
            flags=flags,
            producer_id=0,
            producer_epoch=0,
            first_sequence=0,
            timestamp_min=NOON_US,
            timestamp_max=NOON_US,
            slot_min=0,
            slot_max=65_535,
            histogram=(0,) * 16,
        )
    )
