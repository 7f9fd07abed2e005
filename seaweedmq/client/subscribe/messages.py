"""Conversion of received rows to messages and Arrow batches."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import repeat
from operator import length_hint
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from seaweedmq.client.subscribe.payloads import Payloads
from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_REFERENCE, FLAG_TIMESTAMP, SCHEMA_VERSION_SHIFT
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, TIMESTAMP
from seaweedmq.codec.python_values import python_values
from seaweedmq.codec.references import REFERENCE, reference_of
from seaweedmq.codec.timestamps import EPOCH
from seaweedmq.core.member.acks import Offsets, offsets_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.reference import PayloadReference

_KEY, _HEADERS = PLAIN_SCHEMA.field("_key"), PLAIN_SCHEMA.field("_headers")
_SEGMENT = pa.field("_segment", pa.int32(), nullable=False)
_PARTITION = pa.field("_partition", pa.int32(), nullable=False)
"""The column of topics with partitions."""
_LEADING = [
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", TIMESTAMP, nullable=False),
    _KEY,
    _HEADERS,
]


class Origin:
    """The shared origin of messages, which receives their acknowledgements. Without a group it ignores them."""

    __slots__ = ("partition", "payloads", "segment", "topic")

    def __init__(self, topic: str, segment: int, partition: int | None, payloads: Payloads) -> None:
        self.topic = topic
        self.segment = segment
        self.partition = partition
        self.payloads = payloads

    def ack(self, offset: int) -> None:
        """Handle an acknowledged record."""

    def nack(self, message: "Message", delay_s: float) -> None:
        """Handle a rejected record, to be redelivered after ``delay_s`` seconds."""

    def deliveries(self, offset: int) -> int:
        """Return the number of deliveries of a record, including the current one."""
        return 1


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Rows of one frame, as stored: the columns that ``flags`` name, then ``_value`` or the topic's columns."""

    origin: Origin
    batch: pa.RecordBatch
    flags: int
    """The flags of the frame."""
    first_offset: int
    """The offset of the first row."""
    timestamp: int
    """The timestamp of every row if there is no ``_timestamp`` column, in microseconds since 1970."""

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def cut(self, count: int) -> "tuple[FetchedRows, FetchedRows | None]":
        """Return the first ``count`` rows, and the rest if there is one."""
        left = len(self) - count
        return (self, None) if left <= 0 else (self.slice(0, count), self.slice(count, left))

    def slice(self, at: int, count: int) -> "FetchedRows":
        """Return rows ``[at, at + count)``, zero-copy."""
        part = self.batch.slice(at, count)
        return FetchedRows(self.origin, part, self.flags, self.first_offset + at, self.timestamp)


class _Fields(NamedTuple):
    """The fields of a message.

    A named tuple is made at a fifth of the cost of an object with ``__init__``, and a field read at a third of the cost
    of a property.
    """

    origin: Any
    """The :class:`Origin`, which has more attributes for a group."""
    offset: int
    """The offset, which rises along the segment's lineage."""
    timestamp_us: int
    """The time of publishing, or the time set by the publisher, in microseconds since 1970."""
    key: bytes | None
    """The key; None for a record without one."""
    value: Any
    """The value as bytes, or None, with which Kafka clients mark a deleted key. For a topic with a schema, a dict of
    the columns. A date that Python cannot represent is the stored number, or in UTC if only its local time is out of
    range. For a payload by reference the whole payload, fetched and verified at each access; in asyncio
    :meth:`Message.fetch` does that."""
    header_pairs: list[tuple[str, bytes | None]] | None
    """The headers in order; None if there are none. A name may be repeated, and a value may be None, as Kafka clients
    send them."""


