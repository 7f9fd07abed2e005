"""Slow, deaf and greedy clients harm only themselves: others get replies, and memory stays within its limit."""

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Callable
from typing import Any

import pytest

from seaweedmq.kafka.wire import budget, deadlines, request_reader
from seaweedmq.kafka.wire.messages import (
    API,
    EncodedReply,
    Handler,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    Reply,
    Request,
)
from seaweedmq.kafka.wire.request_assembler import STEP_BYTES
from seaweedmq.kafka.wire.request_reader import REQUEST_BYTES
from seaweedmq.runtime.turns import TURN_S, Turns
from tests.kafka.wire.script import (
    Gate,
    Script,
    appends,
    beat,
    fetch,
    framed,
    heartbeat,
    join,
    listening,
    polls,
    produce,
    script,
    until,
)

KIB = 1024
MIB = 1024 * KIB


async def _stored(request: Request) -> Reply:
    return ProduceResponse(version=request.version, responses=[])


stored = appends(_stored)


def half(size: int) -> bytes:
    """Return the beginning of a request that claims this size."""
    return struct.pack(">ihhi", size, API.PRODUCE, 9, 1)


async def is_answered(client: Script) -> None:
    client.ask(7, API.HEARTBEAT, 4, heartbeat())
    await client.hears((7, API.HEARTBEAT, 4))


