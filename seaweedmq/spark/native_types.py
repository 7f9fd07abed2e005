"""Arrow types that Spark's own Parquet reader reads exactly as SeaweedMQ does.

The list was measured with Spark 4.3; tests verify it.
"""

import pyarrow as pa

_t = pa.types


def foreign_part(kind: pa.DataType) -> pa.DataType | None:
    """Return the type, or the nested part, that Spark reads differently from Parquet or not at all; None without one.

    Spark does not read half floats, times of day, nanoseconds, and structs with fields that differ in letter case
    alone. It reads durations differently, as the bare integers that they are in Parquet, unless they count microseconds
    as Spark does.
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
