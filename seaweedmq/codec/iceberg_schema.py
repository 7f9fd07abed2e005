"""Columns of a topic as Iceberg declares them, and which it can not have. Pure.

As ``delta_schema``: unsigned integers become the next larger signed type. Iceberg has times of day in microseconds.
"""

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
_DECIMAL_PRECISION_MAX = 38


_UTC = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


class _LeftOut(Exception):
    """Why a type is none of Iceberg's."""


class _Unreadable(_LeftOut):
    """Why pyiceberg, as of 0.12, reads no file with a column of a type, though it be left out of the table."""


class IcebergColumns(NamedTuple):
    """What becomes of a topic's columns."""

    schema: pa.Schema
    """Of those that Iceberg can have, in Arrow types that it has."""
    left_out: dict[str, str]
    """Of the others why not, in words."""
    unreadable: dict[str, str]
    """Those of them with which no file can be read by pyiceberg."""


def iceberg_columns(schema: pa.Schema) -> IcebergColumns:
    """Which of a topic's columns an Iceberg table can have."""
    columns: list[pa.Field] = []
    left_out: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for field in schema:
        try:
            columns.append(_field_of(field))
        except _LeftOut as e:
            left_out[field.name] = str(e)
            if isinstance(e, _Unreadable):
                unreadable[field.name] = str(e)
    return IcebergColumns(pa.schema(columns), left_out, unreadable)


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
        if kind.tz is not None and kind.tz not in _UTC:
            raise _Unreadable(f"{kind}: the zone of Iceberg's times is UTC")
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if _t.is_time64(kind) and kind.unit == "us":
        return kind
    if _t.is_decimal(kind) and kind.precision <= _DECIMAL_PRECISION_MAX:
        return pa.decimal128(kind.precision, kind.scale)
    if _t.is_fixed_size_binary(kind):
        return kind
    if _t.is_struct(kind):
        return pa.struct([_field_of(kind.field(i)) for i in range(kind.num_fields)])
    if _t.is_map(kind):
        return pa.map_(_field_of(kind.key_field), _field_of(kind.item_field))
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind):
        return pa.list_(_field_of(kind.value_field))
    if _t.is_duration(kind) or _t.is_time32(kind):
        raise _Unreadable(f"{kind}: Iceberg has no such type")
    raise _LeftOut(f"{kind}: Iceberg has no such type")
