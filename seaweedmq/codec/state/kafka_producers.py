"""The counter of Kafka's producer ids, as it is kept in etcd, in the form of ``codec.metadata``."""

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.producer import KAFKA_PRODUCERS


def id_counter_to_json(next_id: int) -> bytes:
    """Inverse of :func:`id_counter_from_json`."""
    return to_json({"v": METADATA_VERSION, "next_id": next_id})


def id_counter_from_json(data: bytes) -> int:
    """The first id that was not given. Raises Corrupt if unreadable, Unsupported if written by a newer version."""
    fields = JsonFields("Kafka producer id", data)
    next_id = fields.uint("next_id", low=KAFKA_PRODUCERS.start)
    if next_id > KAFKA_PRODUCERS.stop:
        raise fields.corrupt("next_id", f"ids end before {KAFKA_PRODUCERS.stop}")
    return next_id
