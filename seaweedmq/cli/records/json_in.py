"""Reader of JSON lines: `publish --format jsonl` accepts the lines that `subscribe --format jsonl` prints.

``json_out`` defines their format.
"""

import base64
import binascii
import io
import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.json

from seaweedmq.cli.records.json_out import BASE64, NOT_FINITE
from seaweedmq.cli.records.source import Source, line_blocks
from seaweedmq.codec.imports.foreign_text import text_of
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.errors import InvalidArgument

FIELDS = frozenset(
    {"topic", "segment", "partition", "offset", "timestamp", "key", "value", "headers"}
    | {"key_encoding", "value_encoding", "headers_encoding"}
)
TIMESTAMP = PLAIN_SCHEMA.field("_timestamp").type
HEADERS = PLAIN_SCHEMA.field("_headers").type

_DOES_NOT_FIT = (pa.ArrowInvalid, pa.ArrowTypeError, ValueError)
_NOT_FINITE = frozenset(NOT_FINITE)

Row = dict[str, Any]


def read(source: Source, schema: pa.Schema | None, key: str | None) -> Iterator[pa.Table]:
    """Yield tables of a source's lines; skips blank lines, and blanks around an object.

    On a plain topic each line is a record as in ``json_out``, or with ``key`` any object: its text is the value and
    that field the key. On a topic with a schema each line is a row, or a record whose ``value`` is a row. An
    InvalidArgument has the number of the line.
    """
    first_line = 1
    as_records: bool | None = None if schema is not None and "value" not in schema.names else False
    for block in line_blocks(source):
        if first_line == 1:
            block[0] = text_of(source.name, block[0])
        lines = [line.strip() for line in block]
        rows = _parse(lines, first_line)
        if rows:
            numbers = _line_numbers(lines, len(rows), first_line)
            if schema is None:
                yield _keyed_table(lines, rows, key, numbers) if key else _plain_table(rows, numbers)
            else:
                if as_records is None:
                    as_records = isinstance(rows[0].get("value"), dict)
                yield _typed_records(rows, schema, numbers) if as_records else _typed_rows(rows, schema, numbers)
        first_line += len(lines)


def _line_numbers(lines: Sequence[bytes], row_count: int, first_line: int) -> Sequence[int]:
    """Return the line number of each row."""
    if row_count == len(lines):
        return range(first_line, first_line + len(lines))
    return [first_line + index for index, line in enumerate(lines) if line]


def _parse(lines: Sequence[bytes], first_line: int) -> list[Row]:
    try:
        # One call for all lines is three times as fast as a call per line.
        rows = json.loads(b"[" + b",".join(line for line in lines if line) + b"]")
        if len(rows) == sum(1 for line in lines if line) and all(isinstance(row, dict) for row in rows):
            return list(rows)
    except ValueError:
        pass  # the slow way finds the line and the reason
    return [_parse_line(line, first_line + index) for index, line in enumerate(lines) if line]


def _parse_line(line: bytes, number: int) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"line {number} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InvalidArgument(f"line {number} is not a JSON object")
    return row


