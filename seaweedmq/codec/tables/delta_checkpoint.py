"""Conversion of a whole version of a Delta log to one Parquet file and back, so that readers need no earlier commit.

Source: PROTOCOL.md, "Checkpoints", the classic form: a column per kind of action, a row per action with all other
columns null.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.codec.arrays import array_of, binary_of
from seaweedmq.codec.tables import delta
from seaweedmq.errors import Corrupt

_STRINGS = pa.map_(pa.string(), pa.string())
_TEXT, _LONG = pa.string(), pa.int64()
# All are nullable, as in Delta's own writer: Arrow builds no null struct of fields that are not.


_ADD = pa.struct(
    {"path": _TEXT, "partitionValues": _STRINGS, "size": _LONG, "modificationTime": _LONG}
    | {"dataChange": pa.bool_(), "stats": _TEXT}
)
_REMOVE = pa.struct(
    {"path": _TEXT, "deletionTimestamp": _LONG, "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_()}
    | {"partitionValues": _STRINGS, "size": _LONG}
)
_FORMAT = pa.struct({"provider": _TEXT, "options": _STRINGS})
_METADATA = pa.struct(
    {"id": _TEXT, "name": _TEXT, "format": _FORMAT, "schemaString": _TEXT, "partitionColumns": pa.list_(_TEXT)}
    | {"createdTime": _LONG, "configuration": _STRINGS}
)
_PROTOCOL = pa.struct(
    {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}
    | {"readerFeatures": pa.list_(_TEXT), "writerFeatures": pa.list_(_TEXT)}
)
_TXN = pa.struct({"appId": _TEXT, "version": _LONG, "lastUpdated": _LONG})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a Delta table at a version."""

    metadata: delta.LogMetadata
    features: frozenset[str]
    adds: Sequence[delta.Add]
    removes: Sequence[delta.Remove]
    """Removals recent enough for readers of older versions to need their files."""


def checkpoint_table(checkpoint: Checkpoint) -> pa.Table:
    """Return the table with a row per action."""
    adds, removes = checkpoint.adds, checkpoint.removes
    blocks = [
        ("protocol", _protocol(delta.protocol_of(checkpoint.features))),
        ("metaData", _metadata(checkpoint.metadata)),
        (
            "remove",
            _structs(
                _REMOVE,
                _texts([r.path for r in removes]),
                _longs([r.removed_ms for r in removes]),
                _flags(False, len(removes)),
                _flags(True, len(removes)),
                _maps([{}] * len(removes)),
                _longs([r.size_bytes for r in removes]),
            ),
        ),
        (
            "add",
            _structs(
                _ADD,
                _texts([a.path for a in adds]),
                _maps([{}] * len(adds)),
                _longs([a.size_bytes for a in adds]),
                _longs([a.modified_ms for a in adds]),
                _flags(False, len(adds)),
                _texts([a.stats for a in adds]),
            ),
        ),
    ]
    kinds = {"txn": _TXN, "add": _ADD, "remove": _REMOVE, "metaData": _METADATA, "protocol": _PROTOCOL}
    columns = {
        name: pa.chunked_array(
            [block if owner == name else pa.nulls(len(block), kind) for owner, block in blocks], kind
        )
        for name, kind in kinds.items()
    }
    return pa.table(columns)


def _protocol(action: Mapping[str, Any]) -> pa.Array:
    readers = action.get("readerFeatures")
    return _structs(
        _PROTOCOL,
        array_of(np.array([action["minReaderVersion"]], np.int32), pa.int32()),
        array_of(np.array([action["minWriterVersion"]], np.int32), pa.int32()),
        pa.nulls(1, pa.list_(_TEXT)) if readers is None else _list(readers),
        _list(action["writerFeatures"]),
    )


def _metadata(metadata: delta.LogMetadata) -> pa.Array:
    return _structs(
        _METADATA,
        _texts([metadata.id]),
        _texts([metadata.name]),
        _structs(_FORMAT, _texts(["parquet"]), _maps([{}])),
        _texts([metadata.schema]),
        _list([]),
        _longs([metadata.created_ms]),
        _maps([metadata.configuration]),
    )


def _structs(kind: pa.StructType, *columns: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(columns, fields=[kind.field(i) for i in range(kind.num_fields)])


def _texts(values: Sequence[str]) -> pa.Array:
    return binary_of([value.encode() for value in values]).view(_TEXT)


def _longs(values: Sequence[int]) -> pa.Array:
    return array_of(np.array(values, np.int64), _LONG)


def _flags(value: bool, count: int) -> pa.Array:
    bits = np.packbits(np.full(count, value), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])


def _list(values: Sequence[str]) -> pa.Array:
    return pa.ListArray.from_arrays(array_of(np.array([0, len(values)], np.int32), pa.int32()), _texts(values))


def _maps(values: Sequence[Mapping[str, str]]) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    items = [item for value in values for item in value.items()]
    keys, others = _texts([key for key, _ in items]), _texts([other for _, other in items])
    return pa.MapArray.from_arrays(array_of(offsets, pa.int32()), keys, others)


def checkpoint_of(table: pa.Table, name: str) -> Checkpoint:
    """Return the checkpoint of a table, which other writers may have written as well.

    Raises Corrupt if it is damaged, or of another form; Unsupported if readers must support more than this build does.
    """
    try:
        if "sidecar" in table.column_names and _of(table, "sidecar"):
            raise ValueError("it has sidecar files")
        protocols, metadata = _of(table, "protocol"), _of(table, "metaData")
        if len(protocols) != 1 or len(metadata) != 1:
            raise ValueError(f"{len(protocols)} protocols and {len(metadata)} metaData actions in it")
        return Checkpoint(
            metadata=delta.metadata_of(metadata[0]),
            features=delta.features_of(protocols[0], name),
            adds=[delta.add_of(a) for a in _of(table, "add")],
            removes=[delta.remove_of(a) for a in _of(table, "remove")],
        )
    except (KeyError, TypeError, ValueError) as e:
        raise Corrupt(f"{name} is damaged, or not a checkpoint of SeaweedMQ ({e})") from e


def _of(table: pa.Table, column: str) -> list[dict[str, Any]]:
    """Return the actions of one kind, without fields that are empty in a table without partitions."""
    found: list[dict[str, Any]] = []
    for chunk in pc.drop_null(table.column(column)).chunks:
        wanted = [f.name for f in chunk.type if f.name not in ("partitionValues", "tags", "stats_parsed")]
        columns = [chunk.field(name).to_pylist() for name in wanted]
        found += [dict(zip(wanted, row, strict=True)) for row in zip(*columns, strict=True)]
    return found
