"""Conversion of a Delta log's commits to JSON lines and back. Pure.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Actions" and "Writer Requirements". These logs use
no partitions, deletion vectors or mapped columns. Only SeaweedMQ knows their writer feature ``seaweedmq``, which keeps
other writers out, including their VACUUM: it would delete the tables' own names as orphans.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from seaweedmq.errors import Corrupt, Unsupported

WRITER_FEATURE = "seaweedmq"
NTZ_FEATURE = "timestampNtz"
READER_VERSION_MAX, WRITER_VERSION = 3, 7
_FORMAT = {"provider": "parquet", "options": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A table that a version adds."""

    path: str
    """Path relative to the folder of the tables."""
    size_bytes: int
    modified_ms: int
    """Wall clock in milliseconds since 1970 UTC."""
    data_change: bool = True
    """Whether the table has new records; otherwise it replaces tables of the previous version."""
    stats: str
    """Statistics as JSON, see :func:`stats_json`."""

    @property
    def records(self) -> int:
        """The number of records; 0 if the writer did not record it."""
        try:
            return int(json.loads(self.stats or "{}").get("numRecords", 0))
        except (AttributeError, TypeError, ValueError):
            return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """A table that a version removes."""

    path: str
    size_bytes: int
    removed_ms: int
    data_change: bool = True
    """Whether the version loses the records of the table; otherwise tables that it adds have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetadata:
    """The metadata of the whole Delta table."""

    id: str
    """UUID of the table; readers treat another one as another table."""
    name: str
    schema: str
    """Schema as JSON, see ``codec.delta_schema``."""
    configuration: Mapping[str, str]
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of the log."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    metadata: LogMetadata | None = None
    """Metadata, if this version changes it."""
    features: frozenset[str] | None = None
    """Features that readers must support, if this version changes them."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Information for people: ``timestamp`` in ms, ``operation``, ``operationMetrics``."""


def commit_info(
    *, operation: str, timestamp_ms: int, files: tuple[int, int, int], rows: tuple[int, int]
) -> dict[str, Any]:
    """Return the information about a commit at ``timestamp_ms``, wall clock, for people and ``table history``.

    ``files`` counts the added, the removed and all files of the version, ``rows`` those of added and of all files.
    """
    added, removed, total = files
    return {
        "timestamp": timestamp_ms,
        "operation": str(operation),
        "operationParameters": {},
        "isBlindAppend": False,
        "engineInfo": "SeaweedMQ",
        "operationMetrics": {
            "numAddedFiles": str(added),
            "numRemovedFiles": str(removed),
            "numOutputRows": str(rows[0]),
            "numTotalFiles": str(total),
            "numTotalRows": str(rows[1]),
        },
    }


def encode_commit(commit: Commit) -> bytes:
    """Return the JSON lines of a commit."""
    return b"".join(json.dumps(a, separators=(",", ":")).encode() + b"\n" for a in _actions(commit))


def _actions(commit: Commit) -> Iterator[dict[str, Any]]:
    if commit.info:
        yield {"commitInfo": dict(commit.info)}
    if commit.features is not None:
        yield {"protocol": protocol_of(commit.features)}
    if commit.metadata is not None:
        yield {
            "metaData": {
                "id": commit.metadata.id,
                "name": commit.metadata.name,
                "format": _FORMAT,
                "schemaString": commit.metadata.schema,
                "partitionColumns": [],
                "configuration": dict(commit.metadata.configuration),
                "createdTime": commit.metadata.created_ms,
            }
        }
    for remove in commit.removes:
        yield {
            "remove": {
                "path": remove.path,
                "deletionTimestamp": remove.removed_ms,
                "dataChange": remove.data_change,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": remove.size_bytes,
            }
        }
    for add in commit.adds:
        yield {
            "add": {
                "path": add.path,
                "partitionValues": {},
                "size": add.size_bytes,
                "modificationTime": add.modified_ms,
                "dataChange": add.data_change,
                "stats": add.stats,
            }
        }


