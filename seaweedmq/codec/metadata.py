"""Values of the etcd keys: compact JSON with ``"v": 1``. Unknown fields are ignored: newer brokers may add some.

``*_to_json`` and ``*_from_json`` are inverses; ``*_fields`` give the same as plain dicts, for ``topic.json`` and
``lineage.json``. Reading raises Corrupt for anything unreadable and Unsupported for a newer ``v``.
"""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar, cast

from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName

METADATA_VERSION = 1
UINT_MAX = 2**64 - 1

_Choice = TypeVar("_Choice", bound=StrEnum)


def topic_fields(topic: Topic) -> dict[str, object]:
    """The topic as JSON values; the schema is base64 of its IPC message."""
    return {
        "v": METADATA_VERSION,
        "name": str(topic.name),
        "uid": topic.uid,
        "replicas": topic.replicas,
        "durability": topic.durability.value,
        "scaling": topic.scaling.value,
        "schema": None if topic.schema is None else base64.b64encode(topic.schema).decode("ascii"),
        "retention_s": topic.retention_s,
        "retention_bytes": topic.retention_bytes,
        "next_segment": topic.next_segment,
        "created_us": topic.created_us,
    }


def segment_fields(segment: Segment) -> dict[str, object]:
    """The segment as JSON values; ``sequences`` are [producer_id, producer_epoch, next_sequence]."""
    return {
        "v": METADATA_VERSION,
        "topic": str(segment.topic),
        "id": segment.id,
        "slots": [segment.slots.lo, segment.slots.hi],
        "epoch": segment.epoch,
        "state": segment.state.value,
        "replicas": list(segment.replicas),
        "predecessors": list(segment.predecessors),
        "successors": list(segment.successors),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "sequences": [[s.producer_id, s.producer_epoch, s.next_sequence] for s in segment.sequences],
    }


def broker_fields(info: BrokerInfo) -> dict[str, object]:
    """The broker's registration as JSON values."""
    return {
        "v": METADATA_VERSION,
        "id": info.id,
        "address": info.address,
        "started_us": info.started_us,
        "pid": info.pid,
        "version": info.version,
        "draining": info.draining,
    }


def topic_to_json(topic: Topic) -> bytes:
    """Inverse of :func:`topic_from_json`."""
    return _dump(topic_fields(topic))


def segment_to_json(segment: Segment) -> bytes:
    """Inverse of :func:`segment_from_json`."""
    return _dump(segment_fields(segment))


def broker_to_json(info: BrokerInfo) -> bytes:
    """Inverse of :func:`broker_from_json`."""
    return _dump(broker_fields(info))


def topic_from_json(data: bytes) -> Topic:
    """Raises Corrupt if unreadable, Unsupported if written by a newer version."""
    fields = _Fields("topic", data)
    return Topic(
        name=fields.topic_name("name"),
        uid=fields.uint("uid"),
        replicas=fields.uint("replicas", low=1),
        durability=fields.choice("durability", Durability),
        scaling=fields.choice("scaling", Scaling),
        schema=fields.optional_bytes("schema"),
        retention_s=fields.optional_seconds("retention_s"),
        retention_bytes=fields.optional_uint("retention_bytes"),
        next_segment=fields.uint("next_segment"),
        created_us=fields.uint("created_us"),
    )


def segment_from_json(data: bytes) -> Segment:
    """Raises Corrupt if unreadable, Unsupported if written by a newer version."""
    fields = _Fields("segment", data)
    segment = Segment(
        topic=fields.topic_name("topic"),
        id=fields.uint("id"),
        slots=fields.key_range("slots"),
        epoch=fields.uint("epoch", low=1),
        state=fields.choice("state", SegmentState),
        replicas=fields.texts("replicas"),
        predecessors=fields.uints("predecessors"),
        successors=fields.uints("successors"),
        start_offset=fields.uint("start_offset"),
        end_offset=fields.optional_uint("end_offset"),
        sequences=fields.sequences("sequences"),
    )
    if not segment.replicas:
        raise fields.corrupt("replicas", "a segment has at least one replica")
    if segment.is_open != (segment.end_offset is None):
        raise fields.corrupt("end_offset", "it is set exactly when the segment is sealed")
    if segment.end_offset is not None and segment.end_offset < segment.start_offset:
        raise fields.corrupt("end_offset", f"it is below start_offset {segment.start_offset}")
    return segment