class Message(_Fields):
    """A delivered record: ``offset``, ``timestamp_us``, ``key``, ``value``, ``header_pairs`` and further properties."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic, ``namespace/name``."""
        return str(self.origin.topic)

    @property
    def segment(self) -> int:
        """The id of the segment."""
        return int(self.origin.segment)

    @property
    def partition(self) -> int | None:
        """The partition; None for a topic without partitions."""
        partition: int | None = self.origin.partition
        return partition

    @property
    def timestamp(self) -> datetime:
        """The time of publishing, or the time set by the publisher, in UTC."""
        return EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def headers(self) -> dict[str, bytes | None]:
        """The headers by name, with the last value of a repeated name; ``header_pairs`` has all."""
        return dict(self.header_pairs) if self.header_pairs else {}

    @property
    def deliveries(self) -> int:
        """The number of deliveries to the group, including the current one; 1 without a group."""
        return int(self.origin.deliveries(self.offset))

    @property
    def reference(self) -> PayloadReference | None:
        """The payload that the record refers to; None if its value is in the record."""
        return None

    async def fetch(self) -> Any:
        """Return the value; that of a payload by reference is fetched and verified. For asyncio.

        Raises:
            PayloadLost: If the payload is missing, changed, cut short, or of another topic. The record can still be
                acknowledged.
            StorageFailed: If the storage cannot be read for ``read_retry_timeout_s``.
            Unavailable: If no broker answers for that time.
        """
        return self.value

    def open(self) -> Any:
        """Open the value as a stream of bytes, which raises as :meth:`fetch` while it is read.

        A payload by reference is verified before its last bytes are passed on, and the stream holds 4 MiB at a time.

        Returns:
            A :class:`BlockingPayload`, which is a binary file, in the synchronous API; a :class:`PayloadStream` in
                asyncio.

        Raises:
            InvalidArgument: If the topic has a schema, so that the value is a dict.
        """
        if not isinstance(self.value, bytes | None):
            raise InvalidArgument("the topic has a schema, so that the value is a dict: read message.value")
        payloads: Payloads = self.origin.payloads
        return payloads.open(self.value or b"")

    def ack(self) -> None:
        """Acknowledge the record, which may advance the group's position. Any thread may call it.

        Without a group this does nothing.
        """
        self.origin.ack(self.offset)

    def nack(self, delay: "float | timedelta" = 0.0) -> None:
        """Reject the record: the group redelivers it, here or at another member. Any thread may call it.

        Later records of its key wait for it. Without a group this does nothing.

        Args:
            delay: The time before redelivery, in seconds or as a timedelta.

        Raises:
            InvalidArgument: If the delay is negative.
        """
        self.origin.nack(self, delay_s(delay))

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, segment={self.segment}, offset={self.offset}, "
            f"timestamp={self.timestamp.isoformat()}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


class ReferencedMessage(Message):
    """A delivered record whose value is a payload by reference."""

    __slots__ = ()

    @property
    def reference(self) -> PayloadReference:
        """The payload that the record refers to."""
        return cast(PayloadReference, self[_VALUE_AT])

    @property
    def value(self) -> bytes:
        """The whole payload, fetched and verified at each access; raises as :meth:`fetch`. Not in asyncio.

        The property hides the field of the tuple, which has the reference.
        """
        payloads: Payloads = self.origin.payloads
        return payloads.value(self.reference)

    async def fetch(self) -> bytes:
        """Return the whole payload, fetched and verified."""
        payloads: Payloads = self.origin.payloads
        return await payloads.fetch(self.reference)

    def open(self) -> Any:
        """Open the payload as a stream."""
        payloads: Payloads = self.origin.payloads
        return payloads.open(self.reference)

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, segment={self.segment}, offset={self.offset}, "
            f"timestamp={self.timestamp.isoformat()}, key={self.key!r}, reference={self.reference!r}, "
            f"headers={self.headers!r})"
        )


_VALUE_AT = _Fields._fields.index("value")


