"""Error replies to a whole request, for any API and version, made from the schemas.

Kafka's APIs have error codes at different levels: of the whole reply, of each topic, of each partition. A client looks
for its topics and partitions in a reply, so the reply names those of the request, each with the code.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seaweedmq.kafka.wire.error_mapping import ErrorScope
from seaweedmq.kafka.wire.messages import API, REPLIES, Request
from seaweedmq.model.kafka.codes import Code

_ASKED: Mapping[str, Sequence[str]] = {
    "responses": ("topic_data", "resources", "topics", "topic_names"),
    "partition_responses": ("partition_data",),
    "partitions": ("partitions", "partition_indexes"),
    "partition_result": ("partitions",),
    "topics": ("topics",),
    "groups": ("groups",),
    "coordinators": ("coordinator_keys",),
    "results": ("creations", "resources", "topics", "groups_names"),
    "filter_results": ("filters",),
    "replica_election_results": ("topic_partitions",),
}
"""Array of a reply -> arrays of requests, one of which has the corresponding elements."""
_NAMES: Mapping[str, Sequence[str]] = {
    "index": ("index",),
    "partition_index": ("partition_index", "partition", "index"),
    "partition": ("partition",),
    "partition_id": (),
    "name": ("name",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "group_id": ("group_id",),
    "key": (),
    "resource_type": ("resource_type",),
    "resource_name": ("resource_name",),
}
"""Field that identifies a part of a reply -> its names in requests. If the request has bare numbers or strings instead
of objects, these are the value."""
_NOTHING = -1
_UNKNOWN = frozenset(
    {
        "base_offset",
        "committed_offset",
        "controller_id",
        "end_offset",
        "high_watermark",
        "log_start_offset",
        "low_watermark",
        "node_id",
        "port",
        "producer_epoch",
        "producer_id",
    }
)
"""Numeric fields whose value for none is -1, though the schemas do not define it as the default."""

_PLACES: Mapping[int, ErrorScope] = {
    API.PRODUCE: ErrorScope.PRODUCE,
    API.FETCH: ErrorScope.FETCH,
    API.LIST_OFFSETS: ErrorScope.DATA,
    API.OFFSET_FOR_LEADER_EPOCH: ErrorScope.DATA,
    API.DELETE_RECORDS: ErrorScope.DATA,
    API.DESCRIBE_PRODUCERS: ErrorScope.DATA,
    API.METADATA: ErrorScope.METADATA,
    API.DESCRIBE_TOPIC_PARTITIONS: ErrorScope.METADATA,
    API.OFFSET_COMMIT: ErrorScope.COORDINATOR,
    API.OFFSET_FETCH: ErrorScope.COORDINATOR,
    API.FIND_COORDINATOR: ErrorScope.COORDINATOR,
    API.JOIN_GROUP: ErrorScope.COORDINATOR,
    API.HEARTBEAT: ErrorScope.COORDINATOR,
    API.LEAVE_GROUP: ErrorScope.COORDINATOR,
    API.SYNC_GROUP: ErrorScope.COORDINATOR,
    API.DESCRIBE_GROUPS: ErrorScope.COORDINATOR,
    API.LIST_GROUPS: ErrorScope.COORDINATOR,
    API.DELETE_GROUPS: ErrorScope.COORDINATOR,
    API.OFFSET_DELETE: ErrorScope.COORDINATOR,
    API.CONSUMER_GROUP_HEARTBEAT: ErrorScope.COORDINATOR,
    API.INIT_PRODUCER_ID: ErrorScope.COORDINATOR,
}


def error_scope_of(api: int) -> ErrorScope:
    """Return the scope of requests of an API key."""
    return _PLACES.get(api, ErrorScope.ADMIN)


def error_reply(request: Request, code: Code, message: str) -> Any:
    """Return a reply to ``request`` with ``code`` in every error code, and ``message`` in every error message."""
    reply = REPLIES[request.api](version=request.version)
    _fill(reply, reply.fields, request.version, request.body, code, message)
    return reply


def _fill(part: Any, fields: Mapping[str, Any], version: int, asked: Any, code: Code, message: str) -> None:
    here = [field for field in fields.values() if field.for_version_q(version)]
    for field in here:
        if field.name == "error_code":
            setattr(part, field.name, int(code))
        elif field.name == "error_message":
            setattr(part, field.name, message)
        elif field.tagged_field_q(version):
            continue
        elif field.name == "protocol_name" and field.nullable_for_version_q(version):
            setattr(part, field.name, None)
        elif field.is_struct_array():
            setattr(part, field.name, _parts(field, version, asked, code, message))
        elif field.name in _NAMES:
            setattr(part, field.name, _named(field, version, asked))
        elif field.name in _UNKNOWN:
            setattr(part, field.name, _NOTHING)


def _parts(field: Any, version: int, asked: Any, code: Code, message: str) -> list[Any]:
    """Return an element for each of the request; none if the elements have no error code."""
    if not any(one.name == "error_code" or one.is_struct_array() for one in field.fields.values()):
        return []
    parts = []
    for one in _asked(field.name, asked):
        part = field.data_class(version=version)
        _fill(part, field.fields, version, one, code, message)
        parts.append(part)
    return parts


def _asked(name: str, asked: Any) -> Sequence[Any]:
    if asked is None or isinstance(asked, int | str):
        return ()
    for one in _ASKED.get(name, ()):
        if one in asked.fields and (found := getattr(asked, one)):
            return list(found)
    return ()


def _named(field: Any, version: int, asked: Any) -> Any:
    if isinstance(asked, int | str):
        return asked
    for one in _NAMES[field.name]:
        if asked is not None and one in asked.fields:
            found = getattr(asked, one)
            return field.default if found is None and not field.nullable_for_version_q(version) else found
    return field.default
