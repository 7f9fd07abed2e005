"""Protocol between a broker and its table worker: one JSON object per line.

Requests, each with ``"root", "cluster_id", "topic" (as codec.state.metadata), "row_group_bytes", "table_grace_s",
"confirmed_us"``: ``{"kind": "convert", "logs": [file], "end_offset"}``; ``{"kind": "compact", "tables": [file],
"low_watermark"}`` to merge tables, without the records below the low watermark; and ``{"kind": "reconcile"}``, which
updates the Delta log of the topic from its tables. The other requests also do that. The root must hold the marker of
``cluster_id``, unless that is null. ``confirmed_us`` is the time that the broker's clocks confirm
for ``table_grace_s``: the worker cannot confirm one, since it ends when idle.

The reply is ``{"tables": [file], "warning"}``, where the warning is the reason why the log is out of date, or null; or
``{"error": code, "message"}``. A file has the fields of ``model.files.SegmentFile``.
"""

import dataclasses
import json
from typing import Any, NamedTuple

from seaweedmq.codec.state.metadata import topic_to_json
from seaweedmq.errors import ALL_KINDS, SeaweedMQError
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.place import Place

CONVERT, COMPACT, RECONCILE = "convert", "compact", "reconcile"


class Answer(NamedTuple):
    """The reply to a request."""

    tables: list[SegmentFile]
    warning: str | None
    """Reason why the topic's Delta log is out of date; None if it is not."""


def encode_request(kind: str, place: Place, cluster_id: str | None, topic: Topic, **fields: Any) -> bytes:
    """Encode a request of a kind with its other fields, as one line."""
    common = {"root": str(place), "cluster_id": cluster_id, "topic": topic_to_json(topic).decode()}
    return _line({"kind": kind, **common, **fields})


def encode_answer(answer: Answer) -> bytes:
    """Encode a reply, as one line."""
    return _line({"tables": [file_fields(f) for f in answer.tables], "warning": answer.warning})


def encode_error(error: SeaweedMQError) -> bytes:
    """Encode an error reply, as one line."""
    return _line({"error": error.code, "message": str(error)})


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def decode_answer(line: bytes) -> Answer:
    """Decode a reply, and raise the error of an error reply."""
    answer = json.loads(line)
    if "error" in answer:
        kinds = {kind.code: kind for kind in ALL_KINDS}
        raise kinds.get(answer["error"], SeaweedMQError)(answer["message"])
    return Answer([file_of(fields) for fields in answer["tables"]], answer["warning"])


def file_fields(file: SegmentFile) -> dict[str, Any]:
    """Return the JSON fields of a file."""
    return {**dataclasses.asdict(file), "topic": str(file.topic)}


def file_of(fields: dict[str, Any]) -> SegmentFile:
    """Return the file of JSON fields."""
    return SegmentFile(**{**fields, "topic": TopicName.parse(fields["topic"]), "kind": FileKind(fields["kind"])})
