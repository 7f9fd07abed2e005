"""Kafka's nodes: the brokers that serve Kafka clients, by numbers that stay the same over restarts.

Clients see the registered brokers, and the answering broker whether or not it is registered: all leases can end at
once, on a machine that is too busy to renew them. librdkafka (from 2.10) drops every broker that Metadata omits, and
without any it waits for minutes before it dials its bootstrap addresses. All other unregistered brokers are hidden at
once: librdkafka backs off longer and longer before it redials a broker, but dials one that reappears at once.

etcd stores the numbers by the address that clients dial, and any broker that finds an address without a number assigns
one. It first claims the number in the storage: after etcd was restored or lost, no broker gets the number of another
one, and each gets its own number back.
"""

import base64
import logging
from collections.abc import Collection, Mapping
from itertools import chain, count, islice

from xxhash import xxh3_128_intdigest

from seaweedmq.codec.state.kafka import node_table_from_json, node_table_to_json
from seaweedmq.codec.state.keys import KAFKA_NODES
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.kafka.node_ids import with_nodes
from seaweedmq.errors import AlreadyExists, Conflict, SeaweedMQError
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.kafka.nodes import NODES_MAX, Node, NodeTable
from seaweedmq.ports import Compare, Environment, MetaStore, Put, SegmentStore
from seaweedmq.rpc.address import parse_address
from seaweedmq.runtime.log_once import OnceLogger
from seaweedmq.runtime.retrying import after_s, backoff, retrying

log = logging.getLogger(__name__)

NO_NODE = -1
RETRY_S_FIRST, RETRY_S_MAX = 0.02, 0.5
NODES_TIMEOUT_S = 5.0
CLUSTER_ID_BYTES = 16
NUMBERING = "numbering of Kafka's nodes, brokers without a number are hidden from clients"


