"""Test with more publishers on one segment than it remembers when idle, and a killed primary."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq import aio
from tests.faults.episode import stage
from tests.faults.machines.cluster import ROOT, Cluster
from tests.faults.users.crowd import value
from tests.faults.users.workload import CLIENT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "faults/crowd"
PUBLISHERS = 1_200
TURNS = 4
KILLED_IN_TURN = 2


class Crowd:
    """The process with the publishers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hears(self, word: str) -> None:
        """Wait until the process prints the word."""
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().strip()
        assert line == word, f"the crowd says {line!r}, not {word!r}"

    async def begin(self) -> None:
        """Begin the next turn; return when all records are sent."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        await self.hears("sent")

    async def end(self) -> None:
        """Let it close all publishers cleanly."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await self._process.wait() == 0


@contextlib.asynccontextmanager
async def crowd(cluster: Cluster) -> AsyncIterator[Crowd]:
    command = [sys.executable, "-m", "tests.faults.users.crowd", cluster.bootstrap, TOPIC, str(PUBLISHERS)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    try:
        found = Crowd(process)
        await found.hears("ready")
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.deep
async def test_twelve_hundred_publishers_of_one_segment_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as cluster, aio.connect(cluster.bootstrap, config=CLIENT) as client:
        await client.admin.create_topic(TOPIC, replicas=2)
        async with crowd(cluster) as publishers:
            for turn in range(TURNS):
                await publishers.begin()
                if turn == KILLED_IN_TURN:
                    primary, *_ = await cluster.replicas(TOPIC, 0)
                    await cluster.kill(primary)
                await publishers.hears("acknowledged")
            await publishers.end()
        async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
            got = [message.value async for message in subscriber]
        assert sorted(got) == sorted(value(number, turn) for number in range(PUBLISHERS) for turn in range(TURNS))
