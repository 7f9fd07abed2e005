"""Real brokers whose storage is not mounted, at their start and while they run."""

import asyncio
import contextlib
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seaweedmq import ClientConfig, aio
from seaweedmq.codec.paths import CLUSTER_DOCUMENT
from seaweedmq.coordination import local
from seaweedmq.errors import Unavailable
from tests.support.commands import COMMAND
from tests.support.free_ports import free_ports

pytestmark = pytest.mark.integration
STATUS = health_pb2.HealthCheckResponse.ServingStatus
PATIENCE_S = 20.0
STOP_S = 40.0
SOON = ClientConfig(connect_timeout_s=1.0, admin_timeout_s=1.0)


class Node:
    """A broker process on a folder of its own."""

    def __init__(self, etcd: str, storage: Path, port: int, log: Path, kafka_port: int) -> None:
        self.address, self.log, self.kafka_port = f"127.0.0.1:{port}", log, kafka_port
        command = [*COMMAND, "broker", "--etcd", etcd, "--storage", str(storage), "--listen", self.address]
        command += ["--kafka-listen", f"127.0.0.1:{kafka_port}"]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr, stdin=subprocess.DEVNULL)

    async def health(self) -> str:
        """Return the state that the broker reports; "" before it answers."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            try:
                reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                return ""
        return str(STATUS.Name(reply.status))

    async def until(self, state: str, *words: str) -> None:
        """Wait until the broker reports a state, and its log has all of these words."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.health() != state or any(w not in self.log.read_text() for w in words):
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.05)

    async def serves_kafka(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.kafka_port)
        except ConnectionRefusedError:
            return False
        writer.close()
        return True

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[str]:
    async with local.LocalEtcd(tmp_path / "etcd", fsync=False) as running:
        yield running.endpoint


async def test_a_broker_serves_once_its_storage_is_mounted_and_only_while_it_is(tmp_path: Path, etcd: str) -> None:
    storage, mount = tmp_path / "storage", tmp_path / "mount"
    storage.mkdir()
    mount.mkdir()
    first = free_ports(4)
    with contextlib.ExitStack() as nodes:
        one = Node(etcd, storage, first, tmp_path / "one.log", first + 2)
        nodes.callback(one.stop)
        await one.until("SERVING")
        two = Node(etcd, mount, first + 1, tmp_path / "two.log", first + 3)
        nodes.callback(two.stop)
        reason = f"storage {mount.as_uri()} has no cluster.json, and etcd has a cluster"
        await two.until("NOT_SERVING", reason)
        assert not await two.serves_kafka()
        with pytest.raises(Unavailable, match=re.escape(reason)):
            async with aio.connect(two.address, config=SOON) as client:
                await client.admin.cluster_status()
        async with aio.connect(one.address) as client:
            assert len((await client.admin.cluster_status()).brokers) == 1, "the other is not registered"
        assert not list(mount.iterdir()), "nothing is created in the folder beneath the mount"

        mount.rmdir()
        mount.symlink_to(storage)
        await two.until("SERVING")
        async with asyncio.timeout(PATIENCE_S):
            while not await two.serves_kafka():  # noqa: ASYNC110 - it listens a moment after the broker serves
                await asyncio.sleep(0.05)

        mount.unlink()
        mount.mkdir()
        await two.until("NOT_SERVING", "has no cluster.json, so it is not mounted or is another folder")
        await one.until("SERVING")
        assert not list(mount.iterdir())
        assert (storage / CLUSTER_DOCUMENT).exists()
        mount.rmdir()
        mount.symlink_to(storage)
        await two.until("SERVING")
