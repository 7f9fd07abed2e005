"""Liveness of group members: their streams break when they die or freeze, and not while they work."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from seaweedmq.model.messages import groups as g
from seaweedmq.rpc.server import RpcServer
from tests.rpc.fake_broker import FakeBroker

pytestmark = pytest.mark.integration

BUSY_S = 8.0
"""Many times the keepalive timeout."""
BROKEN_S_MAX = 6.0

Join = Callable[[float], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def join(server: RpcServer) -> AsyncIterator[Join]:
    """Return a function that starts members and waits until each has joined."""
    members: list[asyncio.subprocess.Process] = []

    async def start(busy_s: float) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rpc.member", server.address, str(busy_s)),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        members.append(process)
        assert await _says(process) == "joined"
        return process

    yield start
    for member in members:
        if member.returncode is None:
            member.kill()
        await member.wait()


async def _says(member: asyncio.subprocess.Process) -> str:
    assert member.stdout
    async with asyncio.timeout(BUSY_S + 20):
        return (await member.stdout.readline()).decode().strip()


async def _stream_ends(fake: FakeBroker) -> None:
    async with asyncio.timeout(BROKEN_S_MAX):
        while fake.streams_open:  # noqa: ASYNC110  # the fake's plain state
            await asyncio.sleep(0.01)


async def test_a_member_that_is_busy_in_python_keeps_its_stream(fake: FakeBroker, join: Join) -> None:
    member = await join(BUSY_S)
    assert await _says(member) == "committed"
    opened, commit = fake.received  # one stream throughout
    assert isinstance(opened, g.GroupOpen)
    assert commit == g.GroupCommit(1, ())


async def test_a_frozen_member_loses_its_stream(fake: FakeBroker, join: Join) -> None:
    member = await join(0)
    assert await _says(member) == "committed"
    member.send_signal(signal.SIGSTOP)
    await _stream_ends(fake)


async def test_a_member_that_freezes_at_work_loses_its_stream(fake: FakeBroker, join: Join) -> None:
    member = await join(BUSY_S)
    member.send_signal(signal.SIGSTOP)
    await _stream_ends(fake)


async def test_a_killed_member_loses_its_stream(fake: FakeBroker, join: Join) -> None:
    member = await join(BUSY_S)
    member.kill()
    await _stream_ends(fake)
