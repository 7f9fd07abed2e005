"""A broker that only answers, and records its calls. As a module it runs a server process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from seaweedmq.model.broker import BrokerInfo, BrokerLoad, BrokerStatus, ClusterStatus, Decision, EtcdAccess
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.description import SegmentStats, TopicDescription, UpdatedTopics
from seaweedmq.model.kafka.group_admin import (
    KafkaGroupDescription,
    KafkaGroupMember,
    KafkaGroupOffset,
    KafkaGroupSummary,
)
from seaweedmq.model.messages import calls as c
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.messages.groups import (
    GroupAssignment,
    GroupCommit,
    GroupCommitted,
    GroupDescription,
    GroupLeave,
    GroupReply,
    GroupRequest,
    GroupSummary,
    Ownership,
)
from seaweedmq.model.messages.publish import (
    FrameAck,
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
)
from seaweedmq.model.messages.replication import (
    FenceReply,
    ReplicateFrames,
    ReplicateHeld,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
)
from seaweedmq.model.messages.subscribe import (
    EARLIEST,
    SubscribeFrames,
    SubscribeOpen,
    SubscribeReady,
    SubscribeReply,
    SubscribeRequest,
)
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.rpc.server import serve

R = TypeVar("R")

NAME = TopicName("shop", "orders")
TOPIC = Topic(
    name=NAME,
    uid=2**63 - 1,
    replicas=1,
    durability=Durability.STORED,
    scaling=Scaling.FIXED,
    schema=None,
    retention_s=None,
    retention_bytes=None,
    next_segment=1,
    created_us=1_700_000_000_000_000,
)
SEGMENT = Segment(
    topic=NAME, id=0, slots=WHOLE_RING, epoch=1, state=SegmentState.OPEN, replicas=("b-1",), predecessors=()
)
DESCRIPTION = TopicDescription(topic=TOPIC, segments=(SEGMENT,), addresses={"b-1": "127.0.0.1:17777"})
STATS = (
    SegmentStats(segment=0, start_offset=3, high_watermark=7, flushed_offset=5, bytes_per_s=1.5, records_per_s=0.5),
)
STATUS = ClusterStatus(
    leader="b-1",
    brokers=(
        BrokerStatus(
            info=BrokerInfo(id="b-1", address="127.0.0.1:17777", started_us=5, pid=1, version="0.1.0"),
            load=None,
            open_segments=1,
            is_leader=True,
            etcd=EtcdAccess(trouble="database space exceeded", lease_s=1.5),
        ),
    ),
    topics=1,
    open_segments=4,
    under_replicated_segments=3,
    unrecoverable_segments=2,
    etcd="database space exceeded",
)
DECISIONS = (Decision(at_us=5, topic=NAME, segments=(0,), kind="hold", reason="a single hot key"),)
SUMMARY = GroupSummary(group="billing", topic=NAME, members=1, generation=2)
GROUP = GroupDescription(group="billing", topics=())
KAFKA_SUMMARY = KafkaGroupSummary(group="billing", state="Stable", protocol_type="consumer", members=2)
KAFKA_GROUP = KafkaGroupDescription(
    group="billing",
    state="Stable",
    protocol_type="consumer",
    protocol="range",
    coordinator="b-1",
    members=(KafkaGroupMember(id="m-1", instance="", client="c", host="127.0.0.1", partitions=(("kafka/orders", 3),)),),
    offsets=(
        KafkaGroupOffset(partition=("kafka/orders", 0), owner="", committed=None, end_offset=None),
        KafkaGroupOffset(partition=("kafka/orders", 3), owner="m-1", committed=0, end_offset=2**40),
    ),
)
ASSIGNMENT = GroupAssignment(
    generation=1, owned=(Ownership(segment=0, generation=1, start=EARLIEST, deliveries={}, crashes=0),), trust_s=3.0
)
OPEN = PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=7, producer_epoch=0)
CHUNK = bytes(1024 * 1024)
SEALED = SealedLog(
    end_offset=2**40, sequences=(ProducerSequence(producer_id=2**64 - 1, producer_epoch=3, next_sequence=9),)
)

ANSWERS: Mapping[type[c.Call[Any]], Any] = {
    **dict.fromkeys((c.CreateTopic, c.AlterTopic, c.DescribeTopic, c.AdoptSchema), DESCRIPTION),
    **dict.fromkeys((c.SplitSegment, c.MergeSegments, c.SealSegment, c.MoveSegment), DESCRIPTION),
    **dict.fromkeys((c.DeleteTopic, c.DrainBroker, c.DeleteGroup, c.DeleteKafkaGroup), None),
    **dict.fromkeys((c.NoteProgress, c.ReportSuspicions, c.ReportEmptied), None),
    **dict.fromkeys((c.TopicStats, c.LocalStats), STATS),
    **dict.fromkeys((c.WriteOut, c.Seal), SEALED),
    **dict.fromkeys((c.DescribeGroup, c.ResetGroup), GROUP),
    c.CreateTopics: lambda call: (DESCRIPTION,) * len(call.specs),
    c.AwaitTopics: lambda call: UpdatedTopics((DESCRIPTION,) * len(call.topics), (1, 2**63 - 1)),
    c.ListTopics: (TOPIC,),
    c.GetClusterStatus: STATUS,
    c.Rebalance: DECISIONS,
    c.ListGroups: (SUMMARY,),
    **dict.fromkeys((c.DescribeKafkaGroup, c.ResetKafkaGroup), KAFKA_GROUP),
    c.ListKafkaGroups: (KAFKA_SUMMARY,),
    c.LogEnds: {0: 5, 3: 2**40},
    c.RaiseLowWatermark: {0: 5, 4_095: 2**40},
    c.Fence: lambda call: FenceReply(end_offset=None if call.ref.epoch == 1 else call.ref.epoch),
}


class FakeBroker:
    """A broker that acknowledges every publish message, and sends ``CHUNK`` to subscribers without end."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """Error that every call raises: streams raise it after their first reply."""
        self.calls: list[object] = []
        self.contexts: list[CallContext] = []
        """Context of every call and stream."""
        self.received: list[object] = []
        self.sent = 0
        self.streams_open = 0
        self.forwarded: FakeBroker = self
        """Broker that answers the calls forwarded by another broker."""
        self.gate = asyncio.Event()
        """Event that must be set before publish streams accept frames."""
        self.gate.set()

    async def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[PublishReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            self.received.append(await anext(requests))
            yield PublishReady(
                next_sequence=0, frame_bytes_max=1 << 24, in_flight_frames_max=16, in_flight_bytes_max=1 << 25
            )
            if self.error is not None:
                raise self.error
            sequence = 0
            await self.gate.wait()
            async for request in requests:
                assert isinstance(request, PublishFrames)
                self.received.append(len(request.data))
                yield PublishAck((FrameAck(sequence, 1, sequence),))
                sequence += 1
                await self.gate.wait()
        finally:
            self.streams_open -= 1

    async def subscribe(
        self, requests: AsyncIterator[SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[SubscribeReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            request = await anext(requests)
            assert isinstance(request, SubscribeOpen)
            yield SubscribeReady(start_offset=0, high_watermark=0)
            while request.credit_bytes:
                yield SubscribeFrames(CHUNK)
                self.sent += 1
            await asyncio.Event().wait()
        finally:
            self.streams_open -= 1

    async def replicate(
        self, requests: AsyncIterator[ReplicateRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[ReplicateReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            self.received.append(await anext(requests))
            yield ReplicateHeld(end_offset=0)
            if self.error is not None:
                raise self.error
            held = 0
            async for request in requests:
                assert isinstance(request, ReplicateFrames)
                held += len(request.data)
                yield ReplicateHeld(end_offset=held)
        finally:
            self.streams_open -= 1

    async def join_group(
        self, requests: AsyncIterator[GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[GroupReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            self.received.append(await anext(requests))
            yield ASSIGNMENT
            if self.error is not None:
                raise self.error
            async for request in requests:
                self.received.append(request)
                if isinstance(request, GroupCommit):
                    yield GroupCommitted(request.number, {9: "segment 9 belongs to another member"})
                elif isinstance(request, GroupLeave):
                    return
        finally:
            self.streams_open -= 1

    async def call(self, request: c.Call[R], context: CallContext = INTERNAL) -> R:
        self.calls.append(request)
        self.contexts.append(context)
        if self.error is not None:
            raise self.error
        if isinstance(request, c.GetClusterStatus):
            await self.gate.wait()
        answer: Any = ANSWERS[type(request)]
        return answer(request) if callable(answer) else answer

    async def report_load(self, reports: AsyncIterator[BrokerLoad], context: CallContext = INTERNAL) -> None:
        self.contexts.append(context)
        async for report in reports:
            self.received.append(report)
            if self.error is not None:
                raise self.error


async def _main() -> None:
    server = await serve(FakeBroker(), "127.0.0.1:0", BrokerConfig())
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
