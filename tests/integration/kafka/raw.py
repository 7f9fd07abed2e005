"""Requests that no client would send, to real brokers, and their answers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from seaweedmq.kafka.wire.messages import (
    API,
    REQUESTS,
    FetchRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    ProduceRequest,
)
from tests.kafka.wire.script import script

PRODUCE, FETCH = 9, 12
"""Versions of the requests."""
PATIENCE_S = 30.0
WITHIN_S = 0.05


class Brokers:
    """The brokers of a cluster, by the ports of their listeners for Kafka's clients."""

    def __init__(self, bootstrap: str) -> None:
        self.ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]

    async def ask(self, port: int, api: API, version: int, **fields: Any) -> Any:
        """Return the only answer to a request, on a new connection."""
        async with script(port) as peer:
            peer.ask(1, api, version, REQUESTS[api](version=version, **fields))
            number, reply = await peer.hear(api, version)
            assert number == 1
            return reply

    async def metadata(self, *topics: str) -> Any:
        """Return the description of these topics, and of the brokers."""
        make = REQUESTS[API.METADATA].MetadataRequestTopic
        return await self.ask(
            self.ports[0],
            API.METADATA,
            9,
            topics=[make(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Return the port of the broker that leads a partition, once Kafka clients see it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reply = await self.metadata(topic)
                ports = {broker.node_id: broker.port for broker in reply.brokers}
                for found in reply.topics[0].partitions:
                    if found.partition_index == partition and found.leader_id in ports:
                        return int(ports[found.leader_id])
                await asyncio.sleep(WITHIN_S)

    async def coordinator(self, group: str) -> int:
        """Return the port of the broker that coordinates a group, once there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reply = await self.ask(self.ports[0], API.FIND_COORDINATOR, 4, coordinator_keys=[group], key_type=0)
                if not reply.coordinators[0].error_code:
                    return int(reply.coordinators[0].port)
                await asyncio.sleep(WITHIN_S)

    async def produce(self, topic: str, partition: int, records: bytes, *, port: int | None = None) -> Any:
        fields = produce_fields(topic, partition, records)
        reply = await self.ask(port or await self.leader(topic, partition), API.PRODUCE, PRODUCE, **fields)
        return reply.responses[0].partition_responses[0]

    async def fetch(self, topic: str, partition: int, offset: int, *, port: int | None = None, **other: Any) -> Any:
        """Return the answer for the partition, and the whole reply."""
        fields = fetch_fields(topic, partition, offset, **other)
        reply = await self.ask(port or await self.leader(topic), API.FETCH, FETCH, **fields)
        return (reply.responses[0].partitions[0] if reply.responses else None), reply


def produce_fields(
    topic: str, partition: int, records: bytes, *, acks: int = -1, timeout_ms: int = 10_000
) -> dict[str, Any]:
    """Return the fields of a request for one partition."""
    make = ProduceRequest.TopicProduceData
    data = make.PartitionProduceData(index=partition, records=records)
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [make(name=topic, partition_data=[data])],
    }


def fetched(topic: str | UUID, *partitions: int, offset: int = 0, epoch: int = -1, bytes_max: int = 1 << 20) -> Any:
    """Return a topic of a Fetch, by name or id."""
    make = FetchRequest.FetchTopic
    parts = [
        make.FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=bytes_max,
        )
        for number in partitions
    ]
    return make(**{"topic" if isinstance(topic, str) else "topic_id": topic}, partitions=parts)


def fetch_fields(
    topic: str, partition: int, offset: int, *, epoch: int = -1, partition_max_bytes: int = 1 << 20, **other: Any
) -> dict[str, Any]:
    """Return the fields of a request for one partition. ``other``: fields of the request."""
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [fetched(topic, partition, offset=offset, epoch=epoch, bytes_max=partition_max_bytes)],
        "forgotten_topics_data": [],
        "rack_id": "",
    } | other


def join_fields(group: str, member: str = "", protocol: str = "range", **other: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=b"s")],
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 6_000,
        "reason": None,
    } | other


def commit_fields(group: str, topics: Mapping[str, Sequence[int]], metadata: str = "", **other: Any) -> dict[str, Any]:
    make = OffsetCommitRequest.OffsetCommitRequestTopic
    part = make.OffsetCommitRequestPartition
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            make(
                name=name,
                partitions=[
                    part(partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=metadata)
                    for n in numbers
                ],
            )
            for name, numbers in topics.items()
        ],
    } | other
