"""Testbed of faults: the cluster, its users, and the choice of victims."""

import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.faults.machines.cluster import Cluster, Node
from tests.faults.users.members import Members


@dataclass(slots=True)
class FaultTestbed:
    cluster: Cluster
    topics: Sequence[str]
    """Topics of native users."""
    kafka_topics: Sequence[str]
    """Topics of Kafka users: the segments of their partitions are never split or merged."""
    groups: Sequence[Members]
    """Groups with members; none if the episode has no group."""
    kafka_group: str
    """Name of the Kafka group; "" if there is none."""
    rng: random.Random
    say: Callable[[str], None]
    exits: list[str] = field(default_factory=list)
    """A sentence for each broker that did not stop cleanly."""
    unfit: list[str] = field(default_factory=list)
    """Roles that no broker had, so that another broker was hit."""
    changes: int = 0
    """Number of completed splits, merges and moves."""

    @property
    def all_topics(self) -> list[str]:
        return [*self.topics, *self.kafka_topics]

    async def terminate(self, node: Node) -> None:
        """Send SIGTERM and wait for the end: status 0, unless SIGKILL of another fault was faster, or the broker was
        still importing its modules."""
        expected = {0, -signal.SIGKILL}
        if not self.cluster.stops_cleanly(node):
            expected.add(-signal.SIGTERM)
        try:
            status = await self.cluster.terminate(node)
        except TimeoutError:
            self.exits.append(f"{node} does not end on SIGTERM: {self.cluster.log_end(node)}")
            return
        if status not in expected:
            self.exits.append(f"{node} ended with {status} after SIGTERM: {self.cluster.log_end(node)}")

    async def victim(self, what: str, place: int, *, leader: bool | None = None) -> Node:
        """Return a broker with this role, see ``some``; any broker if none has it."""
        return self._fit(await self.some(place, leader=leader), what)

    async def leading(self) -> Node:
        """Return the leader; any broker if there is none."""
        return self._fit(await self.cluster.leader(), "the leader")

    async def coordinating(self) -> Node:
        """Return the coordinator of the Kafka group; any broker if there is none."""
        return self._fit(await self.cluster.coordinator(self.kafka_group), "the coordinator of the group")

    def _fit(self, node: Node | None, what: str) -> Node:
        if node is None:
            self.unfit.append(what)
            return self.some_node()
        return node

    async def some(self, place: int, *, leader: bool | None = None) -> Node | None:
        """Return a running broker with this role (0 primary, 1 follower) in a topic; with ``leader`` the leader, or not
        it."""
        leading = await self.cluster.leader()
        for topic in self.rng.sample(self.all_topics, len(self.all_topics)):
            for node in await self.cluster.replicas(topic, place):
                if (leader is None or (node is leading) is leader) and node.pid is not None and not node.is_frozen:
                    return node
        return None

    def some_node(self) -> Node:
        """Return any running broker, or any at all."""
        return self.rng.choice([n for n in self.cluster.nodes if n.pid is not None] or self.cluster.nodes)


Fault: TypeAlias = Callable[[FaultTestbed], Awaitable[None]]
