"""Channels of one stream: each behaves as if it were alone."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.client.publish.publish_stream import in_pieces
from seaweedmq.codec.frame import HEADER_BYTES
from seaweedmq.errors import (
    InvalidArgument,
    NotFound,
    ProtocolViolation,
    ResourceExhausted,
    SeaweedMQError,
    Unavailable,
    Unsupported,
)
from seaweedmq.model.config import KIB, MIB, BrokerConfig
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.messages.frames import SENT_PIECE_BYTES
from seaweedmq.model.messages.publish import FrameAck, PublishAck, PublishFrames, PublishReply, PublishRequest
from seaweedmq.rpc.channels import wire
from seaweedmq.rpc.channels.channel import WINDOW_BYTES, ChannelWindow, SharedWindow
from seaweedmq.rpc.channels.server import ChannelHandler, ChannelServer
from seaweedmq.rpc.channels.wire import Credit, End, Message, Status, read_envelope, write_envelope
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.messages.data import encode_publish_request
from seaweedmq.rpc.server import serve
from seaweedmq.rpc.v1 import channels_pb2
from seaweedmq.runtime.signal import Signal
from tests.rpc.fake_broker import OPEN, FakeBroker

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
DATA = st.one_of(st.binary(max_size=300), st.sampled_from([127, 128, 16_383, 16_384]).map(bytes))
SECTIONS = st.one_of(
    st.builds(Message, U32, DATA),
    st.builds(End, U32),
    st.builds(Status, U32, st.sampled_from(["", "NOT_FOUND"]), st.text(max_size=20)),
    st.builds(Credit, U32, U64),
    st.builds(wire.Ahead, U64),
)
PATIENCE_S = 10.0
MISSING = 9_999


# --- the bytes --------------------------------------------------------------------------------------------------------
@given(st.lists(SECTIONS, max_size=6))
def test_what_is_written_is_read_back_and_means_the_same_to_protobuf(sections):
    data = write_envelope(sections)
    assert read_envelope(data) == sections
    envelope = channels_pb2.Envelope.FromString(data)
    assert [s.message for s in envelope.sections if s.HasField("message")] == [
        s.data for s in sections if isinstance(s, Message)
    ]
    assert read_envelope(envelope.SerializeToString()) == sections


@given(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda tail: b"\x0a" + tail)))
def test_any_bytes_are_read_or_refused_in_words(data):
    with suppress(InvalidArgument, Unsupported):
        assert all(isinstance(section, wire.Section) for section in read_envelope(data))


def test_a_large_message_is_not_copied_and_a_small_one_does_not_keep_its_envelope():
    envelope = write_envelope([Message(1, bytes(MIB)), Message(2, b"small")])
    large, small = read_envelope(envelope)
    assert isinstance(large.data, memoryview)
    assert large.data.obj is envelope
    assert isinstance(small.data, bytes)


# --- how far a sender may go ------------------------------------------------------------------------------------------
def test_a_channel_has_its_window_whatever_others_have_used_up():
    ahead = SharedWindow(MIB)
    greedy, modest = ChannelWindow(ahead), ChannelWindow(ahead)
    while greedy.is_open:
        greedy.sent(200 * KIB)
    assert ahead.used_bytes >= MIB
    modest.sent(WINDOW_BYTES - 1)
    assert modest.is_open
    modest.sent(1)
    assert not modest.is_open
    greedy.close()
    assert ahead.used_bytes == 0
    assert modest.is_open


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3 * WINDOW_BYTES)), max_size=40))
def test_what_was_sent_ahead_is_what_goes_beyond_the_windows(steps):
    ahead = SharedWindow(MIB)
    windows = [ChannelWindow(ahead) for _ in range(4)]
    untaken = [0] * 4
    for number, is_sent, size in steps:
        if is_sent:
            windows[number].sent(size)
            untaken[number] += size
        else:
            windows[number].taken(size)
            untaken[number] = max(0, untaken[number] - size)
        assert ahead.used_bytes == sum(max(0, size - WINDOW_BYTES) for size in untaken)
        for window, size in zip(windows, untaken, strict=True):
            assert window.is_open == (size < WINDOW_BYTES or ahead.used_bytes < MIB)


def test_of_a_large_frame_only_the_head_and_a_small_piece_wait_for_memory():
    frame = bytes(HEADER_BYTES) + bytes(12 * MIB)
    head, *pieces = (len(encode_publish_request(request)) for request in in_pieces(frame))
    window = ChannelWindow(SharedWindow())
    window.sent(head)
    window.taken(head)  # the broker has no memory for the frame
    sent = 0
    while window.is_open:
        window.sent(pieces[sent])
        sent += 1
    assert sum(pieces[:sent]) < 2 * WINDOW_BYTES
    assert max(pieces) > SENT_PIECE_BYTES


# --- over a real connection -------------------------------------------------------------------------------------------
class Counting(FakeBroker):
    """A broker that acknowledges each message of a segment, unless the segment is stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck: set[int] = set()
        self.open = 0
        self.changed = Signal()
        """Signal that fires on every change of the attributes above."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.changed.wait()

    async def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[PublishReply]:
        opening = await anext(requests)
        self.open += 1
        self.changed.fire()
        try:
            if opening.segment == MISSING:
                raise NotFound("there is no segment 9999")
            sequence = 0
            async for request in requests:
                self.received.append((opening.segment, len(request.data)))
                while opening.segment in self.stuck:
                    await self.changed.wait()
                yield PublishAck((FrameAck(sequence, 1, sequence),))
                sequence += 1
        finally:
            self.open -= 1
            self.changed.fire()


@pytest.fixture
def fake() -> FakeBroker:
    return Counting()


async def say(segment: int, messages: list[bytes], stay: asyncio.Event | None = None) -> AsyncIterator[PublishRequest]:
    yield replace(OPEN, segment=segment)
    for message in messages:
        yield PublishFrames(message)
    if stay is not None:
        await stay.wait()


async def replies_of(broker, segment: int, messages: list[bytes]) -> list[PublishReply]:
    async with asyncio.timeout(PATIENCE_S):
        return [reply async for reply in broker.publish(say(segment, messages))]


async def test_each_conversation_gets_its_own_replies_in_order(broker):
    async with asyncio.timeout(PATIENCE_S):
        results = await asyncio.gather(
            *(replies_of(broker, n, [bytes([n]) * (100 * n)] * (5 * n)) for n in range(1, 8))
        )
    for n, replies in enumerate(results, 1):
        assert [reply.frames[0].first_sequence for reply in replies] == list(range(5 * n))


async def test_a_stuck_conversation_holds_up_no_other(broker, fake):
    fake.stuck = {0}
    stuck = asyncio.create_task(replies_of(broker, 0, [bytes(MIB)] * 40))
    try:
        for n in range(1, 5):
            assert len(await replies_of(broker, n, [bytes(MIB)] * 10)) == 10
        taken = sum(size for segment, size in fake.received if segment == 0)
        assert taken <= MIB, "it took the one message that it is busy with"
        assert not stuck.done()
        fake.stuck.clear()
        fake.changed.fire()
        assert len(await stuck) == 40
    finally:
        stuck.cancel()


async def test_a_conversation_that_fails_or_is_left_ends_alone(broker, fake):
    async def failing() -> AsyncIterator[PublishRequest]:
        yield OPEN
        raise KeyError("mine")

    stay = asyncio.Event()
    other = broker.publish(say(1, [b"a"], stay))
    assert isinstance(await anext(other), PublishAck)
    with pytest.raises(NotFound, match="there is no segment 9999"):
        await replies_of(broker, MISSING, [b"x"])
    assert fake.open == 1
    with pytest.raises(KeyError, match="mine"):
        async for _ in broker.publish(failing()):
            pass
    await fake.until(lambda: fake.open == 1)
    leaving = broker.publish(say(2, [b"a"], asyncio.Event()))
    await anext(leaving)
    await leaving.aclose()
    await fake.until(lambda: fake.open == 1)
    stay.set()
    assert [reply async for reply in other] == []


async def test_one_who_leaves_at_once_leaves_nothing_behind(broker, fake, server):
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(50):
            hasty = asyncio.create_task(anext(broker.publish(say(1, [b"a"], asyncio.Event()))))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            hasty.cancel()
            await asyncio.wait({hasty})
        await fake.until(lambda: fake.open == 0)
        await server.stop(60)


async def test_when_the_stream_breaks_all_conversations_end_and_later_ones_begin_anew(fake, dialer):
    server = await serve(fake, "127.0.0.1:0", BrokerConfig())
    broker = dialer.dial(server.address)
    conversations = [broker.publish(say(n, [b"a"], asyncio.Event())) for n in range(500)]
    async with asyncio.timeout(PATIENCE_S):
        for conversation in conversations:
            await anext(conversation)
        await server.stop(0)
        again = await serve(fake, server.address, BrokerConfig())
        try:
            for conversation in conversations:
                with pytest.raises(Unavailable):
                    await anext(conversation)
                assert len(await replies_of(broker, 1, [b"a"])) == 1, "some are on the next stream by now"
        finally:
            await again.stop(0)


async def test_a_stream_that_carries_nothing_does_not_hold_up_the_end_of_its_server(fake, dialer):
    server = await serve(fake, "127.0.0.1:0", BrokerConfig())
    assert len(await replies_of(dialer.dial(server.address), 1, [b"a"])) == 1
    async with asyncio.timeout(2):
        await server.stop(60)


async def test_conversations_count_as_streams(dialer, caplog):
    fake = Counting()
    server = await serve(fake, "127.0.0.1:0", BrokerConfig(streams_max=3))
    broker = dialer.dial(server.address)
    try:
        conversations = [broker.publish(say(n, [b"a"], asyncio.Event())) for n in range(3)]
        for conversation in conversations:
            await anext(conversation)
        for _ in range(2):
            with pytest.raises(SeaweedMQError, match="this broker serves 3 streams, its limit"):
                await replies_of(broker, 9, [b"a"])
        assert caplog.text.count("streams rejected: 1 since the last such line: this broker serves 3 streams") == 1
        await conversations[0].aclose()
        await fake.until(lambda: fake.open == 2)
        assert len(await replies_of(broker, 9, [b"a"])) == 1
        for conversation in conversations:
            await conversation.aclose()
    finally:
        await server.stop(0)


class NoMemory:
    """The memory of a broker at its limit of streams."""

    def ahead(self):
        return nullcontext(0)

    @asynccontextmanager
    async def lent(self):
        raise ResourceExhausted("no memory for a stream: raise memory_bytes_max")
        yield


async def test_a_stream_that_there_is_no_memory_for_is_in_the_log(fake, dialer, caplog):
    server = await serve(fake, "127.0.0.1:0", BrokerConfig(), memory=NoMemory())
    try:
        with pytest.raises(ResourceExhausted, match="raise memory_bytes_max"):
            await replies_of(dialer.dial(server.address), 1, [b"a"])
        assert "streams rejected: 1 since the last such line: no memory for a stream: raise memory" in caplog.text
    finally:
        await server.stop(0)


async def test_the_end_of_a_stream_is_said_behind_what_is_being_written() -> None:
    writing, written = asyncio.Event(), asyncio.Event()

    async def write(envelope: bytes) -> None:
        writing.set()
        await written.wait()

    async def envelopes() -> AsyncIterator[bytes]:
        await writing.wait()
        yield write_envelope([wire.Ahead(1)])

    handler = ChannelHandler(
        name="channel", answer=None, decode=None, encode=None, admitted=nullcontext, error_of=lambda error: error
    )
    running = asyncio.create_task(ChannelServer(handler, ahead_bytes=1).run(envelopes(), write))
    await writing.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done(), "gRPC would lose the status"
    written.set()
    with pytest.raises(ProtocolViolation, match="Ahead, which only brokers send"):
        await running


async def test_a_channel_that_ends_with_an_error_leaves_nothing_to_a_garbage_collection() -> None:
    """Frames of the traceback may hold a payload of many megabytes."""
    payloads: list[weakref.ref[asyncio.Event]] = []
    written = asyncio.Event()

    async def answer(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        payload = asyncio.Event()
        payloads.append(weakref.ref(payload))
        raise NotFound("no such segment")
        yield b""

    async def write(envelope: bytes) -> None:
        if any(isinstance(section, Status) for section in read_envelope(envelope)):
            written.set()

    async def envelopes() -> AsyncIterator[bytes]:
        yield write_envelope([Message(1, b"a")])
        await asyncio.Event().wait()

    answering = ChannelHandler(
        name="channel", answer=answer, decode=bytes, encode=bytes, admitted=nullcontext, error_of=lambda error: error
    )
    gc.disable()
    try:
        running = asyncio.create_task(ChannelServer(answering, ahead_bytes=1).run(envelopes(), write))
        async with asyncio.timeout(PATIENCE_S):
            await written.wait()
        assert [payload() for payload in payloads] == [None]
    finally:
        gc.enable()
        running.cancel()
        await asyncio.wait({running})


async def test_who_does_not_wait_for_credit_is_refused(server, fake, monkeypatch):
    monkeypatch.setattr(ChannelWindow, "is_open", True)
    fake.stuck = {0}
    dialer = GrpcDialer()
    with pytest.raises((ProtocolViolation, InvalidArgument), match="send no more than the credit"):
        await replies_of(dialer.dial(server.address), 0, [bytes(MIB)] * 10)
    await dialer.close()
