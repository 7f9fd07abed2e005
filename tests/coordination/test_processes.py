"""Leaders as processes that are stopped and killed, on a real etcd."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq.coordination.local import LocalEtcd

pytestmark = pytest.mark.integration
TTL_S = 1.0


@contextlib.asynccontextmanager
async def candidate(etcd: LocalEtcd, name: str) -> AsyncIterator[Process]:
    script = str(Path(__file__).with_name("candidate.py"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, etcd.endpoint, name, str(TTL_S), stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def says(process: Process, within_s: float) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        return (await process.stdout.readline()).decode().strip()


async def write(process: Process) -> str:
    process.stdin.write(b"\n")
    return await says(process, 5)


async def test_a_leader_that_was_frozen_wakes_up_deposed(etcd: LocalEtcd) -> None:
    async with candidate(etcd, "old") as old:
        assert await says(old, 10) == "leading"
        assert await write(old) == "written"
        async with candidate(etcd, "new") as new:
            hearing = asyncio.create_task(says(new, 20))
            await asyncio.sleep(3 * TTL_S)
            assert not hearing.done(), "a live leader stays"
            old.send_signal(signal.SIGSTOP)
            assert await hearing == "leading"
            assert await write(new) == "written"
            old.stdin.write(b"\n")
            old.send_signal(signal.SIGCONT)
            assert await says(old, 5) == "Deposed"
            assert await write(new) == "written"


async def test_etcd_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from seaweedmq.coordination.local import LocalEtcd\n"
        "async def main():\n"
        "    async with LocalEtcd(pathlib.Path(sys.argv[1]), fsync=False) as etcd:\n"
        "        print(etcd.pid, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path / "etcd"), stdout=PIPE)
    pid = int(await says(parent, 20))
    os.kill(pid, 0)
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(5):
        while _lives(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _lives(pid: int) -> bool:
    """Whether it runs; an orphan that is not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
