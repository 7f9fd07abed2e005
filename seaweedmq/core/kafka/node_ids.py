"""Numbers for the addresses of brokers, which they keep over restarts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.kafka_nodes import NODE_ID_MAX, NODES_MAX, NodeTable


def with_nodes(
    table: NodeTable, addresses: Sequence[str], live: Collection[str], claimed: Mapping[int, str] | None = None
) -> NodeTable:
    """The table with a number for each of ``addresses``; the same if it has them all.

    Beyond ``NODES_MAX`` the oldest numbers are forgotten whose addresses are not ``live``: nobody is there.

    Args:
        table: as etcd has it.
        addresses: to be numbered.
        live: addresses whose numbers stay.
        claimed: numbers that the storage shows to be taken, with the address of each: a table that was restored, or
            begins again, does not know them. An address gets the number back that it claimed.

    Raises:
        ResourceExhausted: more live than there may be, or all numbers are used up.
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
        raise ResourceExhausted(f"{len(ids)} brokers serve Kafka's clients: there may be {NODES_MAX}")
    return replace(table, ids=ids, next_id=next_id)
