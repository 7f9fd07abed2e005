"""What the broker and its table worker say to each other: one JSON object a line.

Requests, each with ``"root", "cluster_id", "topic" (as codec.metadata), "table_grace_s", "confirmed_us"``: ``{"kind":
"convert", "logs": [file], "end_offset", "row_group_bytes"}``; ``{"kind": "compact", "tables": [file],
"low_watermark", "row_group_bytes"}`` to merge tables, without the records below the low watermark; and ``{"kind":
"reconcile"}``, which brings the Delta log of the topic in line with its tables. The others do so as well. The root must
hold the marker of ``cluster_id``, unless that is null. ``confirmed_us`` is the time that the broker's clocks confirm
for ``table_grace_s``: the worker, which ends when it is idle, can confirm none.

Answer: ``{"tables": [file], "warning"}``, where the warning tells why the log is not in line, and is null if it is; or
``{"error": code, "message"}``. A file is the fields of ``model.files.SegmentFile``.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seaweedmq.codec.state.metadata import topic_to_json
from seaweedmq.errors import ALL_KINDS, SeaweedMQError
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic, TopicName

CONVERT, COMPACT, RECONCILE = "convert", "compact", "reconcile"


class Answer(NamedTuple):
    """What was done."""

    tables: list[SegmentFile]
    warning: str | None
    """Why the topic's Delta log is not in line with its tables."""


def encode_conversion(
    root: Path,
    cluster_id: str | None,
    topic: Topic,
    logs: Sequence[SegmentFile],
    end_offset: int | None,
    *,
    row_group_bytes: int,
    table_grace_s: float,
    confirmed_us: int,
) -> bytes:
    """One line."""
    convert = {
        "logs": [file_fields(f) for f in logs],
        "end_offset": end_offset,
        "row_group_bytes": row_group_bytes,
    }
    return _line({"kind": CONVERT, **_common(root, cluster_id, topic, table_grace_s, confirmed_us), **convert})


def encode_compaction(
    root: Path,
    cluster_id: str | None,
    topic: Topic,
    tables: Sequence[SegmentFile],
    *,
    low_watermark: int,
    row_group_bytes: int,
    table_grace_s: float,
    confirmed_us: int,
) -> bytes:
    """One line."""
    compact = {
        "tables": [file_fields(f) for f in tables],
        "low_watermark": low_watermark,
        "row_group_bytes": row_group_bytes,
    }
    return _line({"kind": COMPACT, **_common(root, cluster_id, topic, table_grace_s, confirmed_us), **compact})


def encode_reconciliation(
    root: Path, cluster_id: str | None, topic: Topic, *, table_grace_s: float, confirmed_us: int
) -> bytes:
    """One line."""
    return _line({"kind": RECONCILE, **_common(root, cluster_id, topic, table_grace_s, confirmed_us)})


def _common(
    root: Path, cluster_id: str | None, topic: Topic, table_grace_s: float, confirmed_us: int
) -> dict[str, Any]:
    return {
        "root": str(root),
        "cluster_id": cluster_id,
        "topic": topic_to_json(topic).decode(),
        "table_grace_s": table_grace_s,
        "confirmed_us": confirmed_us,
    }


def encode_answer(answer: Answer) -> bytes:
    """One line."""
    return _line({"tables": [file_fields(f) for f in answer.tables], "warning": answer.warning})


def encode_error(error: SeaweedMQError) -> bytes:
    """One line."""
    return _line({"error": error.code, "message": str(error)})


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def decode_answer(line: bytes) -> Answer:
    """The inverse of :func:`encode_answer`; of an error, that error is raised."""
    answer = json.loads(line)
    if "error" in answer:
        kinds = {kind.code: kind for kind in ALL_KINDS}
        raise kinds.get(answer["error"], SeaweedMQError)(answer["message"])
    return Answer([file_of(fields) for fields in answer["tables"]], answer["warning"])


def file_fields(file: SegmentFile) -> dict[str, Any]:
    """A file as JSON has it."""
    return {**dataclasses.asdict(file), "topic": str(file.topic)}


def file_of(fields: dict[str, Any]) -> SegmentFile:
    """Inverse of :func:`file_fields`."""
    return SegmentFile(**{**fields, "topic": TopicName.parse(fields["topic"]), "kind": FileKind(fields["kind"])})
