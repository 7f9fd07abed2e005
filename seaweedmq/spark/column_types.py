"""Types of a topic's columns in Spark."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from seaweedmq.errors import Unsupported
from seaweedmq.storage.scan.columns import Column

_t = pa.types
_WIDER: tuple[tuple[Callable[[pa.DataType], bool], DataType], ...] = (
    (_t.is_uint8, ShortType()),
    (_t.is_uint16, IntegerType()),
    (_t.is_uint32, LongType()),
    (_t.is_uint64, DecimalType(20, 0)),
    (_t.is_float16, FloatType()),
)
_DECIMAL_DIGITS_MAX = 38


def spark_schema(columns: Sequence[Column]) -> StructType:
    """Return the schema that ``DataSource.schema`` reports."""
    return StructType([StructField(c.name, spark_type(c), c.nullable) for c in columns])


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema that Spark requires of batches: it compares schemas and converts nothing."""
    return to_arrow_schema(spark_schema(columns), timezone="UTC")


def spark_type(column: Column) -> DataType:
    """Return a column's type in Spark; Unsupported if Spark lacks it."""
    return _spark_type(column.stored, column.name)


def _spark_type(kind: pa.DataType, name: str) -> DataType:
    for is_kind, wider in _WIDER:
        if is_kind(kind):
            return wider
    if _t.is_decimal(kind) and kind.precision > _DECIMAL_DIGITS_MAX:
        raise _unsupported(kind, name)
    if _t.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return StructType([StructField(f.name, _spark_type(f.type, name), True) for f in fields])
    if _t.is_map(kind):
        return MapType(_spark_type(kind.key_type, name), _spark_type(kind.item_type, name), True)
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind):
        return ArrayType(_spark_type(kind.value_type, name), True)
    try:
        return from_arrow_type(kind)
    except PySparkTypeError as e:
        raise _unsupported(kind, name) from e


def _unsupported(kind: pa.DataType, name: str) -> Unsupported:
    return Unsupported(f"column {name!r} has type {kind}, which Spark lacks: leave it out with option 'columns'")
