"""Conversion of plain values to requests, and of replies to plain values that can be compared.

Values that two brokers cannot have in common get a name: ``<node>`` for the broker's id, ``<epoch>`` for a leader's
epoch, ``<t0+5>`` for a time that the script gave, ``<now>`` for one that it did not. Ids that brokers assign are named
in the order of their appearance: ``<member 1>``, ``<producer 2>``. Arrays of structures are sets in Kafka's protocol:
they are sorted.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from seaweedmq.kafka.wire.messages import REPLIES, REQUESTS, UUID

FRESH_MS = 20 * 60 * 1000
"""The script's times lie between its beginning and this much later, in the past."""
_NODES = frozenset(
    {
        "node_id", "broker_id", "leader_id", "controller_id", "replica_nodes", "isr_nodes", "offline_replicas",
        "eligible_leader_replicas", "last_known_elr",
    }
)  # fmt: skip
_EPOCHS = frozenset({"leader_epoch", "current_leader_epoch", "partition_leader_epoch"})
_TIMES = frozenset({"timestamp", "log_append_time_ms", "last_timestamp", "first_timestamp", "max_timestamp"})
_WORDS = frozenset({"error_message", "batch_index_error_message"})


def built(api: int, version: int, fields: Mapping[str, Any]) -> Any:
    """Return a request with these fields. Structures may be mappings."""
    message = REQUESTS[api]
    return message(version=version, **_built(message.fields, version, fields))


def _built(known: Mapping[str, Any], version: int, given: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in given.items():
        field = known[name]
        if value is not None and field.is_struct_array():
            made[name] = [_structure(field, version, one) for one in value]
        elif value is not None and field.is_struct():
            made[name] = _structure(field, version, value)
        else:
            made[name] = value
    return made


def _structure(field: Any, version: int, value: Any) -> Any:
    if isinstance(value, Mapping):
        return field.data_class(version=version, **_built(field.fields, version, value))
    return value


class Names:
    """Names for values that two brokers cannot have in common. ``t0_ms``: beginning of the script's time."""

    def __init__(self, t0_ms: int) -> None:
        self.t0_ms = t0_ms
        self.node_id: int | None = None
        self._known: dict[tuple[str, Any], str] = {}

    def of(self, kind: str, value: Any) -> str:
        count = sum(1 for other, _ in self._known if other == kind)
        return self._known.setdefault((kind, value), f"<{kind} {count + 1}>")

    def text(self, value: str) -> str:
        """Return a text, or its name if it is the id of a member."""
        return self._known.get(("member", value), value)

    def time(self, value: int) -> int | str:
        """Return the name of a time in milliseconds, if it has one."""
        if value < 0:
            return value
        after_ms = value - self.t0_ms
        if abs(after_ms) < FRESH_MS:
            return f"<t0{after_ms:+}>"
        return "<now>" if 0 < after_ms < 10 * FRESH_MS else value


def said(api: int, version: int, reply: Any, names: Names) -> Any:
    """Return a reply as plain values."""
    return _said(REPLIES[api].fields, version, reply, names)


def _said(fields: Mapping[str, Any], version: int, part: Any, names: Names) -> dict[str, Any]:
    return {
        field.name: _value(field, version, getattr(part, field.name), names)
        for field in fields.values()
        if field.for_version_q(version)
    }


def _value(field: Any, version: int, value: Any, names: Names) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return sorted((_said(field.fields, version, one, names) for one in value), key=json.dumps)
    if field.is_struct():
        return _said(field.fields, version, value, names)
    if isinstance(value, list | tuple | set | frozenset):
        return sorted((_plain(field.name, one, names) for one in value), key=str)
    return _plain(field.name, value, names)


def _plain(name: str, value: Any, names: Names) -> Any:
    match value:
        case UUID():
            return names.of("id", value)
        case bytes() | bytearray() | memoryview():
            return batches(bytes(value), names) if name == "records" else bytes(value).decode("latin-1")
        case str() if name in {"member_id", "leader"} and value and not value.startswith("nobody"):
            return names.of("member", value)
        case str() if name in _WORDS:
            return "<words>" if value else value
        case str() if name in {"host", "cluster_id"}:
            return f"<{name}>" if value else value
        case str():
            return names.text(value)
        case bool():
            return value
        case int() if name in _NODES and value == names.node_id:
            return "<node>"
        case int() if name == "port" and value > 0:
            return "<port>"
        case int() if name in _EPOCHS and value >= 0:
            return "<epoch>"
        case int() if name in _TIMES:
            return names.time(value)
        case int() if name == "producer_id" and value >= 0:
            return names.of("producer", value)
        case int() if name == "session_id" and value != 0:
            return "<session>"
    return value


def batches(data: bytes, names: Names) -> list[dict[str, Any]]:
    """Return the record batches of a Fetch reply; an incomplete last one is marked."""
    found, position = [], 0
    while position < len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0] if position + 12 <= len(data) else len(data) + 1
        if position + size > len(data):
            found.append({"cut": True})
            break
        one = DefaultRecordBatch(bytearray(data[position : position + size]))
        (epoch,) = struct.unpack_from(">i", data, position + 12)
        producer, producer_epoch, sequence = struct.unpack_from(">qhi", data, position + 43)
        found.append(
            {
                "base_offset": one.base_offset,
                "leader_epoch": "<epoch>" if epoch >= 0 else epoch,
                "magic": data[position + 16],
                "attributes": one.attributes,
                "last_offset_delta": one.last_offset_delta,
                "first_timestamp": names.time(one.first_timestamp),
                "max_timestamp": names.time(one.max_timestamp),
                "producer": [names.of("producer", producer) if producer >= 0 else producer, producer_epoch, sequence],
                "has_right_crc": one.validate_crc(),
                "records": [
                    [
                        record.offset, names.time(record.timestamp), _text(record.key), _text(record.value),
                        [[key, _text(value)] for key, value in record.headers],
                    ]
                    for record in one
                ],
            }
        )  # fmt: skip
        position += size
    return found


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    return value.decode("latin-1") if len(value) <= 100 else f"{len(value)} bytes, {value[:20].decode('latin-1')}..."
