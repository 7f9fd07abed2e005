"""Arrow tables to be published: checked against the topic, with key and timestamp columns, and cut without copies.

No row becomes a Python object.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.futures import TableFuture
from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_TIMESTAMP, SCHEMA_VERSION_SHIFT
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, check_values, payload_schema
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import KIB

CHUNK_BYTES_MIN = 256 * KIB
"""Minimum average size of a table's chunks; smaller ones are joined first, since a frame cannot span chunks."""
_RESERVED = (("_key", FLAG_KEY), ("_timestamp", FLAG_TIMESTAMP), ("_headers", FLAG_HEADERS))
_OFFSET = re.compile(r"[+-]\d{2}:?\d{2}")
_PLAIN = frozenset(PLAIN_SCHEMA.names)
_TIMESTAMP = PLAIN_SCHEMA.field("_timestamp").type


@dataclass(slots=True, eq=False)
class TableJob:
    """A table converted to its topic's columns, exactly those of ``payload_schema(flags, ...)``."""

    batches: list[pa.RecordBatch]
    flags: int
    size_bytes: int
    """The size of the columns."""
    timestamp_us: int
    """The timestamp of every row if there is no ``_timestamp`` column, in microseconds since 1970."""
    promise: TableFuture

    def rows(self, rows_bytes: int) -> Iterator[Rows]:
        """Yield zero-copy parts of about ``rows_bytes``, in order."""
        position = 0
        for batch in self.batches:
            step = max(1, batch.num_rows * rows_bytes // max(1, batch.nbytes))
            for at in range(0, batch.num_rows, step):
                part = batch.slice(at, step)
                positions = range(position, position + part.num_rows)
                yield Rows(part, self.flags, self.timestamp_us, positions, self.promise)
                position = positions.stop

    def forget(self) -> None:
        """Release the columns: every row has its outcome."""
        self.batches = []


def is_plain(schema: pa.Schema) -> bool:
    """Whether the columns are ``_value`` and optionally ``_key``, ``_timestamp`` and ``_headers``."""
    return "_value" in schema.names and _PLAIN.issuperset(schema.names)


def as_table(table: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return a table or record batch as a table; InvalidArgument if it is neither, or repeats a column name."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidArgument(
            f"send_table needs a pyarrow Table or RecordBatch, not {type(table).__name__}: convert it"
        )
    names = table.schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"column {twice!r} occurs twice in the table: rename one")
    return table


def schema_to_adopt(table: pa.Table) -> pa.Schema:
    """Return the topic schema for a first table: its columns, with dictionaries decoded, without metadata.

    InvalidArgument is raised if a column has an unknown time zone.
    """
    fields = []
    for field in table.schema:
        if field.name in _PLAIN:
            continue
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        unknown = unknown_zone(kind)
        if unknown is not None:
            raise InvalidArgument(
                f"column {field.name!r} has the time zone {unknown!r}, which is unknown: use one like UTC, +02:00 or "
                "Europe/Berlin"
            )
        fields.append(pa.field(field.name, kind, nullable=field.nullable))
    return pa.schema(fields)


def unknown_zone(kind: pa.DataType) -> str | None:
    """Return the first time zone in a type, or in its children, that is unknown; None if there is none."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return None if _OFFSET.fullmatch(kind.tz) or _is_zone(kind.tz) else str(kind.tz)
    parts = (unknown_zone(kind.field(i).type) for i in range(kind.num_fields))
    return next((zone for zone in parts if zone is not None), None)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return False
    return True


def fit(
    table: pa.Table, schema: pa.Schema | None, key: str | None, timestamp: str | None
) -> tuple[list[pa.RecordBatch], int]:
    """Convert a table to the columns of a topic; return batches, without empty ones, and the flags of their frames.

    ``key`` and ``timestamp`` name columns, by default ``_key`` and ``_timestamp`` if present. An InvalidArgument names
    the column that does not fit, its type and the expected one.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    if key is not None:
        columns["_key"] = _key_column(table, key)
    elif "_key" in table.schema.names:
        columns["_key"] = _key_column(table, "_key")
    if timestamp is not None or "_timestamp" in table.schema.names:
        columns["_timestamp"] = _timestamp_column(table, timestamp or "_timestamp")
    if "_headers" in table.schema.names:
        columns["_headers"] = _fitted(table.column("_headers"), PLAIN_SCHEMA.field("_headers"))
    flags = sum(flag for name, flag in _RESERVED if name in columns)
    wanted = pa.schema([PLAIN_SCHEMA.field("_value")]) if schema is None else schema
    if schema is not None:
        flags |= 1 << SCHEMA_VERSION_SHIFT
    for name in table.schema.names:
        if name not in wanted.names and not (name in _PLAIN and name != "_value"):
            raise InvalidArgument(
                f"column {name!r} of the table is not in the topic's schema ({', '.join(wanted.names)}): drop it"
            )
    for field in wanted:
        if field.name not in table.schema.names:
            raise InvalidArgument(
                f"column {field.name!r} ({field.type}) of the topic's schema is not in the table: add it"
            )
        columns[field.name] = _fitted(table.column(field.name), field)
    shape = payload_schema(flags, schema)
    fitted = pa.table([columns[name] for name in shape.names], schema=shape)
    batches = [b for b in fitted.to_batches() if b.num_rows]
    if len(batches) > 1 and fitted.nbytes < CHUNK_BYTES_MIN * len(batches):
        batches = [b for b in fitted.combine_chunks().to_batches() if b.num_rows]
    try:
        for batch in batches:
            check_values(batch, flags, schema)
    except InvalidArgument as error:
        raise InvalidArgument(f"the table {error}") from None
    return batches, flags


