"""The columns Spark sees, and how each is made from what the files hold.

``topic, segment, offset, timestamp, key, value, headers``; in a topic with partitions ``partition`` follows the
segment. A topic with a schema has its own columns in place of ``value``. Where one of those has the name of one of
ours, ours is called as in the Parquet files (``_timestamp``): names that begin with ``_`` are never a user's. Letter
case does not tell names apart, as in Spark.
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
"""In tables a column, in logs one number a frame."""
_VALUE = ("value", "_value", pa.binary(), True)
_HEADERS = ("headers", "_headers", PLAIN_SCHEMA.field("_headers").type, True)
_COMPUTED = frozenset({TOPIC, SEGMENT, OFFSET})
"""Known from the file's name: never read."""

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
    """As Spark calls it."""
    source: str
    """As the files call it."""
    kind: DataType
    nullable: bool
    stored: pa.DataType
    """As frames have it."""


def columns_of(
    topic: Topic, chosen: Sequence[str] | None = None, *, include_headers: bool = True
) -> tuple[Column, ...]:
    """The columns of a topic, all or those chosen, in the order chosen; ``include_headers`` is about all.

    Raises:
        InvalidArgument: a chosen column does not exist; the message names those that do.
        Unsupported: a column of the topic's schema has a type that Spark lacks.
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
    """What ``DataSource.schema`` returns."""
    return StructType([StructField(c.name, c.kind, c.nullable) for c in columns])


class Assembler:
    """Makes batches exactly as Spark wants them: it compares the Arrow schema and converts nothing."""

    def __init__(self, topic: str, columns: Sequence[Column]) -> None:
        self._topic = topic
        self._columns = columns
        self._schema = to_arrow_schema(spark_schema(columns), timezone="UTC")
        self._constants: dict[tuple[str, int], pa.Array] = {}
        """Topic and segment of the last length asked for: most batches of a read have the same."""
        self.sources = tuple(c.source for c in columns if c.source not in _COMPUTED)
        """Columns to read from the files."""

    def batch(
        self, segment: int, first_offset: int, count: int, read: Mapping[str, pa.Array], mask: pa.Array | None = None
    ) -> pa.RecordBatch:
        """The records of offsets ``[first_offset, first_offset + count)``, only those where ``mask`` is true if given.

        Args:
            read: :attr:`sources` as stored, each of length ``count``. What plain records lack, in a topic that has a
                schema all the same, is null.
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
                    array = array.cast(field.type, safe=False)  # widens, or cuts nanoseconds as Spark itself does
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
