"""Numbers for the addresses of brokers, which they keep over restarts."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.kafka_nodes import NODE_ID_MAX, NODES_MAX, NodeTable


def with_nodes(table: NodeTable, addresses: Sequence[str], live: Collection[str]) -> NodeTable:
    """The table with a number for each of ``addresses``; the same if it has them all.

    Beyond ``NODES_MAX`` the oldest numbers are forgotten whose addresses are not ``live``: nobody is there.

    Raises:
        ResourceExhausted: more live than there may be, or all numbers are used up.
    """
    new = sorted(set(addresses) - table.ids.keys())
    if not new:
        return table
    if table.next_id + len(new) > NODE_ID_MAX:
        raise ResourceExhausted("Kafka's node ids are used up: delete the etcd key /seaweedmq-kafka/nodes")
    ids = dict(table.ids) | {address: table.next_id + n for n, address in enumerate(new)}
    gone = sorted((number, address) for address, number in ids.items() if address not in live and address not in new)
    for _, address in gone[: max(0, len(ids) - NODES_MAX)]:
        del ids[address]
    if len(ids) > NODES_MAX:
        raise ResourceExhausted(f"{len(ids)} brokers serve Kafka's clients: there may be {NODES_MAX}")
    return replace(table, ids=ids, next_id=table.next_id + len(new))
