"""Real brokers on an etcd of three members that die one after another: clients do not notice the loss of a minority."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from seaweedmq import aio
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.runtime.process.free_ports import ReservedPort

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

NAMES = ("m0", "m1", "m2")
PATIENCE_S = 20.0
RECORDS = 20


class Member(LocalEtcd):
    def __init__(self, directory: Path, name: str, peers: Mapping[str, ReservedPort]) -> None:
        super().__init__(directory / name, fsync=False)
        self._name = name
        self._peers = peers
        self._ports = (ReservedPort(), peers[name])

    def _arguments(self, client_port: ReservedPort, peer_port: ReservedPort) -> list[str]:
        members = ",".join(f"{name}=http://{port.address}" for name, port in self._peers.items())
        alone = super()._arguments(client_port, peer_port)
        kept = [argument for argument in alone if not argument.startswith(("--name=", "--initial-cluster="))]
        return [*kept, f"--name={self._name}", f"--initial-cluster={members}"]


@contextlib.asynccontextmanager
async def running_members(directory: Path) -> AsyncIterator[list[Member]]:
    """Three started members; killed at the end."""
    peers = {name: ReservedPort() for name in NAMES}
    members = [Member(directory, name, peers) for name in NAMES]
    try:
        await asyncio.gather(*(member.start() for member in members))
        yield members
    finally:
        await asyncio.gather(*(member.kill() for member in members))


@contextlib.asynccontextmanager
async def running_broker(directory: Path, etcd: str) -> AsyncIterator[str]:
    """Start a broker; return its address."""
    port = ReservedPort()
    address = port.address
    command = ["broker", "--etcd", etcd, "--storage", str(directory / "storage"), "--listen", address]
    log = directory / "broker.log"
    (directory / "storage").mkdir()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "seaweedmq.cli.main", *command), stdout=output, stderr=output
        )
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "serving" not in log.read_text():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.05)
        yield address
        assert process.returncode is None, log.read_text()
        assert "lease lost" not in log.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until_renewed(client: aio.Client) -> None:
    """Return once the broker has renewed its lease: its remaining time rises."""

    async def left_s() -> float:
        (broker,) = (await client.admin.cluster_status()).brokers
        assert broker.etcd is not None
        return broker.etcd.lease_s

    before_s = await left_s()
    while (now_s := await left_s()) <= before_s:
        before_s = now_s
        await asyncio.sleep(0.05)


@pytest.mark.deep
async def test_each_of_three_members_may_die_and_come_back_under_load(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        members = await stack.enter_async_context(running_members(tmp_path / "etcd"))
        endpoints = ",".join(member.endpoint for member in members)
        address = await stack.enter_async_context(running_broker(tmp_path, endpoints))
        client = await stack.enter_async_context(aio.connect(address))
        await client.admin.create_topic("it/members")
        publisher = await stack.enter_async_context(client.publisher("it/members"))
        sent: list[bytes] = []
        for member in members:
            await member.kill()
            async with asyncio.timeout(PATIENCE_S):
                await client.admin.create_topic(f"it/without-{len(sent)}")
                for _ in range(RECORDS):
                    sent.append(b"%d" % len(sent))
                    await (await publisher.send(sent[-1]))
                await until_renewed(client)
            await member.start()
        async with client.subscriber("it/members", start="earliest", stop_at="latest") as subscriber:
            assert [message.value async for message in subscriber] == sent
