"""A broker that does nothing but answer, and remembers what was done to it. Run as a module it is a server process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping

from seaweedmq.model.broker import BrokerInfo, BrokerLoad, BrokerStatus, ClusterStatus, Decision
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.description import ALL, SegmentStats, TopicDescription, Which
from seaweedmq.model.groups import (
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
from seaweedmq.model.publish import (
    FrameAck,
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
)
from seaweedmq.model.replication import (
    Emptied,
    FenceReply,
    Progress,
    ReplicateFrames,
    ReplicateHeld,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
    Suspicion,
)
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.subscribe import (
    EARLIEST,
    Start,
    SubscribeFrames,
    SubscribeOpen,
    SubscribeReady,
    SubscribeReply,
    SubscribeRequest,
)
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.rpc.server import serve

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
        ),
    ),
    topics=1,
    open_segments=1,
)
DECISIONS = (Decision(at_us=5, topic=NAME, segments=(0,), kind="hold", reason="a single hot key"),)
SUMMARY = GroupSummary(group="billing", topic=NAME, members=1, generation=2)
GROUP = GroupDescription(group="billing", topics=())
ASSIGNMENT = GroupAssignment(
    generation=1, owned=(Ownership(segment=0, generation=1, start=EARLIEST, deliveries={}, crashes=0),), trust_s=3.0
)
OPEN = PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=7, producer_epoch=0)
CHUNK = bytes(1024 * 1024)
SEALED = SealedLog(
    end_offset=2**40, sequences=(ProducerSequence(producer_id=2**64 - 1, producer_epoch=3, next_sequence=9),)
)


class FakeBroker:
    """Acknowledges every publish message; sends ``CHUNK`` to subscribers without end."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """Raised by every call: streams raise it after their first reply."""
        self.calls: list[object] = []
        self.received: list[object] = []
        self.sent = 0
        self.streams_open = 0
        self.passed_on: FakeBroker = self
        """Answers calls that another broker passes on."""
        self.gate = asyncio.Event()
        """Publish takes no frames until it is set."""
        self.gate.set()

    def _called(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    async def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        self.streams_open += 1
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

    async def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        self.streams_open += 1
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

    async def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        self.streams_open += 1
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

    async def join_group(self, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        self.streams_open += 1
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

    async def split_segment(self, name: TopicName, segment: int, at: int | None) -> TopicDescription:
        self._called("split", name, segment, at)
        return DESCRIPTION

    async def merge_segments(self, name: TopicName, first: int, second: int) -> TopicDescription:
        self._called("merge", name, first, second)
        return DESCRIPTION

    async def seal_segment(self, name: TopicName, segment: int) -> TopicDescription:
        self._called("seal by hand", name, segment)
        return DESCRIPTION

    async def move_segment(self, name: TopicName, segment: int, brokers: tuple[str, ...]) -> TopicDescription:
        self._called("move", name, segment, brokers)
        return DESCRIPTION

    async def rebalance(self) -> tuple[Decision, ...]:
        self._called("rebalance")
        return DECISIONS

    async def list_groups(self) -> tuple[GroupSummary, ...]:
        self._called("list groups")
        return (SUMMARY,)

    async def describe_group(self, group: str) -> GroupDescription:
        self._called("describe group", group)
        return GROUP

    async def reset_group(self, group: str, name: TopicName, start: Start, force: bool) -> GroupDescription:
        self._called("reset group", group, name, start, force)
        return GROUP

    async def delete_group(self, group: str, force: bool) -> None:
        self._called("delete group", group, force)

    async def progress(self, progress: Progress) -> None:
        self._called("progress", progress)

    async def fence(self, ref: SegmentRef) -> FenceReply:
        self._called("fence", ref)
        return FenceReply(end_offset=None if ref.epoch == 1 else ref.epoch)

    async def write_out(self, ref: SegmentRef, end_offset: int) -> SealedLog:
        self._called("write_out", ref, end_offset)
        return SEALED

    async def seal(self, ref: SegmentRef) -> SealedLog:
        self._called("seal", ref)
        return SEALED

    async def suspect(self, suspicion: Suspicion) -> None:
        self._called("suspect", suspicion)

    async def report_emptied(self, emptied: Emptied) -> None:
        self._called("emptied", emptied)

    async def drain_broker(self, broker: str) -> None:
        self._called("drain", broker)

    async def create_topic(self, spec: TopicSpec) -> TopicDescription:
        self._called("create", spec)
        return DESCRIPTION

    async def alter_topic(self, name: TopicName, change: TopicChange, topic_uid: int = 0) -> TopicDescription:
        self._called("alter", name, change, topic_uid)
        return DESCRIPTION

    async def delete_topic(self, name: TopicName, topic_uid: int = 0) -> None:
        self._called("delete", name, topic_uid)

    async def list_topics(self) -> tuple[Topic, ...]:
        self._called("list")
        return (TOPIC,)

    async def describe_topic(self, name: TopicName, which: Which = ALL, topic_uid: int = 0) -> TopicDescription:
        self._called("describe", name, which, topic_uid)
        return DESCRIPTION

    async def adopt_schema(self, name: TopicName, schema: bytes, topic_uid: int = 0) -> TopicDescription:
        self._called("adopt", name, schema)
        return DESCRIPTION

    async def topic_stats(self, name: TopicName) -> tuple[SegmentStats, ...]:
        self._called("stats", name)
        return STATS

    async def cluster_status(self) -> ClusterStatus:
        self._called("status")
        await self.gate.wait()
        return STATUS

    async def local_stats(self, name: TopicName, topic_uid: int = 0) -> tuple[SegmentStats, ...]:
        self._called("local", name)
        return STATS

    async def log_ends(self, name: TopicName, uid: int, revision: int) -> Mapping[int, int]:
        self._called("ends", name, uid, revision)
        return {0: 5, 3: 2**40}

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
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
