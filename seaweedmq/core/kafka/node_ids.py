"""Permanent node ids for the addresses of brokers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.kafka.nodes import NODE_ID_MAX, NODES_MAX, NodeTable


def with_nodes(
    table: NodeTable, addresses: Sequence[str], live: Collection[str], claimed: Mapping[int, str] | None = None
) -> NodeTable:
    """Return the table with a node id for each of ``addresses``; unchanged if it has them all.

    Beyond ``NODES_MAX`` it drops the lowest ids whose addresses are not ``live``. An address gets back the id that a
    claim in the storage reserves for it, which a restored or new table does not contain. Raises ResourceExhausted if
    too many addresses are live, or all ids are used up.
    """
    new = sorted(set(addresses) - table.ids.keys())
    if not new:
        return table
    taken = set(table.ids.values())
    claims = {address: number for number, address in sorted((claimed or {}).items()) if number not in taken}
    free = count(max([table.next_id - 1, *(claimed or ())]) + 1)
    numbers = {address: claims[address] if address in claims else next(free) for address in new}
    next_id = max([table.next_id - 1, *(claimed or ()), *numbers.values()]) + 1
    if next_id > NODE_ID_MAX:
        raise ResourceExhausted(
            "Kafka's node ids are used up: delete the etcd key /seaweedmq-kafka/nodes and the storage's kafka/node-ids"
        )
    ids = dict(table.ids) | numbers
    gone = sorted((number, address) for address, number in ids.items() if address not in live and address not in new)
    for _, address in gone[: max(0, len(ids) - NODES_MAX)]:
        del ids[address]
    if len(ids) > NODES_MAX:
        raise ResourceExhausted(f"{len(ids)} brokers serve Kafka clients, at most {NODES_MAX} may: run fewer")
    return replace(table, ids=ids, next_id=next_id)
