"""A child forked from a process with connections rejects new connections at once, with the remedy."""

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import seaweedmq
from seaweedmq.errors import InvalidArgument
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import RpcServer

ROOT = Path(__file__).parents[2]
PROGRAM_TIMEOUT_S = 60


def said_by_a_child(connect: Callable[[], object]) -> str:
    """Run this in a child process, and return the message of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            connect()
            os.write(writing, b"works")
        except InvalidArgument as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    said = os.read(reading, 1_000).decode()
    os.close(reading)
    return said


def test_a_child_of_a_parent_with_connections_is_told_to_be_spawned() -> None:
    dialer = GrpcDialer()
    said = said_by_a_child(GrpcDialer)
    assert said.startswith(f"process {os.getpid()} had connected before this one, ")
    assert "get_context('spawn')" in said
    del dialer


def test_a_child_of_a_parent_that_no_longer_has_any_is_told_so_too() -> None:
    GrpcDialer()
    assert "get_context('spawn')" in said_by_a_child(GrpcDialer)


def connected(address: str) -> str:
    """Connect in this process, and return the outcome."""
    try:
        with seaweedmq.connect(address) as client:
            return client.admin.cluster_status().leader
    except InvalidArgument as error:
        return str(error)


def pooled(method: str, address: str) -> list[str]:
    """Connect in each process of a pool."""
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(connected, [address] * 4, chunksize=1)


def _program(address: str) -> Iterator[list[str]]:
    yield pooled("fork", address)
    yield [connected(address)]
    yield pooled("fork", address)
    with closing(seaweedmq.connect(address)):
        for method in ("fork", "spawn", "forkserver"):
            yield pooled(method, address)


@pytest.fixture
async def said(server: RpcServer) -> list[list[str]]:
    """Return the outcomes in a program without a connection, after it closed one, and while it keeps one."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, server.address, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PROGRAM_TIMEOUT_S):
        output, _ = await program.communicate()
    assert program.returncode == 0
    outcomes: list[list[str]] = json.loads(output)
    return outcomes


async def test_pools_of_multiprocessing_work_or_are_told_to_spawn(said: list[list[str]]) -> None:
    works = ["b-1"]
    forked, before, forked_late, beside, spawned, served = said
    assert (forked, before, spawned, served) == (works * 4, works, works * 4, works * 4)
    assert all("get_context('spawn')" in each for each in (*forked_late, *beside))


if __name__ == "__main__":
    print(json.dumps(list(_program(sys.argv[1]))))
