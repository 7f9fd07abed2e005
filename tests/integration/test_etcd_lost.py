"""Real brokers while etcd is unreachable, killed, and back, and while their storage is not mounted."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seaweedmq import aio
from seaweedmq.model.broker import ETCD_OK
from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster, Node

pytestmark = pytest.mark.integration
STATUS = health_pb2.HealthCheckResponse.ServingStatus
TTL_S = 1.0
PATIENCE_S = 20.0
TRACES = ("Traceback", "never retrieved", "destroyed but it is pending", "Exception in callback", "loop is closed")


async def health(cluster: Cluster, node: Node) -> set[str]:
    """Return the states that a broker reports of its services."""
    async with grpc.aio.insecure_channel(cluster.network.advertise(node.index)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        requests = [health_pb2.HealthCheckRequest(service=name) for name in ("", "seaweedmq.v1.Data")]
        replies = [await stub.Check(request, timeout=5) for request in requests]
    return {STATUS.Name(reply.status) for reply in replies}


async def until(cluster: Cluster, state: str, *nodes: Node) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any([await health(cluster, node) != {state} for node in nodes or cluster.nodes]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def tracebacks(cluster: Cluster) -> list[str]:
    """Return the logs of brokers with a traceback of asyncio or anything else."""
    logs = [(node, cluster.log_path(node).read_text()) for node in cluster.nodes]
    return [f"{node}: {log}" for node, log in logs if any(trace in log for trace in TRACES)]


async def test_brokers_without_etcd_are_not_healthy_and_its_end_leaves_no_trace(tmp_path: Path) -> None:
    async with stage(tmp_path, brokers=2, lease_ttl_s=TTL_S, loopback=True) as cluster:
        cut_off, stays = cluster.nodes
        await until(cluster, "SERVING")
        cut_off.etcd.cut()
        await until(cluster, "NOT_SERVING", cut_off)
        await until(cluster, "SERVING", stays)
        cut_off.etcd.heal()
        cluster.etcd.freeze()
        await until(cluster, "NOT_SERVING")
        cluster.etcd.thaw()
        await cluster.etcd.kill()
        await cluster.etcd.start()
        await until(cluster, "SERVING")
        await cluster.etcd.stop()
        await until(cluster, "NOT_SERVING")
        async with aio.connect(cluster.bootstrap) as client:
            status = await client.admin.cluster_status()
        assert status.leader == ""
        assert "etcd" in status.etcd
        assert status.etcd != ETCD_OK
        assert await asyncio.gather(*map(cluster.terminate, cluster.nodes)) == [0, 0]
        assert not tracebacks(cluster)


async def serves_kafka(cluster: Cluster, node: Node) -> bool:
    try:
        _, writer = await asyncio.open_connection(*cluster.network.kafka(node.index))
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def test_brokers_serve_only_while_their_storage_is_mounted(tmp_path: Path) -> None:
    async with stage(tmp_path, brokers=2, lease_ttl_s=TTL_S, loopback=True) as cluster:
        runs = await cluster.leader()
        assert runs is not None
        (starts,) = (node for node in cluster.nodes if node is not runs)
        await cluster.terminate(starts)
        away = cluster.storage.rename(tmp_path / "away")
        cluster.storage.mkdir()
        await until(cluster, "NOT_SERVING", runs)
        await cluster.start(starts)
        log, reason = cluster.log_path(starts), "has no cluster.json, and etcd has a cluster"
        async with asyncio.timeout(PATIENCE_S):
            while reason not in log.read_text():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
        await until(cluster, "NOT_SERVING")
        assert not await serves_kafka(cluster, starts)
        cluster.storage.rmdir()  # nothing is created in the folder beneath the mount
        away.rename(cluster.storage)
        await until(cluster, "SERVING")
        assert await serves_kafka(cluster, starts)
