"""Columns that a topic may have: those that Arrow IPC and Parquet carry unchanged and every reader finds by name."""

from collections.abc import Callable

import pyarrow as pa

from seaweedmq.codec.arrow_message import ARROW_FAILURES
from seaweedmq.errors import InvalidArgument

COLUMNS_MAX = 1_000
NAME_LENGTH_MAX = 255
NESTING_MAX = 16
_EXTENSION_KEY = b"ARROW:extension:name"

_t = pa.types
_FLAT: tuple[Callable[[pa.DataType], bool], ...] = (
    _t.is_boolean,
    _t.is_integer,
    _t.is_floating,
    _t.is_date32,
    _t.is_time,
    _t.is_timestamp,
    _t.is_duration,
    _t.is_binary,
    _t.is_large_binary,
    _t.is_string,
    _t.is_large_string,
)
_REMEDY: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (_t.is_dictionary, "cast it to its value type"),
    (_t.is_union, "use a struct with nullable fields"),
    (_t.is_run_end_encoded, "decode it to its value type"),
    (_t.is_null, "give it a type that its later values will have"),
    (_t.is_date64, "cast it to date32"),
    (_t.is_interval, "use duration or an integer"),
)


def check_topic_schema(schema: pa.Schema) -> None:
    """Raise InvalidArgument for columns that a topic's files could not hold, or its readers could not distinguish.

    The message names the column, the rule and the remedy.
    """
    if not 1 <= len(schema) <= COLUMNS_MAX:
        raise InvalidArgument(f"topic schema has {len(schema)} columns: a topic has from 1 to {COLUMNS_MAX}")
    seen: dict[str, str] = {}
    for field in schema:
        _check_name(field, f"column {_name(field)[:80]!r}")
        name = field.name
        if name.startswith("_"):
            raise InvalidArgument(
                f"column {name!r} begins with '_', which is reserved for _key, _offset and such: rename it"
            )
        if name.casefold() in seen:
            raise InvalidArgument(
                f"column {name!r} has the name of column {seen[name.casefold()]!r} (names are case-insensitive, "
                "as in Spark): rename one"
            )
        seen[name.casefold()] = name
        _check_field(field, f"column {name!r}", 1)


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Return a topic schema as an Arrow IPC schema message, without its metadata; raises as :func:`check_topic_schema`.

    Equal columns give equal bytes, regardless of their origin: a table, a Parquet file, or code.
    """
    check_topic_schema(schema)
    return bytes(memoryview(_without_metadata(schema).serialize()))


def schema_from_bytes(data: bytes | memoryview) -> pa.Schema:
    """Return the schema of :func:`schema_to_bytes`; the bytes may be untrusted.

    Raises InvalidArgument if it is not a schema message, or a topic cannot have the columns.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except ARROW_FAILURES as e:
        raise InvalidArgument(
            f"topic schema is not an Arrow IPC schema message ({_short(e)}): see Schema.serialize"
        ) from e
    check_topic_schema(schema)
    return _without_metadata(schema)


def normal_schema(data: bytes) -> bytes:
    """Return the bytes that are identical for equal schemas; raises like :func:`schema_from_bytes`."""
    return schema_to_bytes(schema_from_bytes(data))


def _check_field(field: pa.Field, where: str, depth: int) -> None:
    kind = field.type
    if depth > NESTING_MAX:
        raise InvalidArgument(f"{where} is nested deeper than {NESTING_MAX} levels: flatten it")
    if isinstance(kind, pa.BaseExtensionType) or _EXTENSION_KEY in (field.metadata or {}):
        raise InvalidArgument(f"{where} has an extension type, which other readers lack: cast it to its storage type")
    if any(is_kind(kind) for is_kind in _FLAT):
        return
    if _t.is_decimal(kind):
        if not 0 <= kind.scale <= kind.precision:
            raise InvalidArgument(f"{where} has type {kind}: Parquet needs 0 <= scale <= precision")
        return
    if _t.is_fixed_size_binary(kind):
        if kind.byte_width < 1:
            raise InvalidArgument(f"{where} has type {kind}: its width must be at least 1, or use binary")
        return
    if _t.is_struct(kind) or _t.is_map(kind) or _t.is_list(kind) or _t.is_large_list(kind) or _is_fixed_list(kind):
        if kind.num_fields == 0:
            raise InvalidArgument(f"{where} is a struct without fields, which Parquet cannot hold: drop it")
        if _t.is_fixed_size_list(kind) and kind.list_size < 1:
            raise InvalidArgument(f"{where} has lists of fixed size 0: use a list of any size")
        for i in range(kind.num_fields):
            child = kind.field(i)
            _check_name(child, where)
            _check_field(child, f"{where}, field {child.name!r}" if _t.is_struct(kind) else where, depth + 1)
        if _t.is_struct(kind) and len({kind.field(i).name for i in range(kind.num_fields)}) != kind.num_fields:
            raise InvalidArgument(f"{where} is a struct with two fields of one name: rename one")
        return
    remedy = next((text for is_kind, text in _REMEDY if is_kind(kind)), "cast it to a type that Parquet has")
    raise InvalidArgument(f"{where} has type {str(kind)[:80]}, which a topic cannot have: {remedy}")


def _is_fixed_list(kind: pa.DataType) -> bool:
    return bool(_t.is_fixed_size_list(kind))


def _name(field: pa.Field) -> str:
    try:
        return str(field.name)
    except UnicodeDecodeError as e:
        raise InvalidArgument(f"a column's name is not UTF-8 ({e}): rename it") from e


def _check_name(field: pa.Field, where: str) -> None:
    name = _name(field)
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidArgument(
            f"{where} has the name {name[:24]!r}: use 1 to {NAME_LENGTH_MAX} printable characters, so that every tool "
            "can show and select it"
        )


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_bare(field) for field in schema])


def _bare(field: pa.Field, name: str | None = None) -> pa.Field:
    """Return the field without the parts that depend on a schema's origin.

    These are metadata (Parquet's ``PARQUET:field_id``) and the names of list and map children (``item`` in Arrow,
    ``element`` in Parquet).
    """
    return pa.field(name or field.name, _bare_type(field.type), nullable=field.nullable)


def _bare_type(kind: pa.DataType) -> pa.DataType:
    if _t.is_struct(kind):
        return pa.struct([_bare(kind.field(i)) for i in range(kind.num_fields)])
    if _t.is_map(kind):
        key, value = _bare(kind.key_field, "key"), _bare(kind.item_field, "value")
        return pa.map_(key, value, keys_sorted=kind.keys_sorted)
    if _t.is_list(kind):
        return pa.list_(_bare(kind.value_field, "item"))
    if _t.is_large_list(kind):
        return pa.large_list(_bare(kind.value_field, "item"))
    if _t.is_fixed_size_list(kind):
        return pa.list_(_bare(kind.value_field, "item"), kind.list_size)
    return kind


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
