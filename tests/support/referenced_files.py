"""Files of a topic some of whose records have their payload beside the topic, as ``send_file`` leaves them."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa

from seaweedmq.codec.frame import COLUMN_FLAGS, FLAG_REFERENCE, HEADER_BYTES, stamp
from seaweedmq.codec.paths import blob_name, part_name
from seaweedmq.codec.payload.batch import encode_frame, full_schema
from seaweedmq.codec.references import column_of
from seaweedmq.model.reference import PayloadReference
from seaweedmq.storage.place import Place
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles

DAY = "2020-09-13"


def payload_of(offset: int) -> bytes:
    """Return the payload of a record by reference: some hundred bytes that differ."""
    return b"payload %d " % offset * 20


def put_payload(
    place: Place, files: TopicFiles, number: int, payload: bytes, *, part_bytes: int = 0, uid: int | None = None
) -> PayloadReference:
    """Put a payload below the storage, and return its reference."""
    name = blob_name(files.name, files.uid if uid is None else uid, DAY, f"{number:032x}")
    path = place.path(name.uri)
    if part_bytes:
        path.mkdir(parents=True, exist_ok=True)
        for part, first in enumerate(range(0, max(1, len(payload)), part_bytes)):
            (path / part_name(part)).write_bytes(payload[first : first + part_bytes])
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload)
    return PayloadReference(
        uri=name.uri,
        size_bytes=len(payload),
        content_type="application/octet-stream",
        sha256=hashlib.sha256(payload).digest(),
        part_bytes=part_bytes,
    )


@dataclass
class ReferencedFiles(TopicFiles):
    """Files of a topic like ``TopicFiles``, with some records by reference; only frames with one have the column."""

    referring: Collection[int] = field(default_factory=tuple)
    """Offsets of records by reference."""

    def reference(self, offset: int) -> PayloadReference:
        """Put the payload of a record down, and return its reference."""
        return put_payload(Place(self.root), self, offset, payload_of(offset))

    def frame(self, segment: int, base: int, end: int) -> bytes:
        numbers = range(base, end)
        if not any(n in self.referring for n in numbers):
            return super().frame(segment, base, end)
        rows = super().rows(segment, base, end)
        values = [None if n in self.referring else b"s%dv%d" % (segment, n) for n in numbers]
        references = [self.reference(n) if n in self.referring else None for n in numbers]
        arrays = [*rows.columns[:3], pa.array(values, pa.binary()), column_of(references)]
        encoded = encode_frame(
            pa.RecordBatch.from_arrays(arrays, schema=full_schema(None, has_references=True)),
            flags=COLUMN_FLAGS | FLAG_REFERENCE,
            producer_id=1,
            producer_epoch=1,
            first_sequence=base,
            timestamp_min=NOON_US + base * STEP_US,
            timestamp_max=NOON_US + (end - 1) * STEP_US,
            slot_min=self.segments[segment].slots.lo,
            slot_max=self.segments[segment].slots.lo,
            histogram=(0,) * 16,
        )
        return stamp(encoded[:HEADER_BYTES], base) + encoded[HEADER_BYTES:]
