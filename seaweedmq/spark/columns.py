"""Columns of a topic in Spark, and their conversion from file contents.

The columns are ``topic, segment, offset, timestamp, key, value, headers``; in a topic with partitions, ``partition``
follows ``segment``. A topic with a schema has its own columns in place of ``value``. If one of those has a built-in
column's name, the built-in column keeps its name in the Parquet files (``_timestamp``): users' names never begin with
``_``. Names are case-insensitive, as in Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
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

from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.topic import Topic

KEY = "_key"
OFFSET = "_offset"
PARTITION = "_partition"
SEGMENT = "_segment"
TIMESTAMP = "_timestamp"
TOPIC = "_topic"
_LEADING = (
    ("topic", TOPIC, pa.string(), False),
    ("segment", SEGMENT, pa.int32(), False),
    ("offset", OFFSET, pa.int64(), False),
    ("timestamp", TIMESTAMP, PLAIN_SCHEMA.field(TIMESTAMP).type, False),
    ("key", KEY, pa.binary(), True),
)
_PARTITION = ("partition", PARTITION, pa.int32(), False)
"""Partition column: stored per row in tables, and as one number per frame in log files."""
_VALUE = ("value", "_value", pa.binary(), True)
_HEADERS = ("headers", "_headers", PLAIN_SCHEMA.field("_headers").type, True)
_COMPUTED = frozenset({TOPIC, SEGMENT, OFFSET})
"""Columns known from the file's name, which are never read."""

_t = pa.types
_WIDER: tuple[tuple[Callable[[pa.DataType], bool], DataType], ...] = (
    (_t.is_uint8, ShortType()),
    (_t.is_uint16, IntegerType()),
    (_t.is_uint32, LongType()),
    (_t.is_uint64, DecimalType(20, 0)),
    (_t.is_float16, FloatType()),
)
_DECIMAL_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the result."""

    name: str
    """Name in Spark."""
    source: str
    """Name in the files."""
    kind: DataType
    nullable: bool
    stored: pa.DataType
    """Arrow type in frames."""


def columns_of(
    topic: Topic, chosen: Sequence[str] | None = None, *, include_headers: bool = True
) -> tuple[Column, ...]:
    """Return a topic's columns: all, or the chosen ones in the chosen order.

    ``include_headers`` applies only if ``chosen`` is None.

    Raises:
        InvalidArgument: If a chosen column does not exist; the message names those that do.
        Unsupported: If a column of the topic's schema has a type that Spark lacks.
    """
    schema = None if topic.schema is None else schema_from_bytes(topic.schema)
    own = {} if schema is None else {field.name.casefold(): field for field in schema}
    content = [_VALUE] if schema is None else [(f.name, f.name, f.type, True) for f in schema]
    all_columns = {}
    topic_name, segment, *others = _LEADING
    place = [topic_name, segment] if topic.partitions is None else [topic_name, segment, _PARTITION]
    for name, source, kind, nullable in (*place, *others, *content, _HEADERS):
        shown = source if source.startswith("_") and name.casefold() in own else name
        all_columns[shown.casefold()] = (shown, source, kind, nullable)
    every = [folded for folded, column in all_columns.items() if include_headers or column[1] != _HEADERS[1]]
    names = [name.casefold() for name in chosen] if chosen is not None else every
    missing = [n for n, folded in zip(chosen or (), names, strict=False) if folded not in all_columns]
    if missing:
        raise InvalidArgument(
            f"topic {topic.name} has no column {missing[0]!r}: it has {', '.join(c[0] for c in all_columns.values())}"
        )
    return tuple(
        Column(shown, source, _spark_type(kind, shown), nullable, kind)
        for shown, source, kind, nullable in (all_columns[n] for n in names)
    )


def spark_schema(columns: Sequence[Column]) -> StructType:
    """Return the schema that ``DataSource.schema`` reports."""
    return StructType([StructField(c.name, c.kind, c.nullable) for c in columns])


class Assembler:
    """Builder of record batches in exactly the Arrow schema that Spark expects.

    Spark compares the Arrow schema and converts nothing.
    """

    def __init__(self, topic: str, columns: Sequence[Column]) -> None:
        self._topic = topic
        self._columns = columns
        self._schema = to_arrow_schema(spark_schema(columns), timezone="UTC")
        self._constants: dict[tuple[str, int], pa.Array] = {}
        """Constant columns, topic and segment, of the last requested length, which most batches of a read share."""
        self.sources = tuple(c.source for c in columns if c.source not in _COMPUTED)
        """Columns to read from the files."""

    def batch(
        self, segment: int, first_offset: int, count: int, read: Mapping[str, pa.Array], mask: pa.Array | None = None
    ) -> pa.RecordBatch:
        """Return the records of offsets ``[first_offset, first_offset + count)``.

        Args:
            segment: Id of the segment.
            first_offset: Offset of the first row.
            count: Number of rows.
            read: :attr:`sources` as stored, each of length ``count``. A column is null if it is absent, as in plain
                records of a topic with a schema.
            mask: Rows to keep; None keeps all.
        """
        arrays = []
        for column, field in zip(self._columns, self._schema, strict=True):
            if column.source == TOPIC:
                array = self._constant(pa.scalar(self._topic, field.type), TOPIC, count)
            elif column.source == SEGMENT:
                array = self._constant(pa.scalar(segment, field.type), f"{SEGMENT}{segment}", count)
            elif column.source == OFFSET:
                array = pa.array(np.arange(first_offset, first_offset + count, dtype=np.int64))
            else:
                array = read.get(column.source)
                if array is None:
                    array = pa.nulls(count, field.type)
                elif array.type != field.type:
                    array = array.cast(field.type, safe=False)  # widens, or truncates nanoseconds as Spark does
            arrays.append(array)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if mask is None else batch.filter(mask)

    def _constant(self, value: pa.Scalar, name: str, count: int) -> pa.Array:
        array = self._constants.get((name, count))
        if array is None:
            self._constants = {k: v for k, v in self._constants.items() if k[1] == count}
            array = self._constants[name, count] = pa.repeat(value, count)
        return array


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