class Nodes:
    """The nodes that Kafka clients may dial. A broker without a Kafka address is not a node."""

    def __init__(
        self, view: ClusterView, meta: MetaStore, store: SegmentStore, env: Environment, *, own_address: str = ""
    ) -> None:
        """Create a table without numbers, see :meth:`ready`; clients dial this broker at ``own_address``."""
        self._view = view
        self._meta = meta
        self._store = store
        self._env = env
        self._own_address = own_address
        self._table = NodeTable(cluster_id="")
        self._last_addresses: dict[str, str] = {}
        """Broker id -> its Kafka address, including unregistered brokers, which partitions still name as replicas. The
        order is that of the last registration, the earliest first."""
        self._noted = -1
        """The view's count of changes when ``_last_addresses`` was updated."""
        self._made_of: tuple[int, NodeTable] | None = None
        """The view's count of changes and the table from which ``_nodes``, ``_live`` and ``_stand_ins`` were made."""
        self._nodes: dict[str, Node] = {}
        self._live: frozenset[int] = frozenset()
        """Numbers of registered brokers."""
        self._failures_log = OnceLogger(log)
        self._stand_ins: list[int] = []
        """All assigned numbers, in the order in which they stand for missing replicas."""

    @property
    def cluster_id(self) -> str:
        """The permanent id of the cluster; "" before the first :meth:`ready`."""
        return self._table.cluster_id

    async def ready(self) -> None:
        """Assign a number to every registered broker; return at once if all have one.

        Raises SeaweedMQError if no node is known, and etcd refuses, its table of nodes is unreadable, or the storage
        fails while a number is missing.
        """
        self._note()
        if self._table.cluster_id and not self._unnumbered():
            return
        attempts = retrying(
            backoff(self._env.rng, RETRY_S_FIRST, RETRY_S_MAX), on=Conflict, stop=after_s(NODES_TIMEOUT_S)
        )
        try:
            await attempts(self._assign_numbers)
            self._failures_log.over(NUMBERING)
        except SeaweedMQError as error:
            if not self.shown():
                raise
            self._failures_log.add(NUMBERING, error)

    def live(self) -> list[Node]:
        """Return the registered nodes, by number."""
        return sorted(self._by_broker().values())

    def shown(self) -> list[Node]:
        """Return the nodes that clients see, by number: the registered ones, and this broker."""
        number = self._table.ids.get(self._own_address)
        if number is None:
            return self.live()
        return sorted({*self._by_broker().values(), Node(number, *parse_address(self._own_address))})

    def of_broker(self, broker_id: str) -> Node | None:
        """Return the node of a broker; None if it is unregistered or not a node."""
        return self._by_broker().get(broker_id)

    def number_of(self, broker_id: str) -> int | None:
        """Return the number of a current or former node; None if this broker never saw it as a node."""
        info = self._view.brokers.get(broker_id)
        address = info.kafka_address if info is not None else self._last_addresses.get(broker_id, "")
        return self._table.ids.get(address)

    def is_registered(self, broker_id: str) -> bool:
        """Whether the broker is registered, with or without a Kafka address."""
        return broker_id in self._view.brokers

    def is_live(self, number: int) -> bool:
        """Whether a registered broker has this number."""
        self._by_broker()
        return number in self._live

    def absent_replicas(self, needed: int, taken: Collection[int]) -> list[int]:
        """Choose ``needed`` numbers, none of ``taken``, that stand for missing replicas of a partition.

        The order is: nodes that left last, other unregistered ones from the highest number down, registered ones,
        unassigned numbers. Clients treat a number without a broker as a broker that is down.
        """
        self._by_broker()
        free = (number for number in chain(self._stand_ins, count(self._table.next_id)) if number not in taken)
        return list(islice(free, max(0, needed)))

    def broker_of(self, number: int) -> str | None:
        """Return the id of the registered broker with this number, or None."""
        return next((broker for broker, node in self._by_broker().items() if node.id == number), None)

    def controller(self) -> int:
        """Return the number of the leader's node, or of another one: every broker forwards changes to the leader."""
        leader = self.of_broker(self._view.leader) if self._view.leader is not None else None
        if leader is not None:
            return leader.id
        return min((node.id for node in self.live()), default=NO_NODE)

    def _by_broker(self) -> Mapping[str, Node]:
        """Return the registered nodes, by broker id."""
        if self._made_of != (self._view.changes, self._table):
            self._made_of = self._view.changes, self._table
            self._nodes = {
                broker.id: Node(number, *parse_address(broker.kafka_address))
                for broker in self._view.brokers.values()
                if (number := self._table.ids.get(broker.kafka_address)) is not None
            }
            self._live = frozenset(node.id for node in self._nodes.values())
            self._stand_ins = self._by_absence()
        return self._nodes

    def _by_absence(self) -> list[int]:
        """Order all numbers: nodes that left last, other unregistered ones, the highest first, then registered ones."""
        self._note()
        ids = self._table.ids
        left = (ids[address] for address in reversed(self._last_addresses.values()) if address in ids)
        unregistered = [number for number in (*left, *sorted(ids.values(), reverse=True)) if number not in self._live]
        return [*dict.fromkeys(unregistered), *sorted(self._live)]

    def _note(self) -> None:
        """Remember the addresses of the ``NODES_MAX`` brokers that were registered last."""
        if self._noted == self._view.changes:
            return
        self._noted = self._view.changes
        for broker in self._view.brokers.values():
            if broker.kafka_address:
                self._last_addresses.pop(broker.id, None)
                self._last_addresses[broker.id] = broker.kafka_address
        while len(self._last_addresses) > NODES_MAX:
            del self._last_addresses[next(iter(self._last_addresses))]

    def _unnumbered(self) -> list[str]:
        """Return the addresses without a number."""
        return sorted(self._wanted_addresses() - self._table.ids.keys())

    def _wanted_addresses(self) -> set[str]:
        addresses = {broker.kafka_address for broker in self._view.brokers.values()} | {self._own_address}
        return addresses - {""}

    async def _assign_numbers(self) -> None:
        entry = await self._meta.get(KAFKA_NODES)
        found = NodeTable(cluster_id=self._new_cluster_id()) if entry is None else node_table_from_json(entry.value)
        addresses = self._wanted_addresses()
        wanted = found if addresses <= found.ids.keys() else await self._with_claimed(found, addresses)
        if entry is None or wanted != found:
            unchanged = Compare(KAFKA_NODES, mod_revision=0 if entry is None else entry.mod_revision)
            if await self._meta.transact([unchanged], [Put(KAFKA_NODES, node_table_to_json(wanted))]) is None:
                raise Conflict("another broker numbered Kafka's nodes at the same time: retry")
        self._table = wanted

    async def _with_claimed(self, found: NodeTable, addresses: Collection[str]) -> NodeTable:
        """Return the table with a number for each address, after claiming the new numbers in the storage.

        Raises Conflict if another broker claimed one of them meanwhile.
        """
        kind = ClaimKind.NODE_IDS
        claimed = {n: content.decode(errors="replace") for n, content in (await self._store.read_claims(kind)).items()}
        wanted = with_nodes(found, sorted(addresses), addresses, claimed)
        for address, number in wanted.ids.items():
            if number not in claimed:
                try:
                    await self._store.create_claim(kind, number, address.encode())
                except AlreadyExists as error:
                    raise Conflict(f"another broker claimed the node id at the same time: {error}") from error
        forgotten = sorted(claimed.keys() - set(wanted.ids.values()))
        await self._store.delete_claims(kind, forgotten[: max(0, len(forgotten) - NODES_MAX)])
        return wanted

    def _new_cluster_id(self) -> str:
        """Return an id for a cluster without a table of nodes, derived from its id: a recovery of etcd keeps it."""
        cluster = self._view.cluster
        known = 0 if cluster is None else xxh3_128_intdigest(cluster.cluster_id.encode())
        number = (known or self._env.rng.getrandbits(8 * CLUSTER_ID_BYTES)).to_bytes(CLUSTER_ID_BYTES, "big")
        return base64.urlsafe_b64encode(number).rstrip(b"=").decode("ascii")
