"""Checks of an Arrow IPC message's metadata before Arrow acts on it.

``pyarrow`` checks that the metadata flatbuffer is well-formed, and ``validate(full=True)`` that values lie inside their
buffers. Neither rejects a compressed body (a small one can unpack to gigabytes), buffers beyond those of the schema
(hidden bytes), or many columns on the same bytes (16 MiB that expand to gigabytes as Parquet). Building an array of a
map with a null key aborts the process (an ``ARROW_CHECK`` in ``MapArray``). Reading rejects it first, but no
documentation promises that order. This module rejects all of these, by reading the few fields it needs, see
https://arrow.apache.org/docs/format/Columnar.html#ipc-message-format
"""

import struct
from dataclasses import dataclass

import pyarrow as pa

from seaweedmq.errors import InvalidArgument

_CONTINUATION = b"\xff\xff\xff\xff"
_PREFIX_BYTES = 8
ALIGNMENT_BYTES = 8
_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")

# Slots in the vtables of Message.fbs: table Message, table RecordBatch; and the union tag of RecordBatch.
_MESSAGE_TYPE, _MESSAGE_HEADER = 1, 2
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION, _BATCH_VARIADIC = 0, 1, 2, 3, 4
_TYPE_RECORD_BATCH = 3


ARROW_FAILURES: tuple[type[Exception], ...] = (pa.ArrowException, OSError, EOFError, ValueError, TypeError)
"""Exceptions that pyarrow raises on hostile bytes, found by mutation (``tests/codec/hostile.py``). Not all are
ArrowExceptions. ValueError includes names that are not UTF-8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The exact numbers of field nodes and buffers in a message of a schema."""

    nodes: int
    buffers: int
    full_nodes: tuple[int, ...]
    """Nodes without nulls, regardless of the schema: entries and keys of maps."""


def layout_of(schema: pa.Schema) -> Layout:
    """Return the layout of a schema's messages, for types that a payload may have."""
    kinds: list[pa.DataType] = []
    full: list[int] = []
    for field in schema:
        _walk(field.type, kinds, full)
    return Layout(nodes=len(kinds), buffers=sum(map(_buffers_of, kinds)), full_nodes=tuple(full))


def _walk(kind: pa.DataType, kinds: list[pa.DataType], full: list[int]) -> None:
    """Append the type and all nested types in the order of the field nodes, outer types first."""
    kinds.append(kind)
    if pa.types.is_map(kind):
        full += [len(kinds), len(kinds) + 1]  # the entries struct comes next, then the keys
    for i in range(kind.num_fields):
        _walk(kind.field(i).type, kinds, full)


def _buffers_of(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind) or pa.types.is_fixed_size_list(kind):
        return 1  # validity
    if _is_bytes(kind):
        return 3  # validity, offsets, data
    return 2  # validity, and values or offsets


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_string(kind) or t.is_large_binary(kind) or t.is_large_string(kind))


def open_message(payload: bytes | memoryview, layout: Layout, record_count: int) -> pa.Message:
    """Return the message in ``payload`` if its metadata is that of one plain record batch of the layout.

    Raises InvalidArgument if it is not, and pa.ArrowException if Arrow finds it malformed.
    """
    if payload[:4] != _CONTINUATION:
        raise InvalidArgument("does not begin with an Arrow IPC message: write it with RecordBatch.serialize()")
    if len(payload) % ALIGNMENT_BYTES:
        raise InvalidArgument(f"of {len(payload)} bytes would misalign the next frame: Arrow pads messages to 8 bytes")
    message = pa.ipc.read_message(pa.py_buffer(payload))
    if _PREFIX_BYTES + message.metadata.size + message.body.size != len(payload):
        raise InvalidArgument("has bytes beyond its Arrow IPC message: a frame holds exactly one")
    try:
        _check_metadata(memoryview(message.metadata), message.body.size, layout, record_count)
    except struct.error as e:
        raise InvalidArgument(f"has damaged Arrow metadata ({e}): write it with RecordBatch.serialize()") from e
    return message


def _check_metadata(meta: memoryview, body_bytes: int, layout: Layout, record_count: int) -> None:
    root = _U32.unpack_from(meta, 0)[0]
    tag = _slot(meta, root, _MESSAGE_TYPE)
    header = _slot(meta, root, _MESSAGE_HEADER)
    if tag is None or header is None or meta[tag] != _TYPE_RECORD_BATCH:
        raise InvalidArgument("is not an Arrow record batch: dictionaries, schemas and tensors are not allowed")
    batch = header + _U32.unpack_from(meta, header)[0]
    length = _slot(meta, batch, _BATCH_LENGTH)
    rows = 0 if length is None else _I64.unpack_from(meta, length)[0]
    if rows != record_count:
        raise InvalidArgument(f"holds {rows} records where the header says {record_count}: count them again")
    if _slot(meta, batch, _BATCH_COMPRESSION) is not None:
        raise InvalidArgument("has a compressed body: turn IPC compression off, files are compressed later")
    if _vector(meta, batch, _BATCH_VARIADIC)[1]:
        raise InvalidArgument("has view columns: cast them to binary or string")
    nodes_at, nodes = _vector(meta, batch, _BATCH_NODES)
    buffers_at, buffers = _vector(meta, batch, _BATCH_BUFFERS)
    if nodes != layout.nodes or buffers != layout.buffers:
        raise InvalidArgument(
            f"has {nodes} nodes and {buffers} buffers where the topic's columns make {layout.nodes} and "
            f"{layout.buffers}: send exactly the columns that the flags and the topic's schema name, in order"
        )
    node_fields = struct.unpack_from(f"<{2 * nodes}q", meta, nodes_at)
    null_counts = node_fields[1::2]
    for values, nulls in zip(node_fields[::2], null_counts, strict=True):
        if not 0 <= nulls <= values:
            raise InvalidArgument(f"claims {nulls} nulls among {values} values: count them")
    if any(null_counts[i] for i in layout.full_nodes):
        raise InvalidArgument("has a map with a null key: every header, and every entry of a map, has a key")
    used = 0
    buffer_fields = struct.unpack_from(f"<{2 * buffers}q", meta, buffers_at)
    for position, size in zip(buffer_fields[::2], buffer_fields[1::2], strict=True):
        if size == 0:
            continue
        if position < used or size < 0:
            raise InvalidArgument("has buffers that overlap or are out of order: write them one behind the other")
        used = position + size
    if used > body_bytes:
        raise InvalidArgument(f"has buffers up to byte {used} in a body of {body_bytes} bytes: it is truncated")


def _slot(meta: memoryview, table: int, slot: int) -> int | None:
    """Return the position of a table's field; None if it has the default value."""
    vtable = table - _I32.unpack_from(meta, table)[0]
    entry = 4 + 2 * slot
    if entry >= _U16.unpack_from(meta, vtable)[0]:
        return None
    offset = _U16.unpack_from(meta, vtable + entry)[0]
    return table + offset if offset else None


def _vector(meta: memoryview, table: int, slot: int) -> tuple[int, int]:
    """Return the position of the first element, and the number of elements."""
    field = _slot(meta, table, slot)
    if field is None:
        return 0, 0
    at = field + _U32.unpack_from(meta, field)[0]
    return at + 4, _U32.unpack_from(meta, at)[0]
