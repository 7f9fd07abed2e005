"""What arrived, as users see it: messages, or Arrow batches."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import repeat
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_TIMESTAMP, SCHEMA_VERSION_SHIFT
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, TIMESTAMP
from seaweedmq.codec.python_values import python_values
from seaweedmq.codec.timestamps import EPOCH
from seaweedmq.core.member.acks import Offsets, offsets_of
from seaweedmq.errors import InvalidArgument

_KEY, _HEADERS = PLAIN_SCHEMA.field("_key"), PLAIN_SCHEMA.field("_headers")
_SEGMENT = pa.field("_segment", pa.int32(), nullable=False)
_PARTITION = pa.field("_partition", pa.int32(), nullable=False)
"""Of topics that have some."""
_LEADING = [
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", TIMESTAMP, nullable=False),
    _KEY,
    _HEADERS,
]


class Origin:
    """Shared by messages: where they come from, and who is told what became of them. This one tells nobody."""

    __slots__ = ("partition", "segment", "topic")

    def __init__(self, topic: str, segment: int, partition: int | None) -> None:
        self.topic = topic
        self.segment = segment
        self.partition = partition

    def ack(self, offset: int) -> None:
        """A record was dealt with."""

    def nack(self, message: "Message", delay_s: float) -> None:
        """A record was not dealt with and is to be delivered again."""

    def deliveries(self, offset: int) -> int:
        """How often a record was delivered, this time included."""
        return 1


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Rows of one frame, as stored: the columns that ``flags`` name, then ``_value`` or the topic's columns."""

    origin: Origin
    batch: pa.RecordBatch
    flags: int
    first_offset: int
    timestamp: int
    """Microseconds, of every row if there is no ``_timestamp`` column."""

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def cut(self, count: int) -> "tuple[FetchedRows, FetchedRows | None]":
        """The first ``count`` rows and the rest, if there is one."""
        left = len(self) - count
        return (self, None) if left <= 0 else (self.slice(0, count), self.slice(count, left))

    def slice(self, at: int, count: int) -> "FetchedRows":
        """Rows ``[at, at + count)``, zero-copy."""
        part = self.batch.slice(at, count)
        return FetchedRows(self.origin, part, self.flags, self.first_offset + at, self.timestamp)


class _Fields(NamedTuple):
    """What a message is made of. A named tuple, because making one costs a fifth of making an object with ``__init__``,
    and reading a field a third of calling a property."""

    origin: Any
    """An :class:`Origin`; that of a group can more."""
    offset: int
    """Position in the segment's lineage; rises along it."""
    timestamp_us: int
    """When the record was published, or what its publisher said: microseconds since 1970."""
    key: bytes | None
    value: Any
    """Bytes, or None: so Kafka's clients say that a key is gone. For a topic with a schema a dict of the row's
    columns; a date that Python lacks is the stored number, or in UTC if only its local time is out of range."""
    header_pairs: list[tuple[str, bytes | None]] | None
    """In their order. A name may come again, and a header may have no value, as Kafka's clients send them."""


class Message(_Fields):
    """One record as delivered: ``offset``, ``timestamp_us``, ``key``, ``value``, and what follows."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """``namespace/name``."""
        return str(self.origin.topic)

    @property
    def segment(self) -> int:
        return int(self.origin.segment)

    @property
    def partition(self) -> int | None:
        """None of a topic without partitions."""
        partition: int | None = self.origin.partition
        return partition

    @property
    def timestamp(self) -> datetime:
        """When the record was published, or what its publisher said; UTC."""
        return EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def headers(self) -> dict[str, bytes | None]:
        """Empty if there are none. Of a name that comes again, the last; ``header_pairs`` has all."""
        return dict(self.header_pairs) if self.header_pairs else {}

    @property
    def deliveries(self) -> int:
        """How often the record was delivered to the group, this time included; 1 without a group."""
        return int(self.origin.deliveries(self.offset))

    def ack(self) -> None:
        """Say that the record is dealt with. That moves the position of a group; without a group nothing keeps one,
        and this does nothing. From any thread.
        """
        self.origin.ack(self.offset)

    def nack(self, delay: "float | timedelta" = 0.0) -> None:
        """Say that the record is not dealt with: the group gets it again, here or at another member, after ``delay``
        (seconds or timedelta). Later records of its key wait for that. Without a group this does nothing. From any
        thread. Raises InvalidArgument: a negative delay.
        """
        self.origin.nack(self, delay_s(delay))

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, segment={self.segment}, offset={self.offset}, "
            f"timestamp={self.timestamp.isoformat()}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


def delay_s(delay: "float | timedelta") -> float:
    """Seconds. Raises InvalidArgument: not a number or timedelta from 0 up."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise InvalidArgument(f"delay={delay!r:.100} is not allowed: give seconds from 0 up, or a timedelta")
    return float(seconds)


