"""Conversion of a topic's columns to an Iceberg schema, and the columns that Iceberg lacks. Pure.

As in ``delta_schema``, unsigned integers are declared as the next larger signed type. Iceberg has times of day in
microseconds.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

_t = pa.types
_SAME = (
    _t.is_boolean,
    _t.is_int32,
    _t.is_int64,
    _t.is_float32,
    _t.is_float64,
    _t.is_date32,
    _t.is_binary,
    _t.is_string,
)
_AS = (
    (_t.is_int8, pa.int32()),
    (_t.is_int16, pa.int32()),
    (_t.is_uint8, pa.int32()),
    (_t.is_uint16, pa.int32()),
    (_t.is_uint32, pa.int64()),
    (_t.is_large_binary, pa.binary()),
    (_t.is_large_string, pa.string()),
)
_READABLE = (
    _t.is_boolean,
    _t.is_integer,
    _t.is_floating,
    _t.is_decimal128,
    _t.is_date32,
    _t.is_binary,
    _t.is_large_binary,
    _t.is_fixed_size_binary,
    _t.is_string,
    _t.is_large_string,
)
"""Predicates of the types that pyiceberg 0.12 reads from a file, also in columns that the table lacks."""
_UTC = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


class _LeftOut(Exception):
    """The reason why Iceberg lacks a type."""


class IcebergColumns(NamedTuple):
    """The columns of a topic in an Iceberg table."""

    schema: pa.Schema
    """Schema of the columns that Iceberg can hold, in Arrow types that it has."""
    left_out: dict[str, str]
    """Reason, by name, for each column that Iceberg cannot hold."""
    unreadable: dict[str, str]
    """Reason, by name, for each column that prevents pyiceberg from reading a file, even if the table lacks it."""


def iceberg_columns(schema: pa.Schema) -> IcebergColumns:
    """Return the columns of a topic that an Iceberg table can have, and the reasons for the others."""
    columns: list[pa.Field] = []
    left_out: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    inner = {path: field.name for field in schema for path in _paths(field.name, field.type)}
    for field in schema:
        why = _why_unreadable(field.type)
        if field.name in inner:
            why = f"Iceberg gives a part of column {inner[field.name]!r} this name"
        if why is not None:
            unreadable[field.name] = why
            continue
        try:
            columns.append(_field_of(field))
        except _LeftOut as e:
            left_out[field.name] = str(e)
    return IcebergColumns(pa.schema(columns), left_out, unreadable)


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """Return the parts of a type under Iceberg's names."""
    if _t.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind):
        return [kind.value_field.with_name("element")]
    return [kind.field(i) for i in range(kind.num_fields)]


def _paths(name: str, kind: pa.DataType) -> Iterator[str]:
    for part in parts_of(kind):
        yield (path := f"{name}.{part.name}")
        yield from _paths(path, part.type)


def _why_unreadable(kind: pa.DataType) -> str | None:
    """Return why pyiceberg reads no file with a column of this type; None if it does."""
    parts = parts_of(kind)
    if parts:
        return next((why for part in parts if (why := _why_unreadable(part.type)) is not None), None)
    if _t.is_timestamp(kind):
        return None if kind.tz is None or kind.tz in _UTC else f"{kind}: the zone of Iceberg's times is UTC"
    if any(is_kind(kind) for is_kind in _READABLE) or (_t.is_time64(kind) and kind.unit == "us"):
        return None
    return f"{kind}: Iceberg has no such type"


def _field_of(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type_of(field.type), nullable=field.nullable)


def _type_of(kind: pa.DataType) -> pa.DataType:
    if any(is_kind(kind) for is_kind in _SAME):
        return kind
    for is_kind, other in _AS:
        if is_kind(kind):
            return other
    if _t.is_timestamp(kind):
        if kind.unit == "ns":
            raise _LeftOut(f"{kind}: times in the tables of Iceberg have microseconds")
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if _t.is_time64(kind) and kind.unit == "us":
        return kind
    if _t.is_decimal128(kind) or _t.is_fixed_size_binary(kind):
        return kind
    if _t.is_struct(kind):
        return pa.struct([_field_of(kind.field(i)) for i in range(kind.num_fields)])
    if _t.is_map(kind):
        return pa.map_(_field_of(kind.key_field), _field_of(kind.item_field))
    if _t.is_fixed_size_list(kind) and _t.is_struct(kind.value_type):
        raise _LeftOut(f"{kind}: pyiceberg does not read lists of a fixed size whose elements are structs")
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind):
        return pa.list_(_field_of(kind.value_field))
    raise _LeftOut(f"{kind}: Iceberg has no such type")