def _plain_table(rows: list[Row], numbers: Sequence[int]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    present = set().union(*rows)
    if not present <= FIELDS or any("value" not in row for row in rows):
        _explain_plain(rows, numbers)
    columns.update(_envelope(rows, numbers))
    columns["_value"] = pa.array(
        [_bytes(row["value"], row.get("value_encoding"), "value", n) for row, n in zip(rows, numbers, strict=True)],
        pa.binary(),
    )
    return pa.table(columns)


def _explain_plain(rows: list[Row], numbers: Sequence[int]) -> None:
    for row, number in zip(rows, numbers, strict=True):
        unknown = sorted(row.keys() - FIELDS)
        if unknown or "value" not in row:
            wrong = f"has a field {unknown[0]!r}" if unknown else 'has no "value"'
            raise InvalidArgument(
                f'line {number} {wrong}: on a topic without a schema a line is {{"key", "value", "headers"}}; '
                "to publish whole objects, name their key field with --key, or use --format lines"
            )


def _keyed_table(lines: Sequence[bytes], rows: list[Row], key: str, numbers: Sequence[int]) -> pa.Table:
    for row, number in zip(rows, numbers, strict=True):
        if key not in row:
            raise InvalidArgument(f"line {number} has no field {key!r}, which --key names")
    keys = [_bytes(row[key], None, key, n) for row, n in zip(rows, numbers, strict=True)]
    values = [line for line in lines if line]
    return pa.table({"_key": pa.array(keys, pa.binary()), "_value": pa.array(values, pa.binary())})


def _envelope(rows: list[Row], numbers: Sequence[int]) -> dict[str, pa.Array]:
    """Return the columns `_key`, `_timestamp` and `_headers`, if any row has them."""
    present = set().union(*rows)
    columns: dict[str, pa.Array] = {}
    pairs = list(zip(rows, numbers, strict=True))
    if "key" in present:
        keys = [_bytes(row.get("key"), row.get("key_encoding"), "key", n) for row, n in pairs]
        columns["_key"] = pa.array(keys, pa.binary())
    if "timestamp" in present:
        columns["_timestamp"] = pa.array([_moment(row.get("timestamp"), n) for row, n in pairs], TIMESTAMP)
    if "headers" in present and any(row.get("headers") for row in rows):
        columns["_headers"] = pa.array([_header_items(row, n) for row, n in pairs], HEADERS)
    return columns


def _bytes(value: Any, encoding: str | None, what: str, number: int) -> bytes | None:
    """Return the bytes of a JSON value: UTF-8 of text, decoded base64 if so marked, otherwise JSON text."""
    if value is None:
        return None
    if encoding is None:
        try:
            return (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))).encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"line {number}: {what} has a lone surrogate ({error.object[error.start]!a}), which text cannot "
                "hold: correct it, or give the bytes as base64"
            ) from None
    if encoding != BASE64 or not isinstance(value, str):
        raise InvalidArgument(f'line {number}: {what}_encoding {encoding!r} is unknown: leave it out or set "base64"')
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise InvalidArgument(f"line {number}: {what} is marked as base64 but is not: {error}") from None


