"""How the columns of a DataFrame become those of records.

A plain topic takes what Kafka's sink takes: ``value``, and if wanted ``key``, ``headers`` and ``timestamp``. A topic
with a schema takes its own columns, and beside them the other three, where it has no columns of these names itself.
Names as in the files (``_key``) do as well.
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
"""``key`` -> ``_key``, and so on."""
_HEADERS = PLAIN_SCHEMA.field("_headers").type
_ELSEWHERE = {
    "topic": "every row goes to the topic of the option",
    "partition": "the key decides",
    "segment": "the key decides",
    "offset": "the topic gives them",
}
_OWN_KINDS = {
    "variant": "to_json(...) of it, or variant_get(...) what is wanted",
    "geometry": "st_asbinary(...) of it",
    "geography": "st_asbinary(...) of it",
}
_t = pa.types


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """What is done with each batch of a DataFrame. Made in the driver, used by tasks."""

    schema: bytes | None
    """The topic's, as an IPC message; None: it is plain."""
    names: Mapping[str, str]
    """Column of the DataFrame -> of the record."""
    key: str | None
    """Column of the record that keys are taken from; None: ``_key``."""
    timestamp: str | None

    def fit(self, batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], int]:
        """Batches and flags as ``encode_frame`` takes them.

        Raises:
            InvalidArgument: names the column that does not fit, what is expected and what was given.
        """
        schema = None if self.schema is None else schema_from_bytes(self.schema)
        wanted = {} if schema is None else {field.name: field.type for field in schema}
        names = [self.names.get(name, name) for name in batch.schema.names]
        arrays = [
            _bent(name, column, _HEADERS if name == "_headers" else wanted.get(name))
            for name, column in zip(names, batch.columns, strict=True)
        ]
        return fit(as_table(pa.table(dict(zip(names, arrays, strict=True)))), schema, self.key, self.timestamp)


def check_kinds(given: StructType) -> None:
    """Refuse columns that Spark would hand on in an encoding of its own.

    Raises:
        InvalidArgument: names the column, its type and what to write in its place.
    """
    for field in given.fields:
        found = _own_kind(field.dataType)
        if found is not None:
            kind, instead = found
            raise InvalidArgument(
                f"column {field.name!r} has values of type {kind}, which a topic has not: write {instead} instead"
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
    """How a DataFrame of these columns is written.

    Args:
        topic: the topic's schema. None: the topic is plain, and gets the schema of the DataFrame unless that is plain
            as well.
        key, timestamp: columns of the DataFrame.

    Raises:
        InvalidArgument: names the column that does not fit.
    """
    for option, column in (("key", key), ("timestamp", timestamp)):
        if column is not None and column not in given.names:
            raise InvalidArgument(
                f"option {option!r} is {column!r}, which is no column of the DataFrame: it has {', '.join(given.names)}"
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
            raise InvalidArgument(f"column {name!r} can not be written ({_ELSEWHERE[name.casefold()]}): drop it")
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
        raise InvalidArgument(f"two columns of the DataFrame are {twice!r} of a record: drop or rename one")


def _is_plain(given: pa.Schema) -> bool:
    """Whether the DataFrame has the columns of records, and nothing else but what can not be written anyway."""
    folded = {name.casefold().removeprefix("_"): name for name in given.names}
    if "value" not in folded or not folded.keys() <= _RESERVED.keys() | _ELSEWHERE.keys():
        return False
    kind = given.field(folded["value"]).type
    return bool(_t.is_binary(kind) or _t.is_large_binary(kind) or _t.is_string(kind) or _t.is_large_string(kind))


def _bent(name: str, column: pa.Array, wanted: pa.DataType | None) -> pa.Array:
    """The same values in the type that is wanted, where Spark has no such type, or another zone's name for it."""
    if wanted is None or column.type == wanted:
        return column
    given = column.type
    if wanted == _HEADERS and (_t.is_list(given) or _t.is_large_list(given)):
        column = _headers_of(column)
    elif _bends(given, wanted):
        try:
            column = column.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidArgument(f"column {name!r}, {given}, does not fit {wanted}: {error}") from error
    return column


def _bends(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark had to use a type of more values, or says the same in other words; a cast finds out the rest."""
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
    """Kafka's list of structs as a map."""
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
