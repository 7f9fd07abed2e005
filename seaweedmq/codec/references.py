"""The column ``_reference`` of records whose payload was uploaded beside the topic, and its values.

The column has one struct a record, null for a record with its value in the frame. A record's reference counts only
within its own topic: :func:`check_own` is the one place that decides so, for clients, Spark tasks and brokers.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.codec.arrays import array_of, binary_of
from seaweedmq.codec.paths import BlobName, blob_days, parse_blob
from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName

SHA256_BYTES: Final = 32
REFERENCE: Final = pa.field(
    "_reference",
    pa.struct(
        [
            ("uri", pa.string()),
            ("size", pa.int64()),
            ("content_type", pa.string()),
            ("sha256", pa.binary(SHA256_BYTES)),
            ("part_bytes", pa.int64()),
        ]
    ),
)
KAFKA_HEADER: Final = "seaweedmq-reference"
"""Header of a record whose value is the JSON of a reference, for readers that cannot resolve it. It has no meaning in
records that arrive: a record with it keeps the value that was sent."""


def column_of(references: Sequence[PayloadReference | None]) -> pa.Array:
    """Return the column of some records."""
    present = np.fromiter((reference is not None for reference in references), np.bool_, len(references))
    held = [reference or _ABSENT for reference in references]
    digests = b"".join(reference.sha256 for reference in held)
    children = [
        binary_of([reference.uri.encode() for reference in held]).view(pa.string()),
        array_of(np.array([reference.size_bytes for reference in held], np.int64), pa.int64()),
        binary_of([reference.content_type.encode() for reference in held]).view(pa.string()),
        pa.Array.from_buffers(pa.binary(SHA256_BYTES), len(held), [None, pa.py_buffer(digests)]),
        array_of(np.array([reference.part_bytes for reference in held], np.int64), pa.int64()),
    ]
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(REFERENCE.type, len(held), [validity], children=children)


def reference_of(value: dict[str, Any] | None) -> PayloadReference | None:
    """Return the reference of one value of the column; None for null.

    Raises:
        Corrupt: If a field is missing or impossible, which no broker accepts.
    """
    if value is None:
        return None
    if None in value.values() or value["size"] < 0 or value["part_bytes"] < 0:
        raise Corrupt(f"the reference {value!r:.300} is not sound: restore the file that has it from a copy")
    return PayloadReference(
        uri=value["uri"],
        size_bytes=value["size"],
        content_type=value["content_type"],
        sha256=value["sha256"],
        part_bytes=value["part_bytes"],
    )


def check_references(references: pa.Array, values: pa.Array) -> None:
    """Check the columns ``_reference`` and ``_value`` of a frame as wholes, without a look at single records.

    Raises:
        InvalidArgument: If a record has a value beside its reference, or a reference lacks a field or has a negative
            size.
    """
    if any(child.null_count != references.null_count for child in references.flatten()):
        raise InvalidArgument("has null within _reference: set all of its fields, or null for the whole")
    both = pc.and_(references.is_valid(), values.is_valid())
    if pc.any(both).as_py():
        raise InvalidArgument("has a record with both _value and _reference: leave the value out")
    for name in ("size", "part_bytes"):
        lowest = pc.min(pc.struct_field(references, name)).as_py()
        if lowest is not None and lowest < 0:
            raise InvalidArgument(f"has a _reference with {name} {lowest}: sizes begin at 0")


def check_own(reference: PayloadReference, topic: TopicName, uid: int) -> BlobName:
    """Return the name of the payload if it belongs to this topic.

    Raises:
        InvalidArgument: If it belongs to another topic, or to an earlier topic of the same name, or the reference has
            no path of a payload at all.
    """
    name = parse_blob(reference.uri)
    if name is None or (name.topic, name.uid) != (topic, uid):
        raise InvalidArgument(
            f"payload {reference.uri!r:.300} is not one of topic {topic}: a record refers only to "
            f"{blob_days(topic, uid)}/...; publish the payload to this topic with send_file or send_stream"
        )
    return name


def reference_json(reference: PayloadReference) -> bytes:
    """Return a reference as JSON, for readers that cannot resolve it."""
    fields = {
        "uri": reference.uri,
        "size": reference.size_bytes,
        "content_type": reference.content_type,
        "sha256": reference.sha256.hex(),
        "part_bytes": reference.part_bytes,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


_ABSENT: Final = PayloadReference(uri="", size_bytes=0, content_type="", sha256=bytes(SHA256_BYTES))
