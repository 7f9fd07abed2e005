"""Conversion of ``topic.json`` and ``lineage.json``, a topic's metadata for readers without etcd.

Both lie beside the topic's files, and the leader rewrites them. They repeat the values of ``codec.state.metadata``,
formatted for people as well: ``topic.json`` spells the schema as ``columns``, and ``lineage.json`` has one segment per
line, without the sequences of its producers. Readers ignore unknown fields, so that an older reader can read a newer
cluster.
"""

import json
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from seaweedmq.codec.paths import LINEAGE_DOCUMENT
from seaweedmq.codec.state.json_fields import JsonFields, to_json
from seaweedmq.codec.state.metadata import lineage_fields, segment_from_fields, topic_fields, topic_from_json
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName

_VERSION = 1


def topic_document(topic: Topic) -> bytes:
    """Return ``topic.json``: the topic as in etcd, its low watermarks, and its columns.

    ``columns`` has name, Arrow type and nullability for people and foreign tools; readers take the schema from the
    metadata.
    """
    fields = topic_fields(topic)
    if topic.low_watermarks:
        fields["low_watermarks"] = list(topic.low_watermarks)
    schema = None if topic.schema is None else schema_from_bytes(topic.schema)
    fields["columns"] = (
        None if schema is None else [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]
    )
    return json.dumps(fields, indent=2, ensure_ascii=False).encode() + b"\n"


def topic_from_document(content: bytes) -> Topic:
    """Return the topic of ``topic.json``, or raise Corrupt or, for a later version, Unsupported."""
    return topic_from_json(content)


def deleted_document(uid: int) -> bytes:
    """Return what replaces both documents of a deleted topic on an object store, where a name is freed only so."""
    return to_json({"v": _VERSION, "deleted": str(uid)})


def is_deleted_document(content: bytes) -> bool:
    """Whether a document is that of a deleted topic; a damaged one is not."""
    try:
        fields: Any = json.loads(content)
    except ValueError:
        return False
    return isinstance(fields, dict) and "deleted" in fields


def lineage_line(segment: Segment) -> bytes:
    """Return the line of a segment in ``lineage.json``, which callers may cache: a sealed segment never changes."""
    return to_json(lineage_fields(segment))


def lineage_document(
    name: TopicName, segments: Iterable[Segment], line: Callable[[Segment], bytes] = lineage_line
) -> bytes:
    """Return ``lineage.json``: all segments of the topic, open and sealed, by id."""
    lines = map(line, sorted(segments, key=attrgetter("id")))
    head = f'{{"v": {_VERSION}, "topic": {json.dumps(str(name))}, "segments": [\n'.encode()
    return b"".join((head, b",\n".join(lines), b"\n]}\n"))


def lineage_from_document(content: bytes) -> tuple[TopicName, tuple[Segment, ...]]:
    """Return the topic's name and its segments by id from ``lineage.json``.

    Raises Corrupt if it is not the JSON of a lineage, or holds a segment of another topic; Unsupported for a later
    version.
    """
    try:
        fields: Any = json.loads(content)
        version = fields["v"]
        name = TopicName.parse(fields["topic"])
        entries = list(fields["segments"])
    except (ValueError, KeyError, TypeError, AttributeError, InvalidArgument) as error:
        raise Corrupt(f"{LINEAGE_DOCUMENT} is not readable ({error}): it is rewritten at the next change") from error
    if version != _VERSION:
        raise Unsupported(f"{LINEAGE_DOCUMENT} has version {version}, this build reads {_VERSION}: upgrade the reader")
    segments = sorted((segment_from_fields(JsonFields.of("segment", entry)) for entry in entries), key=lambda s: s.id)
    foreign = next((s for s in segments if s.topic != name), None)
    if foreign is not None:
        raise Corrupt(f"{LINEAGE_DOCUMENT} of {name} holds {foreign}, a segment of another topic")
    return name, tuple(segments)