def _moment(value: Any, number: int) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise InvalidArgument(
            f"line {number}: timestamp {value!r} is not ISO 8601, like 2026-01-31T12:00:00Z (in all lines or in none)"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _header_items(row: Row, number: int) -> list[tuple[str, bytes | None]] | None:
    headers = row.get("headers")
    if headers is None:
        return None
    if isinstance(headers, list):
        return [_header_item(item, number) for item in headers]
    if not isinstance(headers, dict):
        raise InvalidArgument(f"line {number}: headers is neither an object nor a list of [name, value]")
    encodings = row.get("headers_encoding") or {}
    return [(name, _bytes(value, encodings.get(name), f"header {name!r}", number)) for name, value in headers.items()]


def _header_item(item: Any, number: int) -> tuple[str, bytes | None]:
    match item:
        case [str() as name, value, *encoding] if len(encoding) <= 1:
            return name, _bytes(value, encoding[0] if encoding else None, f"header {name!r}", number)
    raise InvalidArgument(f'line {number}: header {item!r:.100} is not [name, value] or [name, value, "base64"]')


def _typed_records(rows: list[Row], schema: pa.Schema, numbers: Sequence[int]) -> pa.Table:
    for row, number in zip(rows, numbers, strict=True):
        if not isinstance(row.get("value"), dict) or not row.keys() <= FIELDS:
            raise InvalidArgument(f'line {number} is not a record whose "value" is a row, as the lines before it are')
    table = _typed_rows([row["value"] for row in rows], schema, numbers)
    encoded = set().union(*(row.get("value_encoding") or () for row in rows))
    for name in encoded & set(schema.names):
        values = [
            _bytes(row["value"].get(name), (row.get("value_encoding") or {}).get(name), name, n)
            for row, n in zip(rows, numbers, strict=True)
        ]
        index = schema.get_field_index(name)
        table = table.set_column(index, schema.field(index), pa.array(values, schema.field(index).type))
    for name, column in _envelope(rows, numbers).items():
        table = table.append_column(name, column)
    return table


def _typed_rows(rows: list[Row], schema: pa.Schema, numbers: Sequence[int]) -> pa.Table:
    """Return rows as a table, converted as by Arrow's JSON reader: times, decimals and bytes are text."""
    wire = pa.schema([pa.field(f.name, pa.string() if _is_text_in_json(f.type) else f.type) for f in schema])
    try:
        return _convert(rows, wire, schema)
    except pa.ArrowNotImplementedError as error:
        raise InvalidArgument(f"the topic has a column that JSON lines cannot fill: {_lacking(wire, error)}") from None
    except _DOES_NOT_FIT as error:
        for row, number in zip(rows, numbers, strict=True):
            try:
                _convert([row], wire, schema)
            except _DOES_NOT_FIT as reason:
                raise InvalidArgument(
                    f"line {number} does not fit the topic's schema: {_reason(row, schema, reason)}"
                ) from None
        raise InvalidArgument(f"the lines from {numbers[0]} do not fit the topic's schema: {error}") from None


def _convert(rows: list[Row], wire: pa.Schema, schema: pa.Schema) -> pa.Table:
    columns = _not_finite(rows, schema)
    others = [{name: value for name, value in row.items() if name not in columns} for row in rows] if columns else rows
    table = _read_json(others, pa.schema([field for field in wire if field.name not in columns]))
    for index, field in enumerate(schema):
        if field.name in columns:
            table = table.add_column(index, field, columns[field.name])
        elif pa.types.is_time(field.type):  # Arrow cannot cast text to times
            texts = table.column(index).to_pylist()
            moments = [None if text is None else time.fromisoformat(text) for text in texts]
            table = table.set_column(index, field, pa.array(moments, field.type))
    return table.cast(schema)


def _not_finite(rows: list[Row], schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the float columns with a value that Arrow's JSON reader rejects."""
    columns: dict[str, pa.Array] = {}
    for field in schema:
        if _has_floats(field.type) and any(_is_special(row.get(field.name)) for row in rows):
            columns[field.name] = pa.array([_floats(row.get(field.name), field.type) for row in rows], field.type)
    return columns


def _is_special(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str):
        return value in _NOT_FINITE
    if isinstance(value, list):
        return any(map(_is_special, value))
    return isinstance(value, dict) and any(map(_is_special, value.values()))


def _has_floats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind)) or any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def _floats(value: Any, kind: pa.DataType) -> Any:
    """Return the value with floats in place of the names of special numbers."""
    if pa.types.is_floating(kind):
        return float(value) if isinstance(value, str) and value in _NOT_FINITE else value
    if isinstance(value, list) and kind.num_fields == 1:
        return [_floats(each, kind.field(0).type) for each in value]
    if isinstance(value, dict) and pa.types.is_struct(kind):
        types = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        unknown = sorted(value.keys() - types.keys())
        if unknown:
            raise ValueError(f"no field {unknown[0]!r} in {kind}")
        return {name: _floats(each, types[name]) for name, each in value.items()}
    return value


def _read_json(rows: list[Row], schema: pa.Schema) -> pa.Table:
    text = "\n".join(map(json.dumps, rows)).encode()
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    # One block, so that one object may be as long as a line.
    whole = pa.json.ReadOptions(block_size=len(text) + 1, use_threads=False)
    return pa.json.read_json(io.BytesIO(text), read_options=whole, parse_options=options)


def _lacking(wire: pa.Schema, error: Exception) -> str:
    """Return the column that Arrow's JSON reader cannot read, with its reason."""
    for field in wire:
        try:
            _read_json([{}], pa.schema([field]))
        except pa.ArrowNotImplementedError as reason:
            return f"{field.name!r} is {field.type} ({reason}): use --format parquet or arrow"
    return str(error)


def _reason(row: Row, schema: pa.Schema, error: Exception) -> str:
    unknown = sorted(row.keys() - set(schema.names))
    return f"it has no column {unknown[0]!r}" if unknown else str(error).replace(" in row 0", "")


def _is_text_in_json(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind))
