"""Clients that read their replies slowly or never, in virtual time."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable

import pytest

from seaweedmq.kafka.data.fetch_memory import FetchMemory
from seaweedmq.kafka.server import KafkaServer
from seaweedmq.kafka.wire import deadlines
from seaweedmq.kafka.wire.messages import API, EncodedReply, FetchRequest, MetadataRequest, Reply, Request
from seaweedmq.model.config import BrokerConfig
from tests.kafka.wire.memory_socket import MemorySocket
from tests.sim.machines.loop import SimLoop

MIB = 1 << 20
CONFIG = BrokerConfig()


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*values: object, **named: object) -> None:
        loop = SimLoop(time_s_max=4_000)
        try:
            loop.run_until_complete(test(*values, **named))
            assert not loop.failures()
        finally:
            loop.close()

    return run


async def described(request: Request) -> Reply:
    return EncodedReply([bytes(8 * MIB)])


def asks(server: KafkaServer, number: int = 1) -> MemorySocket:
    socket = MemorySocket(server, number)
    socket.ask(API.METADATA, 9, MetadataRequest(version=9, topics=None))
    return socket


@virtual
async def test_a_client_that_takes_nothing_is_closed_within_seconds_of_its_end_or_of_a_drain() -> None:
    server = KafkaServer({API.METADATA: described}, CONFIG)
    deaf = asks(server)
    deaf.end()
    await asyncio.sleep(deadlines.HALF_CLOSED_S / 2)
    assert server.in_flight.taken_bytes > 8 * MIB
    await asyncio.sleep(deadlines.HALF_CLOSED_S)
    assert (server.connections, server.in_flight.taken_bytes) == (0, 0)

    deaf = asks(server)
    await asyncio.sleep(0)
    deaf.connection.drain()
    await asyncio.sleep(CONFIG.kafka_request_read_s + 1)
    assert (server.connections, server.in_flight.taken_bytes) == (0, 0)


@virtual
async def test_a_client_that_ended_its_half_may_take_its_reply_slowly() -> None:
    server = KafkaServer({API.METADATA: described}, CONFIG)
    slow = asks(server)
    slow.end()
    for _ in range(8):
        await asyncio.sleep(deadlines.HALF_CLOSED_S * 0.9)
        assert not slow.is_closed
        slow.take(MIB)
    slow.take(MIB)
    await asyncio.sleep(0)
    assert slow.is_closed
    assert slow.received_bytes > 8 * MIB
    assert (server.connections, server.in_flight.taken_bytes) == (0, 0)


@virtual
@pytest.mark.parametrize("is_ended", [False, True])
async def test_a_connection_whose_replies_are_not_taken_can_be_failed(
    is_ended: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = KafkaServer({API.METADATA: described}, CONFIG)
    deaf = asks(server)
    if is_ended:
        deaf.end()
    else:
        deaf.connection.drain()
    await asyncio.sleep(deadlines.HALF_CLOSED_S / 2)
    assert not deaf.is_closed
    with caplog.at_level(logging.WARNING):
        deaf.connection.fail("others wait")
    await asyncio.sleep(0)
    assert server.connections == 0
    assert "others wait" in caplog.text


@virtual
@pytest.mark.parametrize("speed", [1, 1_000_000])
async def test_a_consumer_that_takes_its_reply_slowly_is_closed_while_others_wait(
    speed: int, caplog: pytest.LogCaptureFixture
) -> None:
    memory = FetchMemory(8 * MIB)

    async def fetched(request: Request) -> Reply:
        reply = memory.reply(request.line.press)
        reply.hold(8 * MIB)
        return EncodedReply([bytes(8 * MIB)], reply.release)

    server = KafkaServer({API.FETCH: fetched}, CONFIG)
    slow = MemorySocket(server, 1)
    slow.ask(API.FETCH, 12, FetchRequest(version=12, max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[]))
    for _ in range(300):
        await asyncio.sleep(0.1)
        slow.take(speed // 10 + 1)
        if speed > 1:
            break
    assert memory.used == 8 * MIB, "its memory is needed by none"
    waiting = asyncio.create_task(memory.reply().first_batch(MIB))
    for _ in range(60):
        await asyncio.sleep(0.1)
        slow.take(speed // 10 + 1)
    assert slow.is_closed == waiting.done() == (speed == 1)
    assert ("other consumers wait for the 8,388,608 bytes" in caplog.text) == (speed == 1)
    slow.take(8 * MIB)
    await waiting
    slow.connection.abort()
    await asyncio.sleep(0)
    assert (server.connections, server.in_flight.taken_bytes) == (0, 0)