@pytest.fixture
def is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections be pressed soon while others wait for memory."""
    monkeypatch.setattr(budget, "PRESS_INTERVAL_S", 0.01)
    monkeypatch.setattr(budget, "SLOW_WINDOW_S", 0.05)
    monkeypatch.setattr(deadlines, "PRESS_INTERVAL_S", 0.01)


@pytest.mark.parametrize("clients", [1, 64])
async def test_a_request_that_has_begun_holds_what_has_come_of_it(clients: int) -> None:
    async with (
        listening({API.HEARTBEAT: beat}) as (server, port),
        script(port) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(clients):
            (await stack.enter_async_context(script(port))).say(half(64 * MIB // clients))
        await until(lambda: server.in_flight.taken_bytes >= clients * (REQUEST_BYTES + STEP_BYTES))
        assert server.in_flight.taken_bytes == clients * (REQUEST_BYTES + STEP_BYTES)
        await is_answered(other)


async def test_a_request_grows_as_its_bytes_come() -> None:
    whole = framed(1, API.PRODUCE, 9, produce(records=bytes(2 * MIB)))
    async with listening({API.PRODUCE: stored}) as (server, port), script(port) as client:
        most = 0
        for position in range(0, len(whole), 100 * KIB):
            client.say(whole[position : position + 100 * KIB])
            await client.writer.drain()
            await asyncio.sleep(0.005)
            most = max(most, server.in_flight.taken_bytes - min(4 * position, 2 * MIB))
        assert most < 1 * MIB
        assert (await client.hear(API.PRODUCE, 9))[0] == 1


async def test_a_request_may_come_slowly_as_long_as_something_comes() -> None:
    whole = framed(1, API.PRODUCE, 9, produce(records=bytes(3_000)))
    async with listening({API.PRODUCE: stored}, kafka_request_read_s=0.2) as (_, port), script(port) as client:
        for position in range(0, len(whole), 300):
            client.say(whole[position : position + 300])
            await asyncio.sleep(0.05)
        assert (await client.hear(API.PRODUCE, 9))[0] == 1


@pytest.mark.usefixtures("is_pressed")
async def test_a_slow_sender_makes_room_for_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    whole = framed(1, API.PRODUCE, 9, produce(records=bytes(300 * KIB)))
    handlers: dict[int, Handler] = {API.PRODUCE: stored, API.HEARTBEAT: beat}
    async with (
        listening(handlers, in_flight_bytes_max=400 * KIB) as (server, port),
        script(port) as slow,
        script(port) as slower,
        script(port) as good,
    ):
        slow.say(whole[: 250 * KIB])
        slower.say(whole[: 250 * KIB])
        await until(lambda: server.in_flight.waiting == 1)
        await is_answered(good)
        good.say(whole)
        assert (await good.hear(API.PRODUCE, 9))[0] == 1
    assert "other clients wait for the" in caplog.text


async def test_a_request_that_waits_for_others_gives_back_what_it_said() -> None:
    go_on = asyncio.Event()

    async def joined(request: Request) -> Reply:
        request.settle()
        await go_on.wait()
        return JoinGroupResponse(error_code=0)

    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(2 * MIB))]
    async with (
        listening({API.JOIN_GROUP: joined, API.PRODUCE: stored}, in_flight_bytes_max=4 * MIB) as (server, port),
        contextlib.AsyncExitStack() as stack,
    ):
        members = [await stack.enter_async_context(script(port)) for _ in range(10)]
        for member in members:
            member.ask(1, API.JOIN_GROUP, 5, join(*protocols))
        await until(lambda: server.requests == len(members))
        assert server.in_flight.taken_bytes < 10 * (REQUEST_BYTES + KIB)
        go_on.set()
        for member in members:
            assert (await member.hear(API.JOIN_GROUP, 5))[0] == 1


async def test_of_requests_with_large_replies_a_client_that_does_not_read_gets_one() -> None:
    made = 0

    async def large(request: Request) -> Reply:
        nonlocal made
        made += 1
        return EncodedReply([bytes(16 * MIB)])

    async with (
        listening({API.METADATA: large, API.HEARTBEAT: beat}) as (server, port),
        script(port, buffer_bytes=KIB) as deaf,
        script(port) as other,
    ):
        for number in range(50):
            deaf.ask(number, API.METADATA, 9, MetadataRequest(version=9, topics=None))
        await until(lambda: made > 0)
        await asyncio.sleep(0.2)
        assert made == 1
        assert server.in_flight.taken_bytes > 16 * MIB, "a reply that is not taken counts"
        await is_answered(other)


@pytest.mark.usefixtures("is_pressed")
async def test_replies_that_are_not_taken_make_room_for_others() -> None:
    most = 0

    async def large(request: Request) -> Reply:
        return EncodedReply([bytes(8 * MIB if request.context.client_id == "deaf" else KIB)])

    async with (
        listening({API.METADATA: large}, in_flight_bytes_max=4 * MIB) as (server, port),
        contextlib.AsyncExitStack() as stack,
        script(port) as good,
    ):
        for _ in range(30):
            peer = await stack.enter_async_context(script(port, buffer_bytes=KIB))
            peer.ask(1, API.METADATA, 9, MetadataRequest(version=9, topics=None), "deaf")
        for number in range(3):
            good.ask(number, API.METADATA, 9, MetadataRequest(version=9, topics=None), "good")
            reading = asyncio.create_task(good.reader.readexactly(KIB + 9))
            while not reading.done():
                most = max(most, server.in_flight.taken_bytes)
                await asyncio.sleep(0.001)
        assert most < 9 * 8 * MIB, "so few are made at once"


@pytest.mark.usefixtures("is_pressed")
async def test_requests_that_wait_for_events_are_answered_when_others_need_their_memory() -> None:
    async with (
        listening({API.FETCH: polls, API.PRODUCE: stored}, in_flight_bytes_max=256 * KIB) as (server, port),
        contextlib.AsyncExitStack() as stack,
        script(port) as good,
    ):
        for _ in range(10):
            peer = await stack.enter_async_context(script(port))
            for number in range(60):
                peer.ask(number, API.FETCH, 12, fetch())
        await until(lambda: server.in_flight.waiting > 1)
        assert server.in_flight.taken_bytes < 256 * KIB
        good.ask(1, API.PRODUCE, 9, produce(records=bytes(100 * KIB)))
        assert (await good.hear(API.PRODUCE, 9))[0] == 1


async def test_what_is_received_behind_a_request_that_waits_is_little() -> None:
    one = framed(0, API.FETCH, 12, fetch())
    many = b"".join(one[:8] + struct.pack(">i", number) + one[12:] for number in range(20_000))
    async with (
        listening({API.FETCH: Gate()}, in_flight_bytes_max=256 * KIB, grace_s=0.1) as (server, port),
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(20):
            (await stack.enter_async_context(script(port))).say(many)
        await until(lambda: server.in_flight.waiting > 1)
        await asyncio.sleep(0.1)
        assert server.in_flight.taken_bytes < 256 * KIB + 20 * request_reader.RECEIVE_BYTES_MIN


def many_topics(count: int) -> Any:
    """Return a request that takes many turns to decode."""
    make = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(version=9, topics=[make(version=9, name=f"t{number}") for number in range(count)])


class Held(Turns):
    """Turns that are over at every check, and continue nothing until they are released."""

    def __init__(self) -> None:
        super().__init__(map((TURN_S).__mul__, itertools.count()).__next__)
        self.held: list[Callable[[], None]] = []
        self._is_released = False

    def call_next(self, work: Callable[[], None]) -> None:
        if self._is_released:
            super().call_next(work)
        else:
            self.held.append(work)

    def release(self) -> None:
        self._is_released = True
        for work in self.held:
            super().call_next(work)


@pytest.mark.parametrize("stage", ["decoding", "handling", "writing"])
async def test_nothing_stays_of_a_client_that_leaves_while_its_long_request_is_paused(stage: str) -> None:
    turns = Held()

    async def pausing(request: Request) -> Reply:
        if stage == "handling":
            await request.turn.pause()
        make = MetadataResponse.MetadataResponseTopic
        topics = [make(error_code=3, name=f"t{n}", partitions=[]) for n in range(20_000)]
        return MetadataResponse(throttle_time_ms=0, brokers=[], controller_id=-1, topics=topics)

    handlers: dict[int, Handler] = {API.METADATA: pausing, API.HEARTBEAT: beat}
    async with listening(handlers, turns=turns) as (server, port), script(port) as other:
        async with script(port) as leaving:
            leaving.ask(1, API.METADATA, 9, many_topics(10_000 if stage == "decoding" else 10))
            await until(lambda: bool(turns.held))
            assert server.in_flight.taken_bytes > 0
            assert server.requests == (stage != "decoding")
            await is_answered(other)
        if stage != "decoding":  # the listener reads nothing while it decodes
            await until(lambda: server.connections == 1)
        turns.release()
        await until(lambda: server.connections == 1)
        await until(lambda: server.in_flight.taken_bytes == server.requests == 0)
        await is_answered(other)


async def test_many_clients_that_ask_for_metadata_wait_for_each_other_and_heartbeats_do_not() -> None:
    turns, begun = Held(), 0

    async def small(request: Request) -> Reply:
        nonlocal begun
        begun += 1
        return MetadataResponse(throttle_time_ms=0, brokers=[], controller_id=-1, topics=[])

    handlers: dict[int, Handler] = {API.METADATA: small, API.HEARTBEAT: beat}
    async with (
        listening(handlers, turns=turns) as (_, port),
        script(port) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        flooding = [await stack.enter_async_context(script(port)) for _ in range(50)]
        for client in flooding:
            client.ask(1, API.METADATA, 9, many_topics(1))
        await until(lambda: begun + len(turns.held) == len(flooding))
        assert begun < len(flooding) / 2, "one in an iteration of the loop"
        await is_answered(other)
        turns.release()
        for client in flooding:
            assert (await client.hear(API.METADATA, 9))[0] == 1
        assert begun == len(flooding)
