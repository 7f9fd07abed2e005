"""Conversion of a DataFrame's columns to those of records.

A plain topic takes the columns of Kafka's sink: ``value``, and optionally ``key``, ``headers`` and ``timestamp``. A
topic with a schema takes its own columns, and also the latter three unless its schema has those names. The names in the
files (``_key``) also work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from seaweedmq.client.publish.batches.tables import as_table, fit, schema_to_adopt
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.errors import InvalidArgument

_RESERVED = {name.removeprefix("_"): name for name in PLAIN_SCHEMA.names}
"""Column names, as ``key`` -> ``_key``."""
_HEADERS = PLAIN_SCHEMA.field("_headers").type
_ELSEWHERE = {
    "topic": "the option 'topic' sets it",
    "partition": "the key decides",
    "segment": "the key decides",
    "offset": "the topic assigns it",
}
_OWN_KINDS = {
    "variant": "to_json(...) or variant_get(...) of it",
    "geometry": "st_asbinary(...) of it",
    "geography": "st_asbinary(...) of it",
}
_t = pa.types


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The conversion of each batch of a DataFrame; made in the driver, applied by tasks."""

    schema: bytes | None
    """Schema of the topic, as an IPC message; None if the topic is plain."""
    names: Mapping[str, str]
    """Column of the DataFrame -> column of the record."""
    key: str | None
    """Record column that supplies the keys; None for ``_key``."""
    timestamp: str | None

    def fit(self, batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], int]:
        """Return batches and flags as ``encode_frame`` takes them.

        InvalidArgument is raised if a column does not fit; it names the column, the expected type and the given one.
        """
        schema = None if self.schema is None else schema_from_bytes(self.schema)
        wanted = {} if schema is None else {field.name: field.type for field in schema}
        names = [self.names.get(name, name) for name in batch.schema.names]
        arrays = [
            _converted(name, column, _HEADERS if name == "_headers" else wanted.get(name))
            for name, column in zip(names, batch.columns, strict=True)
        ]
        return fit(as_table(pa.table(dict(zip(names, arrays, strict=True)))), schema, self.key, self.timestamp)


def check_kinds(given: StructType) -> None:
    """Raise InvalidArgument, with the remedy, for a column that Spark would pass on in an encoding of its own."""
    for field in given.fields:
        found = _own_kind(field.dataType)
        if found is not None:
            kind, instead = found
            raise InvalidArgument(
                f"column {field.name!r} has type {kind}, which a topic cannot hold: write {instead} instead"
            )


def _own_kind(kind: DataType) -> tuple[str, str] | None:
    name = kind.typeName()
    if name in _OWN_KINDS:
        return name, _OWN_KINDS[name]
    if isinstance(kind, ArrayType):
        return _own_kind(kind.elementType)
    if isinstance(kind, MapType):
        return _own_kind(kind.keyType) or _own_kind(kind.valueType)
    if isinstance(kind, StructType):
        return next((found for field in kind.fields if (found := _own_kind(field.dataType)) is not None), None)
    return None


def plan_columns(given: pa.Schema, topic: bytes | None, key: str | None, timestamp: str | None) -> SinkColumns:
    """Return the conversion for a DataFrame with these columns; InvalidArgument if a column does not fit.

    ``topic`` is the schema of the topic. If None, the topic is plain, and adopts the DataFrame's schema unless that is
    plain as well. ``key`` and ``timestamp`` are columns of the DataFrame.
    """
    for option, column in (("key", key), ("timestamp", timestamp)):
        if column is not None and column not in given.names:
            raise InvalidArgument(
                f"option {option!r} is {column!r}, not a column of the DataFrame: it has {', '.join(given.names)}"
            )
    schema = None if topic is None else schema_from_bytes(topic)
    is_plain = schema is None and _is_plain(given)
    own = set() if schema is None else {name.casefold() for name in schema.names}
    names = {}
    for name in given.names:
        reserved = _RESERVED.get(name.casefold())
        if reserved is not None and (is_plain or (schema is not None and name.casefold() not in own)):
            names[name] = reserved
        elif schema is not None and name not in schema.names and name.casefold() in own:
            names[name] = next(n for n in schema.names if n.casefold() == name.casefold())
        elif (is_plain or schema is not None) and name.casefold() in _ELSEWHERE and name.casefold() not in own:
            raise InvalidArgument(f"column {name!r} cannot be written ({_ELSEWHERE[name.casefold()]}): drop it")
    _check_twice([names.get(name, name) for name in given.names])
    if topic is None and not is_plain:
        topic = schema_to_bytes(schema_to_adopt(given.empty_table()))
    columns = SinkColumns(
        schema=topic,
        names=names,
        key=None if key is None else names.get(key, key),
        timestamp=None if timestamp is None else names.get(timestamp, timestamp),
    )
    columns.fit(pa.RecordBatch.from_arrays([pa.array([], f.type) for f in given], schema=given))
    return columns


def _check_twice(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"two columns of the DataFrame map to {twice!r} of a record: drop or rename one")


def _is_plain(given: pa.Schema) -> bool:
    """Whether the DataFrame has the columns of plain records, and otherwise only unwritable ones."""
    folded = {name.casefold().removeprefix("_"): name for name in given.names}
    if "value" not in folded or not folded.keys() <= _RESERVED.keys() | _ELSEWHERE.keys():
        return False
    kind = given.field(folded["value"]).type
    return bool(_t.is_binary(kind) or _t.is_large_binary(kind) or _t.is_string(kind) or _t.is_large_string(kind))


def _converted(name: str, column: pa.Array, wanted: pa.DataType | None) -> pa.Array:
    """Return the values in the wanted type, where Spark lacks it or names its time zone differently."""
    if wanted is None or column.type == wanted:
        return column
    given = column.type
    if wanted == _HEADERS and (_t.is_list(given) or _t.is_large_list(given)):
        column = _headers_of(column)
    elif _is_equivalent(given, wanted):
        try:
            column = column.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidArgument(f"column {name!r}, {given}, does not fit {wanted}: {error}") from error
    return column


def _is_equivalent(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark had to use a wider or equivalent type; the cast checks the values."""
    if _t.is_timestamp(given) and _t.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if _t.is_unsigned_integer(wanted):
        return bool(_t.is_integer(given) or _t.is_decimal(given))
    if _t.is_float16(wanted):
        return bool(_t.is_floating(given))
    if _t.is_nested(wanted):
        return bool(_t.is_nested(given))
    return bool(_t.is_time(given) and _t.is_time(wanted)) or bool(_t.is_duration(given) and _t.is_duration(wanted))


def _headers_of(column: pa.Array) -> pa.Array:
    """Convert Kafka's list of structs to a map."""
    entries = column.flatten()
    kind = entries.type
    if not _t.is_struct(kind) or [kind.field(i).name for i in range(kind.num_fields)] != ["key", "value"]:
        raise InvalidArgument(
            f"column 'headers' is {column.type}: give a map of string to binary, or Kafka's array of key and value"
        )
    offsets = pa.array(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).cumsum(), pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), offsets])
    keys, values = entries.field("key").cast(pa.string()), entries.field("value").cast(pa.binary())
    return pa.MapArray.from_arrays(offsets, keys, values, mask=column.is_null() if column.null_count else None)
