"""Brokers at a distance: ``GrpcDialer.dial`` gives the ``BrokerApi`` of an address."""

from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar

import grpc.aio

from seaweedmq.errors import Closed
from seaweedmq.model.broker import BrokerLoad, ClusterStatus, Decision
from seaweedmq.model.description import ALL, SegmentStats, TopicDescription, Which
from seaweedmq.model.frames import PROTOCOL_VERSION
from seaweedmq.model.groups import GroupDescription, GroupReply, GroupRequest, GroupSummary
from seaweedmq.model.publish import PublishReply, PublishRequest
from seaweedmq.model.replication import (
    Emptied,
    FenceReply,
    Progress,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
    Suspicion,
)
from seaweedmq.model.subscribe import Start, SubscribeReply, SubscribeRequest
from seaweedmq.model.topic import Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.ports import BrokerApi, LeaderApi
from seaweedmq.rpc import groups, methods, replication, segments, wire
from seaweedmq.rpc.address import parse_address
from seaweedmq.rpc.calls import Peer
from seaweedmq.rpc.methods import Unary
from seaweedmq.rpc.transport import (
    JOIN_GROUP,
    PASSED_ON_KEY,
    PROTOCOL_KEY,
    PUBLISH,
    REPLICATE,
    REPORT_LOAD,
    SUBSCRIBE,
    client_options,
)

Q = TypeVar("Q")
R = TypeVar("R")

MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Largest message accepted from a broker; its own frame limit is below."""


class GrpcDialer:
    """One connection an address, opened at the first call and opened again after a loss. Belongs to one event loop."""

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        protocol_version: int = PROTOCOL_VERSION,
    ) -> None:
        """``timeout_s`` is the deadline of a unary call; streams have none."""
        self._timeout_s = timeout_s
        self._options = client_options(message_bytes_max)
        self._metadata = ((PROTOCOL_KEY, str(protocol_version)),)
        self._brokers: dict[str, _GrpcBroker] = {}
        self._closed = False

    def dial(self, address: str) -> BrokerApi:
        """The broker at ``host:port``. Nothing is sent yet: a broker out of reach shows at the first call.

        Raises:
            InvalidArgument: not an address.
            Closed: the dialer was closed.
        """
        if self._closed:
            raise Closed(f"can not dial {address}: the client was closed; make a new one")
        broker = self._brokers.get(address)
        if broker is None:
            target = str(parse_address(address))
            channel = grpc.aio.insecure_channel(target, options=self._options)
            broker = _GrpcBroker(channel, Peer(target, self._metadata), self._timeout_s)
            self._brokers[address] = broker
        return broker

    async def close(self) -> None:
        """Close every connection; what is under way ends with Closed. May be called again."""
        self._closed = True
        for broker in self._brokers.values():
            await broker.close()


DRAIN_TIMEOUT_S = 120.0
"""Moving many segments, of a broker or for balance, is paced, and takes its time."""
CHANGE_TIMEOUT_S = 30.0
"""Sealing a segment whose broker just died waits for the end of its lease."""


class _GrpcBroker:
    """A remote broker. Streams are async generators: nothing happens before the first reply is asked for, requests are
    pulled only as the network takes them, and closing the generator cancels the call and closes the requests."""

    def __init__(self, channel: grpc.aio.Channel, peer: Peer, timeout_s: float) -> None:
        self._channel = channel
        self._peer = peer
        self._timeout_s = timeout_s
        self._publish: Any = channel.stream_stream(PUBLISH, None, None)
        self._subscribe: Any = channel.stream_stream(SUBSCRIBE, None, None)
        self._replicate: Any = channel.stream_stream(REPLICATE, None, None)
        self._join_group: Any = channel.stream_stream(JOIN_GROUP, None, None)
        self._report_load: Any = channel.stream_unary(REPORT_LOAD, None, None)

    @cached_property
    def passed_on(self) -> LeaderApi:
        return _GrpcBroker(self._channel, self._peer.with_metadata(PASSED_ON_KEY, "1"), self._timeout_s)

    def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        return self._peer.stream(
            "Publish", self._publish, requests, wire.encode_publish_request, wire.decode_publish_reply
        )

    def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        return self._peer.stream(
            "Subscribe", self._subscribe, requests, wire.encode_subscribe_request, wire.decode_subscribe_reply
        )

    def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        return self._peer.stream(
            "Replicate",
            self._replicate,
            requests,
            replication.encode_replicate_request,
            replication.decode_replicate_reply,
        )

    def join_group(self, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        return self._peer.stream(
            "Join", self._join_group, requests, groups.encode_group_request, groups.decode_group_reply
        )

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        await self._peer.feed("ReportLoad", self._report_load, reports, wire.encode_load)

    async def create_topic(self, spec: TopicSpec) -> TopicDescription:
        return await self._unary(methods.CREATE_TOPIC, spec)

    async def alter_topic(self, name: TopicName, change: TopicChange, topic_uid: int = 0) -> TopicDescription:
        return await self._unary(methods.ALTER_TOPIC, (name, change, topic_uid))

    async def delete_topic(self, name: TopicName, topic_uid: int = 0) -> None:
        await self._unary(methods.DELETE_TOPIC, (name, topic_uid))

    async def list_topics(self) -> tuple[Topic, ...]:
        return await self._unary(methods.LIST_TOPICS, None)

    async def describe_topic(self, name: TopicName, which: Which = ALL, topic_uid: int = 0) -> TopicDescription:
        return await self._unary(methods.DESCRIBE_TOPIC, (name, which, topic_uid))

    async def adopt_schema(self, name: TopicName, schema: bytes, topic_uid: int = 0) -> TopicDescription:
        return await self._unary(methods.ADOPT_SCHEMA, (name, schema, topic_uid))

    async def topic_stats(self, name: TopicName) -> tuple[SegmentStats, ...]:
        return await self._unary(methods.TOPIC_STATS, name)

    async def cluster_status(self) -> ClusterStatus:
        return await self._unary(methods.CLUSTER_STATUS, None)

    async def local_stats(self, name: TopicName, topic_uid: int = 0) -> tuple[SegmentStats, ...]:
        return await self._unary(methods.LOCAL_STATS, (name, topic_uid))

    async def log_ends(self, name: TopicName, uid: int, revision: int) -> Mapping[int, int]:
        return await self._unary(methods.LOG_ENDS, (name, uid, revision))

    async def drain_broker(self, broker: str) -> None:
        await self._unary(methods.DRAIN_BROKER, broker, DRAIN_TIMEOUT_S)

    async def split_segment(self, name: TopicName, segment: int, at: int | None) -> TopicDescription:
        return await self._unary(segments.SPLIT_SEGMENT, (name, segment, at), CHANGE_TIMEOUT_S)

    async def merge_segments(self, name: TopicName, first: int, second: int) -> TopicDescription:
        return await self._unary(segments.MERGE_SEGMENTS, (name, first, second), CHANGE_TIMEOUT_S)

    async def seal_segment(self, name: TopicName, segment: int) -> TopicDescription:
        return await self._unary(segments.SEAL_SEGMENT, (name, segment), CHANGE_TIMEOUT_S)

    async def move_segment(self, name: TopicName, segment: int, brokers: tuple[str, ...]) -> TopicDescription:
        return await self._unary(segments.MOVE_SEGMENT, (name, segment, brokers), CHANGE_TIMEOUT_S)

    async def rebalance(self) -> tuple[Decision, ...]:
        return await self._unary(segments.REBALANCE, None, DRAIN_TIMEOUT_S)

    async def list_groups(self) -> tuple[GroupSummary, ...]:
        return await self._unary(groups.LIST_GROUPS, None)

    async def describe_group(self, group: str) -> GroupDescription:
        return await self._unary(groups.DESCRIBE_GROUP, group)

    async def reset_group(self, group: str, name: TopicName, start: Start, force: bool) -> GroupDescription:
        return await self._unary(groups.RESET_GROUP, (group, name, start, force))

    async def delete_group(self, group: str, force: bool) -> None:
        await self._unary(groups.DELETE_GROUP, (group, force))

    async def progress(self, progress: Progress) -> None:
        await self._unary(replication.NOTE_PROGRESS, progress)

    async def fence(self, ref: SegmentRef) -> FenceReply:
        return await self._unary(replication.FENCE, ref)

    async def write_out(self, ref: SegmentRef, end_offset: int) -> SealedLog:
        return await self._unary(replication.WRITE_OUT, (ref, end_offset))

    async def seal(self, ref: SegmentRef) -> SealedLog:
        return await self._unary(replication.SEAL, ref)

    async def suspect(self, suspicion: Suspicion) -> None:
        await self._unary(replication.SUSPECT, suspicion)

    async def report_emptied(self, emptied: Emptied) -> None:
        await self._unary(replication.REPORT_EMPTIED, emptied)

    async def close(self) -> None:
        """Cancel what is under way and drop the connection."""
        self._peer.close()
        await self._channel.close(None)

    async def _unary(self, method: Unary[Q, R], request: Q, timeout_s: float | None = None) -> R:
        data = await self._peer.unary(
            method.name,
            self._channel.unary_unary(method.path, None, None),
            method.encode_request(request),
            timeout_s or self._timeout_s,
        )
        return method.decode_reply(data)
