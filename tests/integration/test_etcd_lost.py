"""Real brokers while etcd is unreachable, out of space, killed, and back."""

import asyncio
import contextlib
import time
from pathlib import Path

import grpc.aio
import pytest
from aetcd import rpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seaweedmq import aio
from seaweedmq.coordination import local
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.broker import ETCD_OK
from seaweedmq.ports import Put
from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster, Node

pytestmark = pytest.mark.integration
STATUS = health_pb2.HealthCheckResponse.ServingStatus
TTL_S = 1.0
PATIENCE_S = 12.0
FILLING_BYTES = 1 << 20
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


async def test_an_etcd_out_of_space_ends_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "QUOTA_BYTES", 16 << 20)
    async with (
        stage(tmp_path, brokers=3, lease_ttl_s=TTL_S, loopback=True) as cluster,
        aio.connect(cluster.bootstrap) as client,
    ):
        late = cluster.nodes[0]
        await cluster.terminate(late)
        await client.admin.create_topic("test/topic", replicas=2)
        async with await client.publisher("test/topic") as publisher:
            await (await publisher.send(b"before"))
            with contextlib.suppress(ResourceExhausted):
                for number in range(100):
                    await cluster.meta.transact([], [Put(f"/others/{number}", bytes(FILLING_BYTES))])
            await cluster.start(late)
            began = time.monotonic()
            while time.monotonic() - began < 3 * TTL_S:
                await asyncio.wait_for(await publisher.send(b"meanwhile"), 10)
            assert all(node.pid for node in cluster.nodes)
            assert "raise --quota-backend-bytes" in cluster.log_path(late).read_text()
        await make_room(cluster.etcd.endpoint)
        await asyncio.wait_for(client.admin.create_topic("test/later"), 30)
        await until(cluster, "SERVING")
        assert not tracebacks(cluster)


async def make_room(endpoint: str) -> None:
    """Delete, compact, defragment and disarm the alarm, as an operator does with etcdctl."""
    async with rpc.insecure_channel(endpoint) as channel:
        kv, maintenance = rpc.KVStub(channel), rpc.MaintenanceStub(channel)
        gone = await kv.DeleteRange(rpc.DeleteRangeRequest(key=b"/others/", range_end=b"/others0"))
        await kv.Compact(rpc.CompactionRequest(revision=gone.header.revision, physical=True))
        await maintenance.Defragment(rpc.DefragmentRequest())
        for one in (await maintenance.Alarm(rpc.AlarmRequest())).alarms:
            disarm = rpc.AlarmRequest(action=rpc.AlarmRequest.DEACTIVATE, memberID=one.memberID, alarm=one.alarm)
            await maintenance.Alarm(disarm)
