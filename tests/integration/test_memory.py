"""A real broker stays within ``memory_bytes_max`` under any clients, and continues to serve other clients."""

import asyncio
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.cluster import running_cluster
from benchmarks.data import random_table
from seaweedmq import aio
from seaweedmq.model.config import MIB
from tests.integration.crowd import LARGE, STORED

pytestmark = pytest.mark.integration

MEMORY_BYTES_MAX = 512 * MIB
SETTINGS = {"memory_bytes_max": MEMORY_BYTES_MAX, "maintenance_interval_s": 3_600}
STORED_BYTES = 256 * MIB
"""Size above that of the caches, so that readers use the files."""
LOOK_INTERVAL_S = 0.02
WATCHED_S = 6.0
PATIENCE_S = 40.0
SENT = 200


class Peak:
    """Measure the maximum memory of a process while the block runs."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.bytes = 0

    async def __aenter__(self) -> "Peak":
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.wait({self._looking})

    async def _look(self) -> None:
        while True:
            self.bytes = max(self.bytes, self._process.memory_info().rss)
            await asyncio.sleep(LOOK_INTERVAL_S)


@pytest.mark.parametrize(("kind", "count"), [("paused", 200), ("deaf", 100), ("large", 80)])
def test_a_crowd_takes_no_more_memory_than_the_broker_may_have(tmp_path: Path, kind: str, count: int) -> None:
    with running_cluster(tmp_path / "data", settings=SETTINGS) as cluster:
        asyncio.run(_watch(cluster.bootstrap, cluster.pids[-1], kind, count))


async def _watch(bootstrap: str, pid: int, kind: str, count: int) -> None:
    async with aio.connect(bootstrap) as client, Peak(pid) as peak:
        for topic in (STORED, LARGE, "crowd/live"):
            await client.admin.create_topic(topic, durability="replicated", scaling="fixed")
        async with await client.publisher(STORED) as publisher:
            await publisher.send_table(random_table(STORED_BYTES, 1_000))
        command = ["-m", "tests.integration.crowd", kind, bootstrap, str(count)]
        crowd = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        try:
            assert crowd.stdout is not None
            assert await asyncio.wait_for(crowd.stdout.readline(), PATIENCE_S) == b"ready\n"
            began = time.monotonic()
            while time.monotonic() < began + WATCHED_S:
                await _send_and_receive(client)
            assert crowd.returncode is None
        finally:
            crowd.kill()
            await crowd.wait()
    assert peak.bytes <= MEMORY_BYTES_MAX, f"{peak.bytes / MIB:.0f} of {MEMORY_BYTES_MAX / MIB:.0f} MiB"


async def _send_and_receive(client: aio.Client) -> None:
    """Publish and receive as another client meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        subscriber = await client.subscriber("crowd/live", start="latest")
        async with await client.publisher("crowd/live") as publisher:
            for number in range(SENT):
                await publisher.send(b"%d" % number)
        async with subscriber:
            received = 0
            async for _ in subscriber:
                received += 1
                if received == SENT:
                    return
