"""Router of calls to their handler: this broker, the leader, or a named broker.

It is the only module that forwards calls.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from seaweedmq.broker.cluster_status import StatusService, leader_status
from seaweedmq.broker.drainer import Drainer
from seaweedmq.broker.groups.join_request import checked, with_first
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.leader_forwarder import LeaderForwarder
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.owned import OwnedSegments
from seaweedmq.broker.serve.blobs import BlobService
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.broker.serve.kafka_group_router import KAFKA_GROUP_CALLS, KafkaGroupRouter
from seaweedmq.broker.serve.publish import PublishService
from seaweedmq.broker.serve.subscribe import SubscribeService
from seaweedmq.errors import ProtocolViolation, Unavailable
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages import calls
from seaweedmq.model.messages.blobs import BlobData, BlobRange, UploadReply, UploadRequest
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.messages.groups import GroupOpen, GroupReply, GroupRequest
from seaweedmq.model.messages.publish import PublishReply, PublishRequest
from seaweedmq.model.messages.replication import ReplicateReply, ReplicateRequest
from seaweedmq.model.messages.subscribe import SubscribeReply, SubscribeRequest
from seaweedmq.model.topic import TopicSpec
from seaweedmq.ports import LeaderApi
from seaweedmq.runtime.closing import closing

R = TypeVar("R")


async def _create(leader: Leader, spec: TopicSpec) -> TopicDescription:
    (made,) = await leader.topics.create((spec,))
    return made


BY_LEADER: Mapping[type[calls.Call[Any]], Callable[[Leader, Any], Awaitable[Any]]] = {
    calls.CreateTopic: lambda leader, call: _create(leader, call.spec),
    calls.CreateTopics: lambda leader, call: leader.topics.create(call.specs),
    calls.AlterTopic: lambda leader, call: leader.topics.alter(call.name, call.change, call.topic_uid, call.revision),
    calls.DeleteTopic: lambda leader, call: leader.topics.delete(call.name, call.topic_uid),
    calls.RaiseLowWatermark: lambda leader, call: leader.record_deletion.raise_low_watermark(
        call.name, call.before, call.topic_uid
    ),
    calls.AdoptSchema: lambda leader, call: leader.topics.adopt_schema(call.name, call.schema, call.topic_uid),
    calls.SplitSegment: lambda leader, call: leader.segment_admin.split(call.name, call.segment, call.at),
    calls.MergeSegments: lambda leader, call: leader.segment_admin.merge(call.name, call.first, call.second),
    calls.SealSegment: lambda leader, call: leader.segment_admin.seal(call.name, call.segment),
    calls.MoveSegment: lambda leader, call: leader.segment_admin.move(call.name, call.segment, call.brokers),
    calls.Rebalance: lambda leader, _: leader.balancing.rebalance(),
    calls.GetClusterStatus: leader_status,
    calls.ListGroups: lambda leader, _: leader.groups.summaries(),
    calls.DescribeGroup: lambda leader, call: leader.groups.describe(call.group),
    calls.ResetGroup: lambda leader, call: leader.groups.reset(call.group, call.name, call.start, call.force),
    calls.DeleteGroup: lambda leader, call: leader.groups.delete(call.group, call.force),
    calls.ReportSuspicions: lambda leader, suspicions: leader.suspect(suspicions),
    calls.ReportEmptied: lambda leader, emptied: leader.pruning.prune(emptied),
}
"""Calls that the leader answers.