def broker_from_json(data: bytes) -> BrokerInfo:
    """Raises Corrupt if unreadable, Unsupported if written by a newer version."""
    fields = _Fields("broker", data)
    return BrokerInfo(
        id=fields.text("id"),
        address=fields.text("address"),
        started_us=fields.uint("started_us"),
        pid=fields.uint("pid"),
        version=fields.text("version"),
        draining=fields.flag("draining"),
    )


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii")


class _Fields:
    """A JSON object whose fields are checked as they are taken."""

    def __init__(self, what: str, data: bytes) -> None:
        self._what = what
        try:
            values: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt(
                f"{what} metadata of {len(data)} bytes is not JSON ({error}): {bytes(data[:40])!r}"
            ) from error
        if not isinstance(values, dict):
            raise Corrupt(f"{what} metadata is {type(values).__name__}, not a JSON object: {bytes(data[:40])!r}")
        self._values = cast("dict[str, object]", values)
        version = self.uint("v", low=1)
        if version != METADATA_VERSION:
            raise Unsupported(
                f"{what} metadata has version {version}, this build reads {METADATA_VERSION}: upgrade this broker"
            )

    def corrupt(self, field: str, rule: str) -> Corrupt:
        shown = repr(self._values.get(field, "missing"))[:80]
        return Corrupt(f"{self._what} metadata has an unreadable {field!r} ({shown}): {rule}")

    def uint(self, field: str, low: int = 0) -> int:
        return self._as_uint(field, self._values.get(field), low)

    def optional_uint(self, field: str) -> int | None:
        value = self._values.get(field)
        return None if value is None else self._as_uint(field, value)

    def uints(self, field: str) -> tuple[int, ...]:
        return tuple(self._as_uint(field, item) for item in self._items(field))

    def optional_seconds(self, field: str) -> float | None:
        value = self._values.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.corrupt(field, "it is a number of seconds from 0")
        try:
            return float(value)
        except OverflowError as error:
            raise self.corrupt(field, "it is a number of seconds that fits a float") from error

    def text(self, field: str) -> str:
        return self._as_text(field, self._values.get(field))

    def flag(self, field: str) -> bool:
        """False if absent: older brokers do not write it."""
        return self._values.get(field) is True

    def texts(self, field: str) -> tuple[str, ...]:
        return tuple(self._as_text(field, item) for item in self._items(field))

    def optional_bytes(self, field: str) -> bytes | None:
        value = self._values.get(field)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.corrupt(field, "it is base64")
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise self.corrupt(field, "it is base64") from error

    def choice(self, field: str, kind: type[_Choice]) -> _Choice:
        try:
            return kind(self.text(field))
        except ValueError as error:
            raise self.corrupt(field, f"it is one of {', '.join(kind)}") from error

    def topic_name(self, field: str) -> TopicName:
        try:
            return TopicName.parse(self.text(field))
        except InvalidArgument as error:
            raise self.corrupt(field, str(error)) from error

    def key_range(self, field: str) -> KeyRange:
        edges = self.uints(field)
        try:
            lo, hi = edges
            return KeyRange(lo, hi)
        except (ValueError, InvalidArgument) as error:
            raise self.corrupt(field, "it is [lo, hi) on the ring") from error

    def sequences(self, field: str) -> tuple[ProducerSequence, ...]:
        found = []
        for item in self._items(field):
            if not isinstance(item, list) or len(item) != 3:
                raise self.corrupt(field, "each is [producer_id, producer_epoch, next_sequence]")
            producer_id, producer_epoch, next_sequence = (self._as_uint(field, part) for part in item)
            found.append(
                ProducerSequence(producer_id=producer_id, producer_epoch=producer_epoch, next_sequence=next_sequence)
            )
        return tuple(found)

    def _items(self, field: str) -> Sequence[object]:
        value = self._values.get(field)
        if not isinstance(value, list):
            raise self.corrupt(field, "it is a list")
        return value

    def _as_uint(self, field: str, value: object, low: int = 0) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= UINT_MAX:
            raise self.corrupt(field, f"it is an integer from {low} to {UINT_MAX}")
        return value

    def _as_text(self, field: str, value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self.corrupt(field, "it is a text of one or more printable characters")
        return value