def delay_s(delay: "float | timedelta") -> float:
    """Convert a delay to seconds; InvalidArgument unless it is a finite number or timedelta from 0 up."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise InvalidArgument(f"delay={delay!r:.100} is not allowed: use seconds from 0 up, or a timedelta")
    return float(seconds)


class MessageRun:
    """The rows of a frame as messages, each made on demand.

    A message that is dropped before the next is made costs half of one in a list: its memory is reused, and the garbage
    collector, which counts objects that are made and not dropped, never starts.
    """

    def __init__(self, arrived: FetchedRows) -> None:
        self._arrived = arrived
        self._offsets = iter(range(arrived.first_offset, arrived.first_offset + len(arrived)))
        self._messages = map(tuple.__new__, *_kinds_and_fields(arrived, self._offsets))

    def __iter__(self) -> Iterator[Message]:
        """Return the same iterator every time: a new iteration continues."""
        return self._messages

    def __len__(self) -> int:
        """Return the number of messages that were not made yet."""
        return length_hint(self._offsets)

    def rest(self) -> FetchedRows:
        """Return the remaining rows, and end the run. Requires that there are some."""
        left = len(self)
        deque(self._offsets, maxlen=0)
        return self._arrived.slice(len(self._arrived) - left, left)


def _kinds_and_fields(
    arrived: FetchedRows, offsets: Iterator[int]
) -> tuple[Iterable[type[Message]], Iterator[tuple[Any, ...]]]:
    """Return the class and the values of ``_Fields`` of every row. Columns are converted to Python at once."""
    batch = arrived.batch
    (key, timestamp, header), at = _leading_columns(arrived)
    keys: Any = repeat(None) if key is None else key.to_pylist()
    timestamps: Any = repeat(arrived.timestamp) if timestamp is None else timestamp.view(pa.int64()).to_pylist()
    headers: Any = repeat(None) if header is None else header.to_pylist()
    if arrived.flags >> SCHEMA_VERSION_SHIFT:
        names = batch.schema.names[at:]
        columns = [python_values(batch.column(i)) for i in range(at, batch.num_columns)]
        values: Any = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    else:
        values = batch.column(at).to_pylist()
    kinds: Iterable[type[Message]] = repeat(Message)
    if arrived.flags & FLAG_REFERENCE:
        references = [reference_of(stored) for stored in batch.column(at + 1).to_pylist()]
        kinds = [Message if reference is None else ReferencedMessage for reference in references]
        values = [
            value if reference is None else reference for value, reference in zip(values, references, strict=True)
        ]
    return kinds, zip(repeat(arrived.origin), offsets, timestamps, keys, values, headers, strict=False)


def _leading_columns(arrived: FetchedRows) -> tuple[list[pa.Array | None], int]:
    """Return the columns ``_key``, ``_timestamp`` and ``_headers``, None for those missing, and the number present."""
    stored = iter(arrived.batch.columns)
    found = [next(stored) if arrived.flags & flag else None for flag in (FLAG_KEY, FLAG_TIMESTAMP, FLAG_HEADERS)]
    return found, sum(column is not None for column in found)


def columns_of(schema: pa.Schema | None, has_partitions: bool) -> list[str]:
    """Return the names of the columns of :func:`record_batch_of` for a topic with this schema (None for plain)."""
    content = ["_value", REFERENCE.name] if schema is None else list(schema.names)
    return [f.name for f in _leading(has_partitions)] + content


def check_columns(columns: Sequence[str] | None, schema: pa.Schema | None, has_partitions: bool) -> None:
    """Raise InvalidArgument unless all names are columns of the topic."""
    known = columns_of(schema, has_partitions)
    for name in columns or ():
        if name not in known:
            raise InvalidArgument(f"the topic has no column {name!r}: choose from {', '.join(known)}")


def record_batch_of(arrived: FetchedRows, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Convert rows to a batch, without copying the stored columns.

    The columns are ``_segment``, ``_partition`` for a topic with partitions, ``_offset``, ``_timestamp``, ``_key``,
    ``_headers``, and ``_value`` or the topic's columns, and ``_reference`` if the frame has payloads by reference; or
    those named. A missing one is null: a topic with a schema may have plain records.
    """
    batch = arrived.batch
    count = batch.num_rows
    first = arrived.first_offset
    origin = arrived.origin
    place = [origin.segment] if origin.partition is None else [origin.segment, origin.partition]
    places = [array_of(np.full(count, number, dtype=np.int32), pa.int32()) for number in place]
    offset = array_of(np.arange(first, first + count, dtype=np.int64), pa.int64())
    (key, timestamp, headers), at = _leading_columns(arrived)
    if key is None:
        key = _nulls(_KEY.type, count)
    if headers is None:
        headers = _nulls(_HEADERS.type, count)
    if timestamp is None:
        timestamp = array_of(np.full(count, arrived.timestamp, dtype=np.int64), TIMESTAMP)
    arrays = [*places, offset, timestamp, key, headers, *batch.columns[at:]]
    full = pa.RecordBatch.from_arrays(arrays, schema=_schema(batch.schema, at, origin.partition is not None))
    if columns is None:
        return full
    present = [name for name in columns if name in full.schema.names]
    if len(present) == len(columns):
        return full.select(present)
    absent = {name: REFERENCE if name == REFERENCE.name else pa.field(name, pa.null()) for name in columns}
    fields = [full.schema.field(name) if name in present else absent[name] for name in columns]
    arrays = [full.column(f.name) if f.name in present else pa.nulls(count, f.type) for f in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[tuple[int, Offsets]]:
    """Return the segments, with the offsets, of any rows of a batch; InvalidArgument without these two columns."""
    if not isinstance(batch, pa.RecordBatch | pa.Table) or not {"_segment", "_offset"} <= set(batch.schema.names):
        raise InvalidArgument(
            "ack and nack need a message, or a delivered batch with its columns _segment and _offset: "
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
