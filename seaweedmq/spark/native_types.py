"""Which columns Spark's own Parquet reader gives just as we do. Found out with Spark 4.3, and held to it by tests."""

import pyarrow as pa

_t = pa.types


def foreign_part(kind: pa.DataType) -> pa.DataType | None:
    """The type, or the part of it, that Spark reads otherwise from Parquet, or not at all; None: it reads the same.

    Not at all: half floats, times of day, nanoseconds, and structs with fields that differ in letter case alone.
    Otherwise: durations, which are bare integers in Parquet, unless they count microseconds as Spark does.
    """
    if _t.is_float16(kind) or _t.is_time(kind):
        return kind
    if (_t.is_timestamp(kind) and kind.unit == "ns") or (_t.is_duration(kind) and kind.unit != "us"):
        return kind
    if _t.is_struct(kind) and len({kind.field(i).name.casefold() for i in range(kind.num_fields)}) < kind.num_fields:
        return kind
    if _t.is_nested(kind):
        parts = (foreign_part(kind.field(i).type) for i in range(kind.num_fields))
        return next((part for part in parts if part is not None), None)
    return None
