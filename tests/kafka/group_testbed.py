"""Kafka gateways of groups on brokers of ``tests.broker.testbed``: requests go to handlers, without a socket."""

import asyncio
from dataclasses import replace
from typing import Any

from seaweedmq.kafka.groups.classic import ClassicGroupHandlers
from seaweedmq.kafka.groups.committed_offsets import CommittedOffsetsHandlers
from seaweedmq.kafka.groups.coordinators import Coordinators
from seaweedmq.kafka.groups.find_coordinator import FindCoordinatorHandlers
from seaweedmq.kafka.groups.group_admin import GroupAdmin
from seaweedmq.kafka.groups.group_coordinator import GroupCoordinator
from seaweedmq.kafka.metadata.nodes import Nodes
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.messages import API, OffsetCommitResponse
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from seaweedmq.shards.snapshots import AFTER_BYTES
from tests.broker.testbed import CONFIG, PATIENCE_S, Host, Testbed
from tests.kafka.byte_client import answered
from tests.sim.machines.loop import OwnerState

NAMESPACE = "kafka"
KAFKA_PORT = 9_000
"""Kafka port of the first broker of a test bed."""
KAFKA = replace(CONFIG, kafka_listen="127.0.0.1:0")
OFFSETS_TOPIC = TopicName(NAMESPACE, "__consumer_offsets")
TOPIC = TopicName(NAMESPACE, "orders")


class Gateway:
    """One broker's handlers of group requests."""

    def __init__(self, cluster: "Cluster", host: Host) -> None:
        self.host = host
        partitions, here, runtime = host.broker.ports
        self.nodes = Nodes(here.view, here.meta, here.store, runtime.env)
        self.coordinators = Coordinators(partitions, here, runtime, snapshot_after_bytes=cluster.snapshot_after_bytes)
        here.kafka_groups.answer = GroupAdmin(partitions, here, self.coordinators)
        directory = TopicDirectory(here.view, self.nodes, NAMESPACE)
        self.handlers = {
            **FindCoordinatorHandlers(self.coordinators, self.nodes).handlers(),
            **ClassicGroupHandlers(self.coordinators, runtime.env).handlers(),
            **CommittedOffsetsHandlers(self.coordinators, directory).handlers(),
        }
        self.following = host.testbed.network.spawn(host.owner, self.coordinators.run(), "coordinators")

    async def ask(self, api: API, version: int, **body: Any) -> Any:
        """Return the reply, as a client of that version decodes it. A killed broker never replies."""
        return await self.host.testbed.network.spawn(self.host.owner, answered(self.handlers, api, version, **body))

    def shard(self, group: str) -> GroupCoordinator:
        return self.coordinators.shard_of(group)