The called broker answers all others, except ``DrainBroker``, which the broker to drain answers, and calls about Kafka
groups, which their coordinators answer.
"""


class Local:
    """The calls that this broker answers itself, whether it leads or not."""

    def __init__(
        self,
        descriptions: Descriptions,
        owned: OwnedSegments,
        blobs: BlobService,
        followers: Callable[[], FollowerService],
    ) -> None:
        self.blobs = blobs
        """Payloads by reference, which every broker serves."""
        self.followers = followers
        """Function that returns the segments that this broker follows; it raises Unavailable before it has joined."""
        self._answers: dict[type[calls.Call[Any]], Callable[[Any], Awaitable[Any]]] = {
            calls.ListTopics: lambda _: descriptions.topics(),
            calls.DescribeTopic: lambda call: descriptions.describe(call.name, call.which, call.topic_uid),
            calls.AwaitTopics: lambda call: descriptions.changed(call.topics, call.patience_s),
            calls.TopicStats: lambda call: descriptions.stats(call.name),
            calls.LocalStats: lambda call: descriptions.local_stats(call.name, call.topic_uid),
            calls.LogEnds: lambda call: descriptions.log_ends(call.name, call.topic_uid, call.revision),
            calls.Seal: lambda call: owned.seal(call.ref),
            calls.NoteProgress: lambda progress: followers().progress(progress),
            calls.Fence: lambda call: followers().fence(call.ref),
            calls.WriteOut: lambda call: followers().write_out(call.ref, call.end_offset),
        }

    async def call(self, request: calls.Call[R]) -> R:
        """Return the answer of this broker."""
        answer: R = await self._answers[type(request)](request)
        return answer


class ForwardedApi:
    """The receiver of forwarded calls: it answers them itself or not at all. Implements ``ports.LeaderApi``."""

    def __init__(
        self,
        local: Local,
        forward: LeaderForwarder,
        draining: Drainer,
        kafka_groups: KafkaGroupRouter,
        check_admission: Callable[[], None],
    ) -> None:
        """Create the receiver; ``check_admission`` raises the reason while this broker may not serve."""
        self._check_admission = check_admission
        self._local = local
        self._forward = forward
        self._draining = draining
        self._kafka_groups = kafka_groups

    async def call(self, request: calls.Call[R], context: CallContext = INTERNAL) -> R:
        """See ``ports.LeaderApi``."""
        self._check_admission()
        by_leader = BY_LEADER.get(type(request))
        if by_leader is not None:
            return await self._forward.call(request, by_leader)
        if isinstance(request, calls.DrainBroker):
            drained: R = await self._drain(request.broker)
            return drained
        if isinstance(request, KAFKA_GROUP_CALLS):
            found: R = await self._of_kafka(request)
            return found
        return await self._local.call(request)

    async def join_group(
        self, requests: AsyncIterator[GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncGenerator[GroupReply, None]:
        """See ``ports.LeaderApi``."""
        self._check_admission()
        opening = await anext(requests, None)
        if not isinstance(opening, GroupOpen):
            raise ProtocolViolation("a member's stream begins with GroupOpen: send that first")
        opening = checked(opening)
        async with closing(
            self._forward.stream(
                lambda leader: leader.groups.join(opening, requests),
                lambda api: api.join_group(with_first(opening, requests)),
            )
        ) as replies:
            async for reply in replies:
                yield reply

    async def _drain(self, broker: str) -> Any:
        if broker != self._draining.broker_id:
            raise Unavailable(f"broker {broker} was replaced by {self._draining.broker_id} a moment ago: retry")
        await self._draining.drain()

    async def _of_kafka(self, request: calls.Call[Any]) -> Any:
        return await self._kafka_groups.here(request)


class Api(ForwardedApi):
    """The network interface of one broker. Implements ``ports.BrokerApi``."""

    def __init__(
        self,
        *,
        local: Local,
        publish: PublishService,
        subscribe: SubscribeService,
        forward: LeaderForwarder,
        draining: Drainer,
        kafka_groups: KafkaGroupRouter,
        status: StatusService,
        check_admission: Callable[[], None],
    ) -> None:
        super().__init__(local, forward, draining, kafka_groups, check_admission)
        self.forwarded: LeaderApi = ForwardedApi(
            local, forward.without_forwarding(), draining, kafka_groups, check_admission
        )
        self._publish = publish
        self._subscribe = subscribe
        self._status = status

    async def call(self, request: calls.Call[R], context: CallContext = INTERNAL) -> R:
        """See ``ports.LeaderApi``."""
        if isinstance(request, calls.GetClusterStatus):
            self._check_admission()
            status: Any = await self._status.status(request)
            found: R = status
            return found
        return await super().call(request, context)

    def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[PublishReply]:
        """See ``ports.BrokerApi``."""
        self._check_admission()
        return self._publish.publish(requests, context)

    def subscribe(
        self, requests: AsyncIterator[SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[SubscribeReply]:
        """See ``ports.BrokerApi``."""
        self._check_admission()
        return self._subscribe.subscribe(requests, context)

    def upload(
        self, requests: AsyncIterator[UploadRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[UploadReply]:
        """See ``ports.BrokerApi``."""
        self._check_admission()
        return self._local.blobs.upload(requests, context)

    def read_blob(self, requests: AsyncIterator[BlobRange], context: CallContext = INTERNAL) -> AsyncIterator[BlobData]:
        """See ``ports.BrokerApi``."""
        self._check_admission()
        return self._local.blobs.read(requests, context)

    def replicate(
        self, requests: AsyncIterator[ReplicateRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[ReplicateReply]:
        """See ``ports.BrokerApi``."""
        self._check_admission()
        return self._local.followers().replicate(requests)

    async def report_load(self, reports: AsyncIterator[BrokerLoad], context: CallContext = INTERNAL) -> None:
        """See ``ports.BrokerApi``."""
        self._check_admission()
        await self._forward.own().report_load(reports)

    async def _drain(self, broker: str) -> Any:
        await self._draining.drain_named(broker)

    async def _of_kafka(self, request: calls.Call[Any]) -> Any:
        return await self._kafka_groups.call(request)
