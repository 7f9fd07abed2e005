"""Members that compute for longer than their session keep their membership. Dead and frozen ones: tests/faults."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from seaweedmq import aio
from seaweedmq.model.messages.groups import GroupTopic
from tests.faults.machines.cluster import ROOT, Cluster
from tests.integration.group_member import GROUP

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SESSION_S = 6.0
WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, float]:
    return {"group_session_timeout_s": SESSION_S}


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: Cluster) -> AsyncIterator[aio.Client]:
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until_ready()
    async with aio.connect(cluster.bootstrap) as client:
        yield client


@contextlib.asynccontextmanager
async def member(cluster: Cluster, topic: str, how: str) -> AsyncIterator[asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.group_member", cluster.bootstrap, topic, "busy", how),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def described(client: aio.Client, topic: str) -> GroupTopic:
    return next(t for t in (await client.admin.describe_group(GROUP)).topics if str(t.topic) == topic)


@pytest.mark.deep
@pytest.mark.parametrize("how", ["burn", "burn-aio"])
async def test_a_handler_that_computes_for_long_keeps_its_membership(
    cluster: Cluster, client: aio.Client, how: str
) -> None:
    topic = f"it/{how}"
    await client.admin.create_topic(topic, scaling="fixed")
    async with client.publisher(topic) as publisher:
        await publisher.send(b"0", key=b"0")
    async with asyncio.timeout(2 * WAIT_S), member(cluster, topic, how) as output:
        assert await output.readline() == b"0 1 0\n"
        before = await described(client, topic)
        assert await output.readline() == b"burnt\n"
        async with asyncio.timeout(WAIT_S):
            while (after := await described(client, topic)).segments[0].committed != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            # A loop that computed was blocked: its member opens another stream before it trusts its assignment.
            while how == "burn-aio" and not after.members[0].connected:
                after = await described(client, topic)
        assert after.generation == before.generation
        assert [(m.id, m.connected) for m in after.members] == [("busy", True)]
