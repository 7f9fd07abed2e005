"""Versions of a Delta log: what a commit says, as JSON lines. Pure.

After https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Actions" and "Writer Requirements". A log of ours
uses neither partitions nor deletion vectors nor mapped columns. Its writer feature ``seaweedmq`` is known to nobody
else, which keeps other writers out, and with them their VACUUM: it would take the tables' own names for orphans.
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
    """A table that belongs to a version."""

    path: str
    """Relative to the folder of the tables."""
    size_bytes: int
    modified_ms: int
    """Wall clock, since 1970 UTC."""
    brings_records: bool = True
    """False: it holds what others of the version before held."""
    stats: str
    """JSON, see :func:`stats_json`."""

    @property
    def records(self) -> int:
        """0 if the writer did not say."""
        try:
            return int(json.loads(self.stats or "{}").get("numRecords", 0))
        except (AttributeError, TypeError, ValueError):
            return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """A table that does not belong to a version any more."""

    path: str
    size_bytes: int
    removed_ms: int
    takes_records: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetadata:
    """What a log says about the whole table."""

    id: str
    """A UUID; another one is another table to readers."""
    name: str
    schema: str
    """JSON, see ``codec.delta_schema``."""
    configuration: Mapping[str, str]
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    metadata: LogMetadata | None = None
    """Where it changes."""
    features: frozenset[str] | None = None
    """What readers have to know, where that changes."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """For people: ``timestamp`` in ms, ``operation``, ``operationMetrics``."""


def commit_info(
    *, operation: str, timestamp_ms: int, files: tuple[int, int, int], rows: tuple[int, int]
) -> dict[str, Any]:
    """What people and ``table history`` read of a commit.

    Args:
        files: added, removed, and all of the version.
        rows: in what was added, and in all of the version.
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
    """JSON lines."""
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
                "dataChange": remove.takes_records,
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
                "dataChange": add.brings_records,
                "stats": add.stats,
            }
        }


def protocol_of(features: Iterable[str]) -> dict[str, Any]:
    """The protocol action of a log whose readers have to know these features."""
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
    """The inverse of :func:`encode_commit`, for commits of other writers, too: what is not known of them is left out.

    Args:
        name: what messages call the file.

    Raises:
        Corrupt: it is damaged. Unsupported: readers have to know more than this build does.
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
    """Raises KeyError, TypeError, ValueError if that is none; ValueError, too, if it has a deletion vector."""
    if action.get("deletionVector"):
        raise ValueError("it has deletion vectors, which no writer of ours makes")
    return Add(
        path=str(action["path"]),
        size_bytes=int(action["size"]),
        modified_ms=int(action["modificationTime"]),
        brings_records=bool(action["dataChange"]),
        stats=str(action.get("stats") or "{}"),
    )


def remove_of(action: Mapping[str, Any]) -> Remove:
    """Raises KeyError, TypeError, ValueError if that is none."""
    return Remove(
        path=str(action["path"]),
        size_bytes=int(action.get("size") or 0),
        removed_ms=int(action.get("deletionTimestamp") or 0),
        takes_records=bool(action["dataChange"]),
    )


def metadata_of(action: Mapping[str, Any]) -> LogMetadata:
    """Raises KeyError, TypeError, ValueError if that is none."""
    return LogMetadata(
        id=str(action["id"]),
        name=str(action.get("name") or ""),
        schema=str(action["schemaString"]),
        configuration={str(k): str(v) for k, v in dict(action.get("configuration") or {}).items()},
        created_ms=int(action.get("createdTime") or 0),
    )


def features_of(action: Mapping[str, Any], name: str) -> frozenset[str]:
    """What readers have to know.

    Raises:
        Unsupported: this build does not. KeyError, TypeError, ValueError: it is no protocol action.
    """
    features = frozenset(str(f) for f in action.get("readerFeatures") or ())
    if int(action["minReaderVersion"]) > READER_VERSION_MAX or features - {NTZ_FEATURE}:
        raise Unsupported(f"{name} asks readers for {', '.join(sorted(features))}: another program wrote it")
    return features


def stats_json(records: int, columns: Mapping[str, tuple[int | str, int | str, int]]) -> str:
    """Statistics of a table: column -> least, greatest, and how many are null. Readers leave tables out by them."""
    return json.dumps(
        {
            "numRecords": records,
            "minValues": {name: low for name, (low, _, _) in columns.items()},
            "maxValues": {name: high for name, (_, high, _) in columns.items()},
            "nullCount": {name: nulls for name, (_, _, nulls) in columns.items()},
        },
        separators=(",", ":"),
    )
