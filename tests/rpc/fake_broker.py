"""A broker that only answers, and records its calls. As a module it runs a server process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

from seaweedmq.model.broker import BrokerLoad, ClusterStatus
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages import blobs as b
from seaweedmq.model.messages import calls as c
from seaweedmq.model.messages import groups as g
from seaweedmq.model.messages import publish as p
from seaweedmq.model.messages import replication as r
from seaweedmq.model.messages import subscribe as s
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.segment import ProducerSequence
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.rpc.server import serve
from tests.rpc.any_value import some_value

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
ASSIGNMENT = g.GroupAssignment(
    generation=1, owned=(g.Ownership(segment=0, generation=1, start=s.EARLIEST, deliveries={}, crashes=0),), trust_s=3.0
)
OPEN = p.PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=7, producer_epoch=0)
CHUNK = bytes(1024 * 1024)
SEALED = r.SealedLog(
    end_offset=2**40, sequences=(ProducerSequence(producer_id=2**64 - 1, producer_epoch=3, next_sequence=9),)
)

ANSWERS: Mapping[type[c.Call[Any]], Any] = {
    **dict.fromkeys((c.WriteOut, c.Seal), SEALED),
    c.ListTopics: (TOPIC,),
    c.GetClusterStatus: lambda call: replace(some_value(ClusterStatus), leader="b-1", brokers=()),
    c.LogEnds: {0: 5, 3: 2**40},
    c.Fence: lambda call: r.FenceReply(end_offset=None if call.ref.epoch == 1 else call.ref.epoch),
}
"""Answers that tests name; those to other calls are some value of their type."""


def answer_to(request: c.Call[Any]) -> Any:
    answer = ANSWERS.get(type(request))
    if answer is None:
        (result,) = get_args(type(request).__orig_bases__[0])  # type: ignore[attr-defined]
        return some_value(result, "end_offsets")
    return answer(request) if callable(answer) else answer


async def stream_of(*requests: R) -> AsyncIterator[R]:
    for request in requests:
        yield request


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
        self, requests: AsyncIterator[p.PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[p.PublishReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            self.received.append(await anext(requests))
            yield p.PublishReady(
                next_sequence=0, frame_bytes_max=1 << 24, in_flight_frames_max=16, in_flight_bytes_max=1 << 25
            )
            if self.error is not None:
                raise self.error
            sequence = 0
            await self.gate.wait()
            async for request in requests:
                assert isinstance(request, p.PublishFrames)
                self.received.append(len(request.data))
                yield p.PublishAck((p.FrameAck(sequence, 1, sequence),))
                sequence += 1
                await self.gate.wait()
        finally:
            self.streams_open -= 1

    async def subscribe(
        self, requests: AsyncIterator[s.SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[s.SubscribeReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            request = await anext(requests)
            assert isinstance(request, s.SubscribeOpen)
            yield s.SubscribeReady(start_offset=0, high_watermark=0)
            while request.credit_bytes:
                yield s.SubscribeFrames(CHUNK)
                self.sent += 1
            await asyncio.Event().wait()
        finally:
            self.streams_open -= 1

    async def replicate(
        self, requests: AsyncIterator[r.ReplicateRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[r.ReplicateReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            self.received.append(await anext(requests))
            yield r.ReplicateHeld(end_offset=0)
            if self.error is not None:
                raise self.error
            held = 0
            async for request in requests:
                assert isinstance(request, r.ReplicateFrames)
                held += len(request.data)
                yield r.ReplicateHeld(end_offset=held)
        finally:
            self.streams_open -= 1

    async def upload(
        self, requests: AsyncIterator[b.UploadRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[b.UploadReply]:
        self.contexts.append(context)
        yield b.UploadReady("blobs/x", 9)
        async for request in requests:
            self.received.append(request)
            if isinstance(request, b.PartEnd):
                yield b.PartStored(0)
        yield b.UploadDone()

    async def read_blob(
        self, requests: AsyncIterator[b.BlobRange], context: CallContext = INTERNAL
    ) -> AsyncIterator[b.BlobData]:
        self.contexts.append(context)
        wanted = await anext(requests)
        self.received.append(wanted)
        for _ in range(wanted.length):
            yield b.BlobData(b"x")

    async def join_group(
        self, requests: AsyncIterator[g.GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[g.GroupReply]:
        self.streams_open += 1
        self.contexts.append(context)
        try:
            self.received.append(await anext(requests))
            yield ASSIGNMENT
            if self.error is not None:
                raise self.error
            async for request in requests:
                self.received.append(request)
                if isinstance(request, g.GroupCommit):
                    yield g.GroupCommitted(request.number, {9: "segment 9 belongs to another member"})
                elif isinstance(request, g.GroupLeave):
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
        return answer_to(request)  # type: ignore[no-any-return]

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
