"""Conversion of a topic's columns to a Delta schema, and the columns that Delta lacks. Pure.

Delta has no unsigned integers: each is declared as the next larger signed type, and uint64 as ``decimal(20,0)``.
delta-rs, pyarrow and DuckDB read all of them correctly. polars, which takes the files as they are, does except for
uint64 and lists of a fixed size. A column that no Delta type can hold exactly is left out of the log, but not of the
files.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from seaweedmq.codec.tables.delta import NTZ_FEATURE

_t = pa.types
_DECIMAL_PRECISION_MAX = 38
_FLAT: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (_t.is_boolean, "boolean"),
    (_t.is_int8, "byte"),
    (_t.is_int16, "short"),
    (_t.is_int32, "integer"),
    (_t.is_int64, "long"),
    (_t.is_uint8, "short"),
    (_t.is_uint16, "integer"),
    (_t.is_uint32, "long"),
    (_t.is_uint64, "decimal(20,0)"),
    (_t.is_float32, "float"),
    (_t.is_float64, "double"),
    (_t.is_date32, "date"),
    (_t.is_binary, "binary"),
    (_t.is_large_binary, "binary"),
    (_t.is_fixed_size_binary, "binary"),
    (_t.is_string, "string"),
    (_t.is_large_string, "string"),
)


class _LeftOut(Exception):
    """The reason why Delta lacks a type."""


def left_out(schema: pa.Schema) -> dict[str, str]:
    """Return the columns that the log does not declare, each with the reason."""
    reasons = {}
    for column in schema:
        try:
            _type_of(column.type)
        except _LeftOut as e:
            reasons[column.name] = str(e)
    return reasons


def delta_schema(schema: pa.Schema) -> str:
    """Return the ``schemaString`` of the columns that Delta can hold: JSON, identical for equal schemas."""
    out = left_out(schema)
    fields = [_field_of(column) for column in schema if column.name not in out]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def features_needed(schema: str) -> frozenset[str]:
    """Return the features that readers of a log with this ``schemaString`` must support."""
    return frozenset({NTZ_FEATURE} if '"timestamp_ntz"' in schema else ())


def columns_of(schema: str) -> list[str]:
    """Return the names of a ``schemaString``'s columns; KeyError, TypeError or ValueError if it is not one."""
    return [str(column["name"]) for column in json.loads(schema)["fields"]]


def alike_fields(kind: pa.StructType) -> tuple[str, str] | None:
    """Return two fields of a struct whose names differ in letter case alone; None if there are none."""
    seen: dict[str, str] = {}
    for i in range(kind.num_fields):
        name = kind.field(i).name
        if name.casefold() in seen:
            return seen[name.casefold()], name
        seen[name.casefold()] = name
    return None


def _field_of(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type_of(field.type), "nullable": field.nullable, "metadata": {}}


def _type_of(kind: pa.DataType) -> str | dict[str, Any]:
    for is_kind, name in _FLAT:
        if is_kind(kind):
            return name
    if _t.is_timestamp(kind):
        if kind.unit == "ns":
            raise _LeftOut(f"{kind}: Delta's times have microseconds")
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if _t.is_decimal(kind):
        if kind.precision > _DECIMAL_PRECISION_MAX:
            raise _LeftOut(f"{kind}: Delta's decimals have {_DECIMAL_PRECISION_MAX} digits")
        return f"decimal({kind.precision},{kind.scale})"
    if _t.is_struct(kind):
        alike = alike_fields(kind)
        if alike is not None:
            raise _LeftOut(f"{kind}: Delta treats the fields {alike[0]!r} and {alike[1]!r} as one")
        return {"type": "struct", "fields": [_field_of(kind.field(i)) for i in range(kind.num_fields)]}
    if _t.is_map(kind):
        return {
            "type": "map",
            "keyType": _type_of(kind.key_type),
            "valueType": _type_of(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind):
        return {"type": "array", "elementType": _type_of(kind.value_type), "containsNull": kind.value_field.nullable}
    raise _LeftOut(f"{kind}: Delta has no such type")
