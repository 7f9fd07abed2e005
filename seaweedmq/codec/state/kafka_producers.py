"""Conversion of the etcd value with the counter of Kafka producer ids, in the format of ``codec.metadata``."""

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.producer import KAFKA_PRODUCERS


def id_counter_to_json(next_id: int) -> bytes:
    """Return the etcd value of the counter."""
    return to_json({"v": METADATA_VERSION, "next_id": next_id})


def id_counter_from_json(data: bytes) -> int:
    """Return the first unassigned id from an etcd value, or raise Corrupt or, for a newer version, Unsupported."""
    fields = JsonFields("Kafka producer id", data)
    next_id = fields.uint("next_id", low=KAFKA_PRODUCERS.start)
    if next_id > KAFKA_PRODUCERS.stop:
        raise fields.corrupt("next_id", f"ids end before {KAFKA_PRODUCERS.stop}")
    return next_id
