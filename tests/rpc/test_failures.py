"""Detection of a dead or frozen server process, and reconnection when it returns."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq.errors import ConnectionRefused, Unavailable
from seaweedmq.model.messages.calls import ListTopics
from seaweedmq.model.messages.publish import PublishReady, PublishReply, PublishRequest
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen, SubscribeRequest
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.runtime.process.free_ports import ReservedPort
from tests.rpc.fake_broker import NAME, OPEN, TOPIC

pytestmark = pytest.mark.integration


class Process:
    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process = process
        self.address = address


@pytest.fixture
async def remote() -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.rpc.fake_broker"), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout
    async with asyncio.timeout(20):
        port = int(await process.stdout.readline())
    yield Process(process, f"127.0.0.1:{port}")
    if process.returncode is None:
        process.kill()
    await process.wait()


async def idle_publisher(broker: BrokerApi) -> AsyncIterator[PublishReply]:
    """Return an open and silent publish stream."""

    async def requests() -> AsyncIterator[PublishRequest]:
        yield OPEN
        await asyncio.Event().wait()

    replies = broker.publish(requests())
    assert isinstance(await anext(replies), PublishReady)
    return replies


async def test_a_killed_broker_is_unavailable_at_once(remote: Process, dialer: GrpcDialer) -> None:
    broker = dialer.dial(remote.address)
    replies = await idle_publisher(broker)
    remote.process.kill()
    began = time.monotonic()
    with pytest.raises(Unavailable, match=remote.address):
        await anext(replies)
    with pytest.raises(Unavailable, match=remote.address):
        await broker.call(ListTopics())
    assert time.monotonic() - began < 1.0


async def test_a_broker_killed_under_a_flood_is_unavailable_at_once(remote: Process, dialer: GrpcDialer) -> None:
    async def requests() -> AsyncIterator[SubscribeRequest]:
        yield SubscribeOpen(topic=NAME, segment=0, start=EARLIEST, credit_bytes=1)
        await asyncio.Event().wait()

    replies = dialer.dial(remote.address).subscribe(requests())
    for _ in range(20):
        await anext(replies)
    remote.process.kill()
    with pytest.raises(Unavailable, match=remote.address):
        async for _ in replies:
            pass


async def test_a_frozen_broker_is_found_by_keepalive(remote: Process, dialer: GrpcDialer) -> None:
    broker = dialer.dial(remote.address)
    replies = await idle_publisher(broker)
    remote.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=remote.address):
        await anext(replies)
    assert time.monotonic() - began < 4.0
    remote.process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(10):
        while True:
            try:
                assert await broker.call(ListTopics()) == (TOPIC,)
                break
            except Unavailable:
                await asyncio.sleep(0.1)


async def test_a_silent_stream_lives_on_through_many_pings(remote: Process, dialer: GrpcDialer) -> None:
    """gRPC servers drop clients that ping this often by default."""
    replies = await idle_publisher(dialer.dial(remote.address))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(8):
            await anext(replies)


async def test_nobody_there_is_unavailable_within_the_deadline(dialer: GrpcDialer) -> None:
    began = time.monotonic()
    with ReservedPort() as unused, pytest.raises(ConnectionRefused, match=f"{unused.address} is unreachable"):
        await dialer.dial(unused.address).call(ListTopics())
    assert time.monotonic() - began < 5.0