class Cluster:
    def __init__(self, testbed: Testbed, snapshot_after_bytes: int = AFTER_BYTES) -> None:
        self.testbed = testbed
        self.snapshot_after_bytes = snapshot_after_bytes
        self.gateways: list[Gateway] = []

    @classmethod
    async def of(
        cls,
        testbed: Testbed,
        brokers: int,
        config: BrokerConfig = KAFKA,
        *,
        partitions: int = 3,
        snapshot_after_bytes: int = AFTER_BYTES,
    ) -> "Cluster":
        """Start this many brokers, and create the topic that groups read."""
        cluster = cls(testbed, snapshot_after_bytes)
        for host in await testbed.cluster(brokers, config):
            cluster.open(host)
        await testbed.topic(testbed.hosts[0], TOPIC, partitions=partitions, replicas=min(2, brokers))
        await testbed.until(lambda: all(TOPIC in g.host.inspect.view.topics for g in cluster.gateways))
        return cluster

    def open(self, host: Host) -> Gateway:
        self.gateways.append(Gateway(self, host))
        return self.gateways[-1]

    def living(self) -> list[Gateway]:
        return [gateway for gateway in self.gateways if gateway.host.owner.state is OwnerState.RUNNING]

    def by_port(self, port: int) -> Gateway:
        """Return the gateway at a port, whose broker may be dead."""
        host = self.testbed.hosts[port - KAFKA_PORT]
        return next(gateway for gateway in self.gateways if gateway.host is host)

    async def coordinator(self, group: str) -> Gateway:
        """Wait until a broker names the group's coordinator, and return its gateway."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for gateway in self.living():
                    reply = await gateway.ask(API.FIND_COORDINATOR, 3, key=group, key_type=0)
                    if reply.error_code == Code.NONE:
                        return self.by_port(reply.port)
                    assert reply.error_code == Code.COORDINATOR_NOT_AVAILABLE, reply
                await asyncio.sleep(0.05)


ASK_AGAIN = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS})


class Member:
    """A consumer of a group that acts as Kafka clients do, one call at a time."""

    def __init__(self, cluster: Cluster, group: str = "billing", instance: str | None = None) -> None:
        self.cluster = cluster
        self.group = group
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.leads = False
        self.assignment = b""
        self._members: list[str] = []

    async def ask(self, api: API, version: int, **body: Any) -> Any:
        """Return the reply of the group's coordinator, retrying while it changes."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                gateway = await self.cluster.coordinator(self.group)
                asking = asyncio.create_task(gateway.ask(api, version, group_id=self.group, **body))
                try:
                    while not asking.done() and gateway.host.lives:
                        await asyncio.wait({asking}, timeout=0.05)
                    if asking.done() and error_of(asking.result()) not in ASK_AGAIN:
                        return asking.result()
                finally:
                    asking.cancel()
                await asyncio.sleep(0.05)

    async def join(self, session_s: float = 10.0, rebalance_s: float = 30.0) -> int:
        """Join until the member is in a generation; return the last error code."""
        while True:
            reply = await self.ask(
                API.JOIN_GROUP,
                9,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"\0\1subscription"}],
                session_timeout_ms=int(session_s * 1_000),
                rebalance_timeout_ms=int(rebalance_s * 1_000),
            )
            if reply.error_code == Code.MEMBER_ID_REQUIRED:
                self.id = reply.member_id
                continue
            if reply.error_code == Code.NONE:
                self.id, self.generation = reply.member_id, reply.generation_id
                self.leads = reply.leader == self.id
                self._members = [member.member_id for member in reply.members]
            return int(reply.error_code)

    async def sync(self) -> int:
        """Send a SyncGroup, in which the leader assigns each member its own id; return the error code."""
        shares = [{"member_id": member, "assignment": member.encode()} for member in self._members]
        reply = await self.ask(
            API.SYNC_GROUP,
            5,
            member_id=self.id,
            generation_id=self.generation,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        self.assignment = bytes(reply.assignment)
        return int(reply.error_code)

    async def joined(self) -> "Member":
        """Join, and sync until the member has an assignment."""
        while (error := await self.join() or await self.sync()) != Code.NONE:
            assert error in (Code.REBALANCE_IN_PROGRESS, Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION), Code(error)
            if error == Code.UNKNOWN_MEMBER_ID:
                self.id = ""
        return self

    async def heartbeat(self) -> int:
        reply = await self.ask(
            API.HEARTBEAT, 4, member_id=self.id, generation_id=self.generation, group_instance_id=self.instance
        )
        return int(reply.error_code)

    async def leave(self) -> int:
        members = [{"member_id": self.id, "group_instance_id": self.instance}]
        reply = await self.ask(API.LEAVE_GROUP, 5, members=members)
        return int(reply.error_code or reply.members[0].error_code)

    async def commit(self, *offsets: tuple[int, int]) -> list[int]:
        """Commit offsets, as pairs of partition and offset; return the error codes."""
        reply = await self.ask(
            API.OFFSET_COMMIT,
            8,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            topics=[commit_of(TOPIC.name, *offsets)],
        )
        return [partition.error_code for partition in reply.topics[0].partitions]

    async def committed(self) -> dict[int, int]:
        """Return all committed offsets by partition."""
        reply = await self.ask(API.OFFSET_FETCH, 7, topics=None, require_stable=True)
        assert reply.error_code == Code.NONE, reply
        return {p.partition_index: p.committed_offset for t in reply.topics for p in t.partitions}


def commit_of(topic: str, *offsets: tuple[int, int]) -> Any:
    partitions = [{"partition_index": n, "committed_offset": offset, "committed_metadata": ""} for n, offset in offsets]
    return {"name": topic, "partitions": partitions}


def error_of(reply: Any) -> int:
    """Return the error code of the reply, or of its first partition."""
    if isinstance(reply, OffsetCommitResponse):
        return int(reply.topics[0].partitions[0].error_code)
    return int(reply.error_code)
