"""Conversion of the etcd values: compact JSON with ``"v": 1``.

Readers ignore unknown fields, which newer brokers may add. ``*_to_json`` and ``*_from_json`` are inverses; ``*_fields``
return the same as plain dicts, for ``topic.json`` and ``lineage.json``. Reading raises Corrupt for anything unreadable
and Unsupported for a newer ``v``.
"""

import base64

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Deletion, Durability, LowWatermarks, Scaling, Topic


def topic_fields(topic: Topic) -> dict[str, object]:
    """Return the topic as JSON values; the schema is base64 of its IPC message."""
    partitions = {} if topic.partitions is None else {"partitions": topic.partitions}
    configs = {"configs": dict(topic.configs)} if topic.configs else {}
    adopting = {} if topic.adopting is None else {"adopting": base64.b64encode(topic.adopting).decode("ascii")}
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
        "target_bytes_per_s": topic.target_bytes_per_s,
        "target_records_per_s": topic.target_records_per_s,
        "segments_min": topic.segments_min,
        "pruned": [list(lo_hi) for lo_hi in topic.pruned.ranges],
        **partitions,
        **configs,
        **adopting,
    }


def lineage_fields(segment: Segment) -> dict[str, object]:
    """Return the segment as in documents: without its producers' sequences, which only brokers need."""
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
        "opened_us": segment.opened_us,
        "sealed_us": segment.sealed_us,
    }


def segment_fields(segment: Segment) -> dict[str, object]:
    """Return the segment as JSON values; ``sequences`` are [producer_id, producer_epoch, next_sequence]."""
    sequences = [[s.producer_id, s.producer_epoch, s.next_sequence] for s in segment.sequences]
    fields = {**lineage_fields(segment), "sequences": sequences, "sequences_complete": segment.sequences_complete}
    return fields | ({"problem": segment.problem} if segment.problem else {})


def broker_fields(info: BrokerInfo) -> dict[str, object]:
    """Return the broker's registration as JSON values."""
    kafka = {"kafka_address": info.kafka_address} if info.kafka_address else {}
    return {
        "v": METADATA_VERSION,
        "id": info.id,
        "address": info.address,
        "started_us": info.started_us,
        "pid": info.pid,
        "version": info.version,
        "draining": info.draining,
        **kafka,
    }


def topic_to_json(topic: Topic) -> bytes:
    """Return the etcd value of a topic."""
    return to_json(topic_fields(topic))


def segment_to_json(segment: Segment) -> bytes:
    """Return the etcd value of a segment."""
    return to_json(segment_fields(segment))


def broker_to_json(info: BrokerInfo) -> bytes:
    """Return the etcd value of a broker's registration."""
    return to_json(broker_fields(info))


def low_watermarks_to_json(marks: LowWatermarks) -> bytes:
    """Return the etcd value of low watermarks."""
    return to_json(
        {"v": METADATA_VERSION, "name": str(marks.name), "uid": marks.uid, "low_watermarks": list(marks.offsets)}
    )


def deletion_to_json(deletion: Deletion) -> bytes:
    """Return the etcd value of a deletion."""
    return to_json(
        {"v": METADATA_VERSION, "name": str(deletion.name), "uid": deletion.uid, "primaries": list(deletion.primaries)}
    )


def topic_from_json(data: bytes) -> Topic:
    """Return the topic of an etcd value or of ``topic.json``, which alone includes the topic's low watermarks.

    Like every function here that reads, it raises Corrupt, or Unsupported if a newer version wrote the value.
    """
    return topic_from_fields(JsonFields("topic", data))


def topic_from_fields(fields: JsonFields) -> Topic:
    """Return the topic of JSON that is already parsed; raises like :func:`topic_from_json`."""
    return Topic(
        name=fields.topic_name("name"),
        uid=fields.uint("uid"),
        replicas=fields.uint("replicas", low=1),
        durability=fields.choice("durability", Durability),
        scaling=fields.choice("scaling", Scaling),
        schema=fields.optional_bytes("schema"),
        retention_s=fields.optional_number("retention_s"),
        retention_bytes=fields.optional_uint("retention_bytes"),
        next_segment=fields.uint("next_segment"),
        created_us=fields.uint("created_us"),
        target_bytes_per_s=fields.optional_number("target_bytes_per_s"),
        target_records_per_s=fields.optional_number("target_records_per_s"),
        segments_min=fields.optional_uint("segments_min") or 1,
        pruned=fields.id_ranges("pruned"),
        adopting=fields.optional_bytes("adopting"),
        partitions=fields.partitions("partitions"),
        configs=fields.configs("configs"),
        low_watermarks=fields.optional_uints("low_watermarks"),
    )


def segment_from_json(data: bytes) -> Segment:
    """Return the segment of an etcd value."""
    return segment_from_fields(JsonFields("segment", data))


def segment_from_fields(fields: JsonFields) -> Segment:
    """Return the segment of JSON that is already parsed; raises like :func:`segment_from_json`."""
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
        sequences_complete=fields.flag("sequences_complete"),
        opened_us=fields.optional_uint("opened_us") or 0,
        sealed_us=fields.optional_uint("sealed_us") or 0,
        problem=fields.optional_text("problem"),
    )
    if not segment.replicas:
        raise fields.corrupt("replicas", "a segment has at least one replica")
    if segment.is_open != (segment.end_offset is None):
        raise fields.corrupt("end_offset", "it is set exactly when the segment is sealed")
    if segment.end_offset is not None and segment.end_offset < segment.start_offset:
        raise fields.corrupt("end_offset", f"it is below start_offset {segment.start_offset}")
    return segment


def low_watermarks_from_json(data: bytes) -> LowWatermarks:
    """Return the low watermarks of an etcd value."""
    fields = JsonFields("low watermarks", data)
    return LowWatermarks(name=fields.topic_name("name"), uid=fields.uint("uid"), offsets=fields.uints("low_watermarks"))


def deletion_from_json(data: bytes) -> Deletion:
    """Return the deletion of an etcd value."""
    fields = JsonFields("deletion", data)
    return Deletion(
        name=fields.topic_name("name"), uid=fields.uint("uid"), primaries=fields.optional_texts("primaries")
    )


def broker_from_json(data: bytes) -> BrokerInfo:
    """Return the registration of an etcd value."""
    fields = JsonFields("broker", data)
    return BrokerInfo(
        id=fields.text("id"),
        address=fields.text("address"),
        started_us=fields.uint("started_us"),
        pid=fields.uint("pid"),
        version=fields.text("version"),
        draining=fields.flag("draining"),
        kafka_address=fields.optional_text("kafka_address"),
    )
