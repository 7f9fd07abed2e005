"""Conversion of the etcd values of the Kafka gateway: numbers of nodes, counter of producer ids; see ``metadata``."""

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.kafka.nodes import NODE_ID_MAX, NodeTable
from seaweedmq.model.producer import KAFKA_PRODUCERS


def node_table_to_json(table: NodeTable) -> bytes:
    """Return the etcd value of a node table."""
    return to_json(
        {"v": METADATA_VERSION, "cluster_id": table.cluster_id, "ids": dict(table.ids), "next_id": table.next_id}
    )


def node_table_from_json(data: bytes) -> NodeTable:
    """Return the node table of an etcd value, or raise Corrupt or, for a newer version, Unsupported."""
    fields = JsonFields("Kafka node", data)
    ids = {address: fields.as_uint("ids", number, low=1) for address, number in fields.entries("ids").items()}
    next_id = fields.uint("next_id", low=1)
    if next_id > NODE_ID_MAX or any(number >= next_id for number in ids.values()) or len({*ids.values()}) < len(ids):
        raise fields.corrupt("ids", f"numbers are unique, from 1, below next_id {next_id}")
    return NodeTable(cluster_id=fields.text("cluster_id"), ids=ids, next_id=next_id)


def id_counter_to_json(next_id: int) -> bytes:
    """Return the etcd value of the counter."""
    return to_json({"v": METADATA_VERSION, "next_id": next_id})


def id_counter_from_json(data: bytes) -> int:
    """Return the first unassigned id from an etcd value; raises as :func:`node_table_from_json`."""
    fields = JsonFields("Kafka producer id", data)
    next_id = fields.uint("next_id", low=KAFKA_PRODUCERS.start)
    if next_id > KAFKA_PRODUCERS.stop:
        raise fields.corrupt("next_id", f"ids end before {KAFKA_PRODUCERS.stop}")
    return next_id