def _column(table: pa.Table, name: str, what: str) -> pa.ChunkedArray:
    if name not in table.schema.names:
        raise InvalidArgument(f"{what} column {name!r} is not in the table, which has {', '.join(table.schema.names)}")
    column = table.column(name)
    return _decoded(column, name)


def _decoded(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column without dictionaries."""
    if not pa.types.is_dictionary(column.type):
        return column
    try:
        return column.cast(column.type.value_type)
    except pa.ArrowNotImplementedError as error:
        raise InvalidArgument(
            f"column {name!r} is {column.type}, which Arrow cannot decode: send its values without a dictionary"
        ) from error


def _key_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = _column(table, name, "key")
    kind = column.type
    if pa.types.is_integer(kind):
        column = column.cast(pa.string())
    elif not (_is_text(kind) or _is_bytes(kind)):
        raise InvalidArgument(f"key column {name!r} is {kind}: it must be a string, binary or integer column")
    return column.cast(pa.binary())


def _timestamp_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = _column(table, name, "timestamp")
    if not (pa.types.is_timestamp(column.type) or pa.types.is_int64(column.type)):
        raise InvalidArgument(
            f"timestamp column {name!r} is {column.type}: it must be a timestamp, or int64 microseconds"
        )
    if column.null_count:
        raise InvalidArgument(f"timestamp column {name!r} has {column.null_count} nulls: give every row a timestamp")
    if pa.types.is_timestamp(column.type):
        try:
            column = column.cast(pa.timestamp("us", column.type.tz), safe=column.type.unit != "ns")
        except pa.ArrowInvalid as error:
            raise InvalidArgument(f"timestamp column {name!r} does not fit microseconds: {error}") from error
    numbers = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], type=pa.int64())
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not TIMESTAMP_MIN_US <= bounds["min"] <= bounds["max"] <= TIMESTAMP_MAX_US:
        raise InvalidArgument(f"timestamp column {name!r} has values outside the years 1 to 9999: correct them")
    return pa.chunked_array([chunk.view(_TIMESTAMP) for chunk in numbers.chunks], type=_TIMESTAMP)


def _fitted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    given = column.type
    column = _decoded(column, field.name)
    if column.type != field.type:
        if not _widens(column.type, field.type):
            raise InvalidArgument(f"column {field.name!r} is {given}, the topic's schema has {field.type}: cast it")
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidArgument(f"column {field.name!r}, {given}, does not fit {field.type}: {error}") from error
    if column.null_count and not field.nullable:
        raise InvalidArgument(
            f"column {field.name!r} has {column.null_count} nulls, the topic's schema allows none: fill them"
        )
    return column


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of type ``given`` has an equal in ``wanted``, so that a cast loses nothing."""
    t = pa.types
    if t.is_null(given):
        return True
    if t.is_integer(given) and t.is_integer(wanted):
        if t.is_signed_integer(given) == t.is_signed_integer(wanted):
            return bool(given.bit_width <= wanted.bit_width)
        return bool(t.is_signed_integer(wanted) and given.bit_width < wanted.bit_width)
    if t.is_floating(given) and t.is_floating(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if t.is_timestamp(given) and t.is_timestamp(wanted):
        units = ("s", "ms", "us", "ns")
        return given.tz == wanted.tz and units.index(given.unit) <= units.index(wanted.unit)
    if _is_text(given):
        return _is_text(wanted) or _is_bytes(wanted)
    if _is_bytes(given):
        return _is_bytes(wanted) and not t.is_fixed_size_binary(wanted)
    if _is_list(given) and _is_list(wanted):
        return bool(given.value_type == wanted.value_type)
    return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
