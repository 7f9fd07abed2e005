"""What the broker and its table worker say to each other: one JSON object a line.

Request: ``{"root", "topic" (as codec.metadata), "logs": [file], "end_offset", "row_group_bytes"}``.
Answer: ``{"tables": [file]}`` or ``{"error": code, "message"}``. A file is the fields of ``model.files.SegmentFile``.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seaweedmq.codec.metadata import topic_to_json
from seaweedmq.errors import ALL_KINDS, SeaweedMQError
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic, TopicName


def encode_request(
    root: Path, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None, row_group_bytes: int
) -> bytes:
    """One line."""
    request = {
        "root": str(root),
        "topic": topic_to_json(topic).decode(),
        "logs": [file_fields(f) for f in logs],
        "end_offset": end_offset,
        "row_group_bytes": row_group_bytes,
    }
    return json.dumps(request).encode() + b"\n"


def decode_answer(line: bytes) -> list[SegmentFile]:
    """The tables of an answer, or its error raised."""
    answer = json.loads(line)
    if "error" in answer:
        kinds = {kind.code: kind for kind in ALL_KINDS}
        raise kinds.get(answer["error"], SeaweedMQError)(answer["message"])
    return [file_of(fields) for fields in answer["tables"]]


def file_fields(file: SegmentFile) -> dict[str, Any]:
    """A file as JSON has it."""
    return {**dataclasses.asdict(file), "topic": str(file.topic)}


def file_of(fields: dict[str, Any]) -> SegmentFile:
    """Inverse of :func:`file_fields`."""
    return SegmentFile(**{**fields, "topic": TopicName.parse(fields["topic"]), "kind": FileKind(fields["kind"])})
