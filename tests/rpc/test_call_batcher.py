"""Concurrent calls travel in one message, and each succeeds or fails on its own."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from seaweedmq.errors import DeadlineExceeded, NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.call_context import INTERNAL
from seaweedmq.model.messages.calls import Fence, LogEnds, NoteProgress, Seal
from seaweedmq.model.messages.replication import FenceReply, SegmentRef
from seaweedmq.rpc import call_batcher, client
from seaweedmq.rpc.call_batcher import CallBatcher
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from seaweedmq.rpc.v1 import types_pb2
from seaweedmq.runtime.signal import Signal
from tests.rpc.fake_broker import NAME, SEALED, FakeBroker

REF = SegmentRef(topic=NAME, topic_uid=5, segment=0, epoch=1)
PATIENCE_S = 10.0
MISSING = 9_999
BROKEN = 9_998


class Slow(FakeBroker):
    """A broker that answers for segment 13 once ``go`` is set, rejects segment ``MISSING``, and records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.asked_again = Signal()
        self.go = asyncio.Event()

    async def call(self, request, context=INTERNAL):
        if isinstance(request, Seal | Fence):
            self.asked.append(request.ref.segment)
            self.asked_again.fire()
            if request.ref.segment == MISSING:
                raise NotFound("there is no segment 9999")
            if request.ref.segment == BROKEN:
                raise ValueError("a bug")
            if request.ref.segment == 13:
                await self.go.wait()
        return await super().call(request, context)


@pytest.fixture
def fake() -> FakeBroker:
    return Slow()


@pytest.fixture
def envelopes(monkeypatch) -> list[int]:
    """Record the number of calls in each message."""
    sizes: list[int] = []
    answer = call_batcher.answer

    async def counted(data, *rest):
        sizes.append(len(types_pb2.TogetherRequest.FromString(data).parts))
        return await answer(data, *rest)

    monkeypatch.setattr(call_batcher, "answer", counted)
    return sizes


async def test_many_calls_are_few_messages_and_each_has_its_answer(broker, envelopes):
    refs = [replace(REF, segment=100 + n, epoch=n % 2 + 1) for n in range(600)]
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(broker.call(Fence(ref)) for ref in refs))
    assert answers == [FenceReply(end_offset=None if ref.epoch == 1 else ref.epoch) for ref in refs]
    assert sum(envelopes) == 600
    assert max(envelopes) <= call_batcher.PARTS_MAX
    assert len(envelopes) <= 5


async def test_calls_of_several_kinds_travel_together_one_alone_as_itself_and_each_is_refused_alone(broker, envelopes):
    async with asyncio.timeout(PATIENCE_S):
        assert await broker.call(Seal(REF)) == SEALED
        assert envelopes == []
        answers = await asyncio.gather(
            broker.call(Seal(REF)),
            broker.call(NoteProgress(ref=REF, committed=1, flushed=1)),
            broker.call(LogEnds(NAME, 5, 1)),
        )
    assert answers == [SEALED, None, {0: 5, 3: 2**40}]
    assert envelopes == [3]
    async with asyncio.timeout(PATIENCE_S):
        fine, refused = await asyncio.gather(
            broker.call(Seal(REF)), broker.call(Seal(replace(REF, segment=MISSING))), return_exceptions=True
        )
    assert fine == SEALED
    assert isinstance(refused, NotFound)
    assert str(refused) == "there is no segment 9999"


async def test_an_unexpected_error_of_one_call_fails_no_other(broker, envelopes, caplog):
    async with asyncio.timeout(PATIENCE_S):
        fine, broken = await asyncio.gather(
            broker.call(Seal(REF)), broker.call(Seal(replace(REF, segment=BROKEN))), return_exceptions=True
        )
    assert envelopes == [2]
    assert fine == SEALED
    assert type(broken) is SeaweedMQError
    assert "Seal failed inside the broker (ValueError)" in str(broken)
    assert "call failed: failure" in caplog.text


async def test_calls_that_stay_slow_are_made_alone_with_all_their_time():
    """Each batched attempt starts again, so none with a limit could finish a call that takes most of its deadline."""
    patiences: list[int] = []
    alone: list[tuple[bytes, float]] = []

    async def make_alone(_, request, timeout_s):
        alone.append((request, timeout_s))
        return b"reply to " + request

    async def make_together(data, _):
        request = types_pb2.TogetherRequest.FromString(data)
        patiences.append(request.patience_ms)
        later = [types_pb2.TogetherReply.Part(later=True) for _ in request.parts]
        return types_pb2.TogetherReply(parts=later).SerializeToString()

    batcher = CallBatcher(make_alone, make_together, "a:1")
    method = SimpleNamespace(name="Seal")
    replies = await asyncio.gather(*(batcher.call(method, request, PATIENCE_S) for request in (b"1", b"2")))
    assert replies == [b"reply to 1", b"reply to 2"]
    assert patiences == [100, 400]
    assert sorted(alone) == [(b"1", PATIENCE_S), (b"2", PATIENCE_S)]


async def test_a_slow_one_holds_up_no_other_and_is_asked_again(broker, fake):
    slow = asyncio.create_task(broker.call(Seal(replace(REF, segment=13))))
    async with asyncio.timeout(1.0):
        assert await asyncio.gather(*(broker.call(Seal(replace(REF, segment=n))) for n in range(5))) == [SEALED] * 5
    assert not slow.done()
    fake.go.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await slow == SEALED
    assert fake.asked.count(13) >= 2, "the first time it was not done in time"


async def test_each_has_a_deadline(server, fake):
    dialer = GrpcDialer(timeout_s=0.3)
    broker = dialer.dial(server.address)
    results = await asyncio.gather(
        broker.call(Seal(replace(REF, segment=13))), broker.call(Seal(REF)), return_exceptions=True
    )
    assert isinstance(results[0], DeadlineExceeded)
    assert "Seal at broker" in str(results[0])
    assert results[1] == SEALED
    await dialer.close()


async def test_all_hear_when_the_broker_is_gone(fake, dialer):
    server = await serve(fake, "127.0.0.1:0", BrokerConfig())
    broker = dialer.dial(server.address)
    waiting = [asyncio.create_task(broker.call(Seal(replace(REF, segment=13)))) for _ in range(3)]
    async with asyncio.timeout(PATIENCE_S):
        while len(fake.asked) < 3:
            await fake.asked_again.wait()
        await server.stop(0)
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, Unavailable) for result in results)
    assert len({id(result) for result in results}) == 3, "each has an error of its own"


def test_what_may_not_be_made_twice_travels_alone():
    assert {call.__name__ for call in client.TOGETHER} == {
        "DescribeTopic",
        "Fence",
        "LocalStats",
        "LogEnds",
        "NoteProgress",
        "ReportEmptied",
        "ReportSuspicions",
        "Seal",
        "WriteOut",
    }