class MessageRun:
    """The rows of a frame as messages, each made when it is asked for.

    One that is dropped before the next is made costs half of one of a list: its memory is used again, and the garbage
    collector, which counts what is made and not dropped, never starts.
    """

    def __init__(self, arrived: FetchedRows) -> None:
        self._arrived = arrived
        self._offsets = iter(range(arrived.first_offset, arrived.first_offset + len(arrived)))
        self._messages = map(tuple.__new__, repeat(Message), _fields(arrived, self._offsets))

    def __iter__(self) -> Iterator[Message]:
        """Always the same: who begins again goes on."""
        return self._messages

    def __len__(self) -> int:
        """Of those that were not asked for."""
        return length_hint(self._offsets)

    def rest(self) -> FetchedRows:
        """The rows that were not asked for, which are no messages from here on. Requires that there are some."""
        left = len(self)
        deque(self._offsets, maxlen=0)
        return self._arrived.slice(len(self._arrived) - left, left)


def _fields(arrived: FetchedRows, offsets: Iterator[int]) -> Iterator[tuple[Any, ...]]:
    """Those of ``_Fields``, of every row. Columns are turned into Python at once."""
    batch, flags = arrived.batch, arrived.flags
    at = 0
    keys: Any = repeat(None)
    timestamps: Any = repeat(arrived.timestamp)
    headers: Any = repeat(None)
    if flags & FLAG_KEY:
        keys = batch.column(at).to_pylist()
        at += 1
    if flags & FLAG_TIMESTAMP:
        timestamps = batch.column(at).view(pa.int64()).to_pylist()
        at += 1
    if flags & FLAG_HEADERS:
        headers = batch.column(at).to_pylist()
        at += 1
    if flags >> SCHEMA_VERSION_SHIFT:
        names = batch.schema.names[at:]
        columns = [python_values(batch.column(i)) for i in range(at, batch.num_columns)]
        values: Any = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    else:
        values = batch.column(at).to_pylist()
    return zip(repeat(arrived.origin), offsets, timestamps, keys, values, headers, strict=False)


def columns_of(schema: pa.Schema | None, has_partitions: bool) -> list[str]:
    """Names of the columns of :func:`record_batch_of` for a topic with this schema (None: plain)."""
    return [f.name for f in _leading(has_partitions)] + (["_value"] if schema is None else list(schema.names))


def check_columns(columns: Sequence[str] | None, schema: pa.Schema | None, has_partitions: bool) -> None:
    """Raises InvalidArgument if a name is not a column of the topic."""
    known = columns_of(schema, has_partitions)
    for name in columns or ():
        if name not in known:
            raise InvalidArgument(f"the topic has no column {name!r}: choose from {', '.join(known)}")


def record_batch_of(arrived: FetchedRows, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """All rows with ``_segment, _offset, _timestamp, _key, _headers`` and ``_value`` or the topic's columns; those of a
    topic with partitions have ``_partition`` behind the segment.

    The stored columns are not copied. A chosen column that is not there is null: plain records may be in a topic that
    has a schema.
    """
    batch, flags = arrived.batch, arrived.flags
    count = batch.num_rows
    first = arrived.first_offset
    at = 0
    origin = arrived.origin
    place = [origin.segment] if origin.partition is None else [origin.segment, origin.partition]
    places = [array_of(np.full(count, number, dtype=np.int32), pa.int32()) for number in place]
    offset = array_of(np.arange(first, first + count, dtype=np.int64), pa.int64())
    key = _nulls(_KEY.type, count)
    headers = _nulls(_HEADERS.type, count)
    timestamp: pa.Array | None = None
    if flags & FLAG_KEY:
        key = batch.column(at)
        at += 1
    if flags & FLAG_TIMESTAMP:
        timestamp = batch.column(at)
        at += 1
    if flags & FLAG_HEADERS:
        headers = batch.column(at)
        at += 1
    if timestamp is None:
        timestamp = array_of(np.full(count, arrived.timestamp, dtype=np.int64), TIMESTAMP)
    arrays = [*places, offset, timestamp, key, headers, *batch.columns[at:]]
    full = pa.RecordBatch.from_arrays(arrays, schema=_schema(batch.schema, at, origin.partition is not None))
    if columns is None:
        return full
    present = [name for name in columns if name in full.schema.names]
    if len(present) == len(columns):
        return full.select(present)
    arrays = [full.column(name) if name in present else pa.nulls(count) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[tuple[int, Offsets]]:
    """Segments of a delivered batch, or of any rows of it, with the offsets.

    Raises:
        InvalidArgument: it has no columns ``_segment`` and ``_offset``.
    """
    if not isinstance(batch, pa.RecordBatch | pa.Table) or not {"_segment", "_offset"} <= set(batch.schema.names):
        raise InvalidArgument(
            "ack and nack take a message or a delivered batch with its columns _segment and _offset: "
            "name these two in columns="
        )
    segments, offsets = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("_segment", "_offset"))
    if len(segments) and (segments == segments[0]).all():
        return [(int(segments[0]), offsets_of(offsets))]
    return [(int(segment), offsets_of(offsets[segments == segment])) for segment in np.unique(segments)]


_NULLS = 65_536


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if count > _NULLS else _many_nulls(kind).slice(0, count)


@lru_cache(maxsize=8)
def _many_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_NULLS, kind)


@lru_cache(maxsize=256)
def _schema(stored: pa.Schema, leading: int, has_partitions: bool) -> pa.Schema:
    return pa.schema([*_leading(has_partitions), *(stored.field(i) for i in range(leading, len(stored)))])


def _leading(has_partitions: bool) -> list[pa.Field]:
    return [_SEGMENT, _PARTITION, *_LEADING] if has_partitions else [_SEGMENT, *_LEADING]
