"""Kafka's nodes: the brokers that serve Kafka's clients, by numbers that stay the same over restarts.

Clients are shown those that live, and the one that answers whether or not it is registered: all leases can end at once,
on a machine that is too busy to renew them. librdkafka (2.10 on) drops whoever is not shown, and with nobody left it
waits for minutes before it dials the addresses that it began with. Whoever else is gone is not shown, not even for a
while: librdkafka, which waits longer and longer before it dials a broker again, dials one that is shown anew at once.

The numbers are kept in etcd by the address that clients dial, and whichever broker meets an address without one gives
it a number. Each number is claimed in the storage before: where etcd was restored or lost, no broker gets the number of
another one, and each gets its own back.
"""

import base64
import logging
from collections.abc import Collection, Mapping
from itertools import chain, count, islice

from xxhash import xxh3_128_intdigest

from seaweedmq.codec.kafka_nodes import node_table_from_json, node_table_to_json
from seaweedmq.codec.keys import KAFKA_NODES
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.kafka.node_ids import with_nodes
from seaweedmq.errors import AlreadyExists, Conflict, SeaweedMQError
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.kafka_nodes import NODES_MAX, Node, NodeTable
from seaweedmq.ports import Compare, Environment, MetaStore, Put, SegmentStore
from seaweedmq.rpc.address import parse_address
from seaweedmq.runtime.log_once import OnceLogger
from seaweedmq.runtime.retrying import after_s, backoff, retrying

log = logging.getLogger(__name__)

NO_NODE = -1
RETRY_FIRST_S, RETRY_MOST_S = 0.02, 0.5
NODES_TIMEOUT_S = 5.0
CLUSTER_ID_BYTES = 16
NUMBERING = "numbering of Kafka's nodes, brokers without a number are not shown to its clients"


