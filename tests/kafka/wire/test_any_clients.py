"""Random numbers of every kind of client at one listener of little memory: good ones get replies, and nothing remains.

Some stop in the middle of a request, some do not read, some wait for long, some send without a pause. While they are
there, memory stays within the limit; once they have left, no byte, task, connection or descriptor is left.
"""

import asyncio
import contextlib
import os
import random
import struct
from collections.abc import Awaitable, Callable

import psutil
import pytest

from seaweedmq.kafka.wire import budget, deadlines
from seaweedmq.kafka.wire.messages import (
    API,
    EncodedReply,
    FetchRequest,
    FetchResponse,
    Handler,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    ProduceResponse,
    Reply,
    Request,
)
from tests.kafka.wire.script import Script, framed, listening, produce, script, until

KIB = 1024
MIB = 1024 * KIB
BYTES_MAX = 4 * MIB
REQUEST_BYTES_MAX = 2 * MIB
REPLY_BYTES = 512 * KIB
SEEDS = int(os.environ.get("SEAWEEDMQ_CLIENT_SEEDS", "4"))


async def _stored(request: Request) -> Awaitable[Reply]:
    async def committed() -> Reply:
        await asyncio.sleep(0.001)
        return None if request.body.acks == 0 else ProduceResponse(version=request.version, responses=[])

    return committed()


async def _polled(request: Request) -> Reply:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            while not request.holds_up:
                await request.line.grown.wait()
    return FetchResponse(error_code=0, responses=[])


async def _joined(request: Request) -> Reply:
    request.settle()
    await asyncio.sleep(0.2)
    return JoinGroupResponse(error_code=0)


async def _described(request: Request) -> Reply:
    return EncodedReply([bytes(REPLY_BYTES)])


async def _beaten(request: Request) -> Reply:
    return HeartbeatResponse(error_code=0)


HANDLERS: dict[int, Handler] = {
    API.PRODUCE: _stored,
    API.FETCH: _polled,
    API.JOIN_GROUP: _joined,
    API.METADATA: _described,
    API.HEARTBEAT: _beaten,
}


def sockets_at(port: int) -> int:
    """Count the sockets of this process at both ends of connections to ``port``, and the one that listens."""
    ends = psutil.Process().net_connections("tcp")
    return sum(1 for end in ends if port in {address.port for address in (end.laddr, end.raddr) if address})


def _fetch() -> FetchRequest:
    return FetchRequest(version=12, max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[], rack_id="")


def _idle(client: Script, rng: random.Random) -> None:
    pass


def _half_open(client: Script, rng: random.Random) -> None:
    size = rng.randint(100, REQUEST_BYTES_MAX)
    client.say(struct.pack(">ihhi", size, API.PRODUCE, 9, 1) + bytes(rng.randint(0, size - 9)))


def _garbage(client: Script, rng: random.Random) -> None:
    client.say(rng.randbytes(rng.randint(1, 200)))


def _polls(client: Script, rng: random.Random) -> None:
    client.say(framed(1, API.FETCH, 12, _fetch()) * rng.randint(1, 2_000))


def _joins(client: Script, rng: random.Random) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(rng.randint(1, MIB)))
    body = JoinGroupRequest(
        version=5, group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, member_id="", protocols=[protocol]
    )
    client.say(framed(1, API.JOIN_GROUP, 5, body) * rng.randint(1, 3))


def _deaf(client: Script, rng: random.Random) -> None:
    client.say(framed(1, API.METADATA, 9, MetadataRequest(version=9, topics=None)) * rng.randint(1, 50))


def _floods(client: Script, rng: random.Random) -> None:
    body = produce(records=bytes(rng.randint(0, MIB)), acks=rng.choice((0, -1)))
    client.say(framed(1, API.PRODUCE, 9, body) * rng.randint(1, 10))


KINDS: tuple[Callable[[Script, random.Random], None], ...] = (
    _idle,
    _half_open,
    _garbage,
    _polls,
    _joins,
    _deaf,
    _floods,
)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_any_clients_leave_nothing_behind_and_good_ones_are_answered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "PRESS_INTERVAL_S", 0.02)
    monkeypatch.setattr(budget, "SLOW_WINDOW_S", 0.3)
    monkeypatch.setattr(deadlines, "PRESS_INTERVAL_S", 0.02)
    rng = random.Random(seed)
    limits = {"kafka_request_bytes_max": REQUEST_BYTES_MAX, "in_flight_bytes_max": BYTES_MAX}
    async with listening(HANDLERS, **limits) as (server, port), script(port) as good:
        sockets = sockets_at(port)
        most = 0
        beat = HeartbeatRequest(version=4, group_id="g", generation_id=1, member_id="m", group_instance_id=None)
        for _ in range(3):
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(rng.randint(1, 30)):
                    client = await stack.enter_async_context(script(port, buffer_bytes=KIB))
                    rng.choice(KINDS)(client, rng)
                for number in range(20):
                    good.ask(number, API.HEARTBEAT, 4, beat)
                    assert (await good.hear(API.HEARTBEAT, 4))[0] == number
                    most = max(most, server.in_flight.taken_bytes)
                good.ask(1, API.PRODUCE, 9, produce(records=bytes(MIB)))
                assert (await good.hear(API.PRODUCE, 9))[0] == 1
            await until(lambda: server.connections == 1 and server.requests == 0)
            await until(lambda: server.in_flight.taken_bytes == 0)
            await until(lambda: sockets_at(port) == sockets)
        assert most <= 1.25 * BYTES_MAX + REQUEST_BYTES_MAX + 8 * REPLY_BYTES, "a request and some replies beyond it"