def protocol_of(features: Iterable[str]) -> dict[str, Any]:
    """Return the protocol action of a log whose readers must support these features."""
    reader = sorted(features)
    writer = sorted({*reader, WRITER_FEATURE})
    if not reader:
        return {"minReaderVersion": 1, "minWriterVersion": WRITER_VERSION, "writerFeatures": writer}
    return {
        "minReaderVersion": READER_VERSION_MAX,
        "minWriterVersion": WRITER_VERSION,
        "readerFeatures": reader,
        "writerFeatures": writer,
    }


def decode_commit(data: bytes, name: str) -> Commit:
    """Return the commit of the JSON lines of a file, which other writers may have written; ignores what is unknown.

    ``name`` is the name of the file for errors. Raises Corrupt if the file is damaged, and Unsupported if readers must
    support more than this build does.
    """
    adds: list[Add] = []
    removes: list[Remove] = []
    metadata: LogMetadata | None = None
    features: frozenset[str] | None = None
    info: Mapping[str, Any] = {}
    if not data.strip():
        raise Corrupt(f"{name} is empty")
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            (kind, action), *_ = json.loads(line).items()
            if kind == "add":
                adds.append(add_of(action))
            elif kind == "remove":
                removes.append(remove_of(action))
            elif kind == "metaData":
                metadata = metadata_of(action)
            elif kind == "protocol":
                features = features_of(action, name)
            elif kind == "commitInfo":
                info = dict(action)
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise Corrupt(f"{name} is damaged in line {number} ({e})") from e
    return Commit(adds=tuple(adds), removes=tuple(removes), metadata=metadata, features=features, info=info)


def add_of(action: Mapping[str, Any]) -> Add:
    """Return the value of an ``add`` action; KeyError, TypeError or ValueError if not, or for a deletion vector."""
    if action.get("deletionVector"):
        raise ValueError("it has deletion vectors, which SeaweedMQ does not write")
    return Add(
        path=str(action["path"]),
        size_bytes=int(action["size"]),
        modified_ms=int(action["modificationTime"]),
        data_change=bool(action["dataChange"]),
        stats=str(action.get("stats") or "{}"),
    )


def remove_of(action: Mapping[str, Any]) -> Remove:
    """Return the value of a ``remove`` action, or raise KeyError, TypeError or ValueError."""
    return Remove(
        path=str(action["path"]),
        size_bytes=int(action.get("size") or 0),
        removed_ms=int(action.get("deletionTimestamp") or 0),
        data_change=bool(action["dataChange"]),
    )


def metadata_of(action: Mapping[str, Any]) -> LogMetadata:
    """Return the value of a ``metaData`` action, or raise KeyError, TypeError or ValueError."""
    return LogMetadata(
        id=str(action["id"]),
        name=str(action.get("name") or ""),
        schema=str(action["schemaString"]),
        configuration={str(k): str(v) for k, v in dict(action.get("configuration") or {}).items()},
        created_ms=int(action.get("createdTime") or 0),
    )


def features_of(action: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return the features that readers must support, or raise Unsupported if this build does not support them.

    Raises KeyError, TypeError or ValueError if it is not a ``protocol`` action.
    """
    features = frozenset(str(f) for f in action.get("readerFeatures") or ())
    if int(action["minReaderVersion"]) > READER_VERSION_MAX or features - {NTZ_FEATURE}:
        raise Unsupported(f"{name} requires readers to support {', '.join(sorted(features))}: another program wrote it")
    return features


def stats_json(records: int, columns: Mapping[str, tuple[int | str, int | str, int]]) -> str:
    """Return a table's statistics, by which readers skip tables: column -> least, greatest, number of nulls."""
    return json.dumps(
        {
            "numRecords": records,
            "minValues": {name: low for name, (low, _, _) in columns.items()},
            "maxValues": {name: high for name, (_, high, _) in columns.items()},
            "nullCount": {name: nulls for name, (_, _, nulls) in columns.items()},
        },
        separators=(",", ":"),
    )
