"""Columns of a frame, in every encoding.

Their order: those of ``_key``, ``_timestamp`` and ``_headers`` that the flags name, then ``_value`` or the topic
schema's columns, then ``_reference`` if the flags name it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import (
    COLUMN_FLAGS,
    FLAG_HEADERS,
    FLAG_KEY,
    FLAG_REFERENCE,
    FLAG_TIMESTAMP,
    SCHEMA_VERSION_SHIFT,
    FrameHeader,
)
from seaweedmq.codec.references import REFERENCE
from seaweedmq.errors import InvalidArgument

T = TypeVar("T")

TIMESTAMP = pa.timestamp("us", tz="UTC")

_KEY = pa.field("_key", pa.binary())
_TIMESTAMP = pa.field("_timestamp", TIMESTAMP)
_HEADERS = pa.field("_headers", pa.map_(pa.string(), pa.binary()))
_VALUE = pa.field("_value", pa.binary())
_FLAGGED = ((FLAG_KEY, _KEY), (FLAG_TIMESTAMP, _TIMESTAMP), (FLAG_HEADERS, _HEADERS))

PLAIN_SCHEMA = pa.schema([_KEY, _TIMESTAMP, _HEADERS, _VALUE])
"""Schema of all columns of a plain topic."""


_DERIVED_MAX = 4_096


class Derived(Generic[T]):
    """A bounded cache of values that depend on a frame's flags and its topic's schema."""

    def __init__(self, make: Callable[[int, pa.Schema | None], T]) -> None:
        self._make = make
        self._made: dict[tuple[int, int], tuple[pa.Schema | None, T]] = {}
        """Values with their schema, which keeps the ``id`` in the key valid."""

    def of(self, flags: int, topic_schema: pa.Schema | None) -> T:
        """Return the value, made by ``make`` if it is not cached; raises what ``make`` raises."""
        key = (flags, id(topic_schema))  # by identity: hashing a schema of 19 columns takes as long as all the checks
        made = self._made.get(key)
        if made is None:
            value = self._make(flags, topic_schema)
            if len(self._made) >= _DERIVED_MAX:
                self._made.clear()
            made = self._made[key] = (topic_schema, value)
        return made[1]


def payload_schema(flags: int, topic_schema: pa.Schema | None) -> pa.Schema:
    """Return the columns of a payload with these flags in a topic with this schema (None: plain topic).

    Raises InvalidArgument if flags are unknown, or the schema version does not match the topic.
    """
    return _schemas.of(flags, topic_schema)


def full_schema(topic_schema: pa.Schema | None, *, has_references: bool = False) -> pa.Schema:
    """Return the columns of :func:`full_batch`."""
    version = (0 if topic_schema is None else 1) << SCHEMA_VERSION_SHIFT
    return payload_schema(COLUMN_FLAGS | version | (FLAG_REFERENCE if has_references else 0), topic_schema)


def full_batch(
    batch: pa.RecordBatch, header: FrameHeader, topic_schema: pa.Schema | None, *, has_references: bool = False
) -> pa.RecordBatch:
    """Return the batch of ``batch.decode_frame`` with all of ``_key``, ``_timestamp`` and ``_headers``.

    Absent keys and headers are null; absent timestamps are the header's. Present columns are not copied.
    ``has_references`` adds ``_reference`` to a plain frame without it; otherwise the column is left out.
    """
    stored = batch.columns
    if header.flags & FLAG_REFERENCE:
        stored = stored if has_references else stored[:-1]
    elif has_references:
        stored = [*stored, pa.nulls(batch.num_rows, REFERENCE.type)]
    columns = iter(stored)
    count = batch.num_rows
    present = [next(columns) if header.flags & flag else None for flag, _ in _FLAGGED]
    key, timestamp, headers = present
    if key is None:
        key = pa.nulls(count, _KEY.type)
    if timestamp is None:
        timestamp = array_of(np.full(count, header.timestamp_min, np.int64), TIMESTAMP)
    if headers is None:
        headers = pa.nulls(count, _HEADERS.type)
    return pa.RecordBatch.from_arrays(
        [key, timestamp, headers, *columns], schema=full_schema(topic_schema, has_references=has_references)
    )


def _make_schema(flags: int, topic_schema: pa.Schema | None) -> pa.Schema:
    version = flags >> SCHEMA_VERSION_SHIFT
    if flags & 0xFF & ~(COLUMN_FLAGS | FLAG_REFERENCE) or version > 1:
        raise InvalidArgument(f"frame flags {flags:#06x} are unknown to this build: upgrade the older side")
    if version == 0 and topic_schema is not None:
        raise InvalidArgument("frame is of a plain topic, but the topic has a schema: publish its columns")
    if version == 1 and topic_schema is None:
        raise InvalidArgument("frame has columns of a schema, but the topic is plain: publish _value")
    if version and flags & FLAG_REFERENCE:
        raise InvalidArgument("frame has _reference in a topic with a schema: publish payloads to a plain topic")
    leading = [field for flag, field in _FLAGGED if flags & flag]
    trailing = [REFERENCE] if flags & FLAG_REFERENCE else []
    return pa.schema([*leading, *((_VALUE,) if topic_schema is None else topic_schema), *trailing])


_schemas: Derived[pa.Schema] = Derived(_make_schema)
