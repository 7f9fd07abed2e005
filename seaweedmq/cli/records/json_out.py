"""Writer of JSON lines for `subscribe --format jsonl`; ``json_in`` reads them back.

A record of a plain topic is `{"segment", "offset", "timestamp", "key", "value", "headers"}`; in topics with partitions
`"partition"` follows the segment. Bytes that are not UTF-8 are base64, and a field `key_encoding`, `value_encoding` or
`headers_encoding` is `"base64"` (for headers an object with the encoded names). Headers are an object. If a name is
repeated they are a list of `[name, value]` in their order, with `[name, value, "base64"]` for bytes that are not UTF-8.
A record of a topic with a schema has its columns as an object in `value`. JSON lacks special numbers: they are the
texts `"NaN"`, `"Infinity"` and `"-Infinity"`. A record with its payload by reference has a null value, and `reference`
with its path, size, content type and hash.
"""

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from seaweedmq.codec.python_values import python_rows
from seaweedmq.codec.references import REFERENCE, reference_json, reference_of

BASE64 = "base64"
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Texts for numbers that JSON lacks, as JavaScript, Java and protobuf write them."""

_quote = json.encoder.encode_basestring


def lines(batch: pa.RecordBatch) -> bytes:
    """Return the lines of a batch of records, with the columns that subscribers get, in their order."""
    values = _texts(batch.column("_value"), "value") if is_plain(batch) else row_texts(batch, marked=True)
    columns = (
        _places(batch),
        batch.column("_offset").to_pylist(),
        _times(batch.column("_timestamp")),
        _texts(batch.column("_key"), "key"),
        values,
        _headers(batch.column("_headers")),
    )
    texts = [
        f'{{"segment":{place},"offset":{offset},"timestamp":{time},"key":{key},"value":{value},"headers":{headers}}}\n'
        for place, offset, time, key, value, headers in zip(*columns, strict=True)
    ]
    if REFERENCE.name in batch.schema.names:
        texts = [_with_reference(*each) for each in zip(texts, batch.column(REFERENCE.name).to_pylist(), strict=True)]
    return "".join(texts).encode()


def _with_reference(line: str, stored: dict[str, Any] | None) -> str:
    reference = reference_of(stored)
    return line if reference is None else f'{line[:-2]},"reference":{reference_json(reference).decode()}}}\n'


def _places(batch: pa.RecordBatch) -> list[Any]:
    """Return the text of each record's segment, followed by its partition if it has one."""
    segments: list[Any] = batch.column("_segment").to_pylist()
    if "_partition" not in batch.schema.names:
        return segments
    partitions = batch.column("_partition").to_pylist()
    return [f'{segment},"partition":{partition}' for segment, partition in zip(segments, partitions, strict=True)]


def is_plain(batch: pa.RecordBatch) -> bool:
    """Whether the records have a value, not the columns of a schema."""
    return "_value" in batch.schema.names


def row_texts(batch: pa.RecordBatch, *, marked: bool) -> list[str]:
    """Return each row's columns as a JSON object; ``marked`` adds `,"value_encoding":{...}` for base64."""
    texts = []
    for row in python_rows(batch.select([n for n in batch.schema.names if not n.startswith("_")])):
        encoded: list[str] = []
        text = json.dumps({name: _plain(value, name, encoded) for name, value in row.items()}, ensure_ascii=False)
        if encoded and marked:
            text += f',"value_encoding":{json.dumps(dict.fromkeys(encoded, BASE64))}'
        texts.append(text)
    return texts


def _plain(value: Any, name: str, encoded: list[str]) -> Any:
    """Return a value as JSON can hold it; ``encoded`` collects the columns with bytes in base64."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_of(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            encoded.append(name)
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {inner: _plain(item, name, encoded) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, name, encoded) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _name_of(value: float) -> str:
    return NOT_FINITE[0] if math.isnan(value) else NOT_FINITE[1 if value > 0 else 2]


def _texts(column: pa.Array, what: str) -> list[str]:
    """Return a binary column as JSON: quoted text, null, or base64 followed by its encoding field."""
    if column.null_count == len(column):
        return ["null"] * len(column)
    try:
        texts = column.cast(pa.string()).to_pylist()  # checks the UTF-8 of all at once
    except pa.ArrowInvalid:
        return [_text(value, what) for value in column.to_pylist()]
    if column.null_count:
        return ["null" if text is None else _quote(text) for text in texts]
    return list(map(_quote, texts))


def _text(value: bytes | None, what: str) -> str:
    if value is None:
        return "null"
    try:
        return _quote(value.decode())
    except UnicodeDecodeError:
        return f'"{base64.b64encode(value).decode()}","{what}_encoding":"{BASE64}"'


def _times(column: pa.Array) -> list[str]:
    """Format each distinct time once: most records of a batch share theirs."""
    coded = column.dictionary_encode()
    texts = [f'"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"' for moment in coded.dictionary.to_pylist()]
    return [texts[index] for index in coded.indices.to_pylist()]


def _headers(column: pa.Array) -> list[str]:
    if column.null_count == len(column):
        return ["{}"] * len(column)
    return [_header_text(items) if items else "{}" for items in column.to_pylist()]


def _header_text(items: Sequence[tuple[str, bytes | None]]) -> str:
    if len({name for name, _ in items}) < len(items):
        return json.dumps([_header_item(name, value) for name, value in items], ensure_ascii=False)
    encoded: list[str] = []
    text = json.dumps({name: _plain(value, name, encoded) for name, value in items}, ensure_ascii=False)
    return text + (f',"headers_encoding":{json.dumps(dict.fromkeys(encoded, BASE64))}' if encoded else "")


def _header_item(name: str, value: bytes | None) -> list[Any]:
    encoded: list[str] = []
    return [name, _plain(value, name, encoded), *([BASE64] if encoded else ())]