class Nodes:
    """Whom Kafka's clients may dial. A broker without an address for them is no node."""

    def __init__(
        self, view: ClusterView, meta: MetaStore, store: SegmentStore, env: Environment, *, own_address: str = ""
    ) -> None:
        """``own_address``: where this very broker is dialled."""
        self._view = view
        self._meta = meta
        self._store = store
        self._env = env
        self._own_address = own_address
        self._table = NodeTable(cluster_id="")
        self._ran_at: dict[str, str] = {}
        """Broker id -> its address for Kafka: those that are gone are still named as replicas. In the order in which
        they were registered last, the earliest first."""
        self._noted = -1
        """Changes of the view when ``_ran_at`` was brought up to date."""
        self._made_of: tuple[int, NodeTable] | None = None
        """State of the view, and numbers, that ``_nodes`` and what follows are made of."""
        self._nodes: dict[str, Node] = {}
        self._live: frozenset[int] = frozenset()
        """Numbers of registered brokers."""
        self._complaints = OnceLogger(log)
        self._stand_ins: list[int] = []
        """All numbers that were ever given, in the order in which they stand for missing replicas."""

    @property
    def cluster_id(self) -> str:
        """Of the whole cluster, for good; "" before the first :meth:`ready`."""
        return self._table.cluster_id

    async def ready(self) -> None:
        """See to it that every broker that lives has its number; costs nothing if it is so.

        Raises:
            SeaweedMQError: If etcd refuses, its table of nodes is unreadable, or the storage fails where a number is
                missing, and no node is known.
        """
        self._note()
        if self._table.cluster_id and not self._nameless():
            return
        attempts = retrying(
            backoff(self._env.rng, RETRY_FIRST_S, RETRY_MOST_S), on=Conflict, stop=after_s(NODES_TIMEOUT_S)
        )
        try:
            await attempts(self._give_numbers)
            self._complaints.over(NUMBERING)
        except SeaweedMQError as error:
            if not self.shown():
                raise
            self._complaints.add(NUMBERING, error)

    def live(self) -> list[Node]:
        """Those that live and have a number, by number."""
        return sorted(self._by_broker().values())

    def shown(self) -> list[Node]:
        """Those that clients are told of, by number: that live, and this one."""
        number = self._table.ids.get(self._own_address)
        if number is None:
            return self.live()
        return sorted({*self._by_broker().values(), Node(number, *parse_address(self._own_address))})

    def of_broker(self, broker_id: str) -> Node | None:
        """The node that this broker is; None if it is gone or is none."""
        return self._by_broker().get(broker_id)

    def number_of(self, broker_id: str) -> int | None:
        """The number of a broker that lives, or did: None if it never was a node as far as this broker knows."""
        info = self._view.brokers.get(broker_id)
        address = info.kafka_address if info is not None else self._ran_at.get(broker_id, "")
        return self._table.ids.get(address)

    def lives(self, broker_id: str) -> bool:
        """Whether the broker is registered, with an address for Kafka's clients or without."""
        return broker_id in self._view.brokers

    def is_live(self, number: int) -> bool:
        """Whether a registered broker has this number."""
        self._by_broker()
        return number in self._live

    def absent_replicas(self, needed: int, taken: Collection[int]) -> list[int]:
        """Choose the numbers that stand for missing replicas of a partition.

        Nodes that left last come first, then others that are not registered, the highest number first, then registered
        ones, then numbers that no broker has got yet. Clients take a number without a broker for one that is down.

        Args:
            needed: how many replicas are missing.
            taken: numbers of replicas that the partition has.
        """
        self._by_broker()
        free = (number for number in chain(self._stand_ins, count(self._table.next_id)) if number not in taken)
        return list(islice(free, max(0, needed)))

    def broker_of(self, number: int) -> str | None:
        """The id of the broker with this number, if it lives."""
        return next((broker for broker, node in self._by_broker().items() if node.id == number), None)

    def controller(self) -> int:
        """Number of the node that Kafka's clients should ask for changes. Any passes them on; that of the leader."""
        leader = self.of_broker(self._view.leader) if self._view.leader is not None else None
        if leader is not None:
            return leader.id
        return min((node.id for node in self.live()), default=NO_NODE)

    def _by_broker(self) -> Mapping[str, Node]:
        """Those that live and have a number, by broker id."""
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
        """Nodes that left last, then others that are not registered, the newest number first, then registered ones."""
        self._note()
        ids = self._table.ids
        left = (ids[address] for address in reversed(self._ran_at.values()) if address in ids)
        unregistered = [number for number in (*left, *sorted(ids.values(), reverse=True)) if number not in self._live]
        return [*dict.fromkeys(unregistered), *sorted(self._live)]

    def _note(self) -> None:
        """Remember the addresses of registered brokers, of the last ``NODES_MAX``."""
        if self._noted == self._view.changes:
            return
        self._noted = self._view.changes
        for broker in self._view.brokers.values():
            if broker.kafka_address:
                self._ran_at.pop(broker.id, None)
                self._ran_at[broker.id] = broker.kafka_address
        while len(self._ran_at) > NODES_MAX:
            del self._ran_at[next(iter(self._ran_at))]

    def _live_addresses(self) -> set[str]:
        return {broker.kafka_address for broker in self._view.brokers.values() if broker.kafka_address}

    def _nameless(self) -> list[str]:
        """Addresses without a number."""
        return sorted(self._wanted_addresses() - self._table.ids.keys())

    def _wanted_addresses(self) -> set[str]:
        return self._live_addresses() | ({self._own_address} if self._own_address else set())

    async def _give_numbers(self) -> None:
        entry = await self._meta.get(KAFKA_NODES)
        found = NodeTable(cluster_id=self._new_cluster_id()) if entry is None else node_table_from_json(entry.value)
        addresses = self._wanted_addresses()
        wanted = found if addresses <= found.ids.keys() else await self._with_claimed(found, addresses)
        if entry is None or wanted != found:
            unchanged = Compare(KAFKA_NODES, mod_revision=0 if entry is None else entry.mod_revision)
            if await self._meta.transact([unchanged], [Put(KAFKA_NODES, node_table_to_json(wanted))]) is None:
                raise Conflict("another broker gave Kafka's nodes their numbers at the same time: read them again")
        self._table = wanted

    async def _with_claimed(self, found: NodeTable, addresses: Collection[str]) -> NodeTable:
        """Return the table with numbers for all addresses, each of which the storage shows to be taken.

        Raises:
            Conflict: If another broker claimed one of them meanwhile.
        """
        kind = ClaimKind.NODE_IDS
        claimed = {n: content.decode(errors="replace") for n, content in (await self._store.read_claims(kind)).items()}
        wanted = with_nodes(found, sorted(addresses), addresses, claimed)
        for address, number in wanted.ids.items():
            if number not in claimed:
                try:
                    await self._store.create_claim(kind, number, address.encode())
                except AlreadyExists as error:
                    raise Conflict(f"another broker claimed a node id at the same time: {error}") from error
        forgotten = sorted(claimed.keys() - set(wanted.ids.values()))
        await self._store.delete_claims(kind, forgotten[: max(0, len(forgotten) - NODES_MAX)])
        return wanted

    def _new_cluster_id(self) -> str:
        """Return the id of a cluster without nodes: always the same, so that a recovery of etcd does not change it."""
        cluster = self._view.cluster
        known = 0 if cluster is None else xxh3_128_intdigest(cluster.cluster_id.encode())
        number = (known or self._env.rng.getrandbits(8 * CLUSTER_ID_BYTES)).to_bytes(CLUSTER_ID_BYTES, "big")
        return base64.urlsafe_b64encode(number).rstrip(b"=").decode("ascii")
