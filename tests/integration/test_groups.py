"""Groups of real processes on real brokers: members die, freeze and compute; no record is lost, no member expelled."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping

import pyarrow as pa
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


class Process:
    """A member as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> list[str]:
        """Return the next line it prints, in words; none at its end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            return (await self.process.stdout.readline()).decode().split()

    async def lines(self) -> list[list[str]]:
        """Return the rest of its output."""
        found = []
        while line := await self.line():
            found.append(line)
        return found


@contextlib.asynccontextmanager
async def member(cluster: Cluster, topic: str, name: str, how: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.group_member", cluster.bootstrap, topic, name, how),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield Process(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def described(client: aio.Client, topic: str) -> GroupTopic:
    """The group's reading of the topic."""
    return next(t for t in (await client.admin.describe_group(GROUP)).topics if str(t.topic) == topic)


async def publish(client: aio.Client, topic: str, count: int, segments: int = 1, keys: int = 50) -> None:
    await client.admin.create_topic(topic, segments=segments, scaling="fixed")
    async with client.publisher(topic) as publisher:
        for number in range(count):
            await publisher.send(b"%d" % number, key=b"%d" % (number % keys))


async def test_two_share_and_what_the_dead_one_did_not_commit_comes_again(cluster: Cluster, client: aio.Client) -> None:
    await publish(client, "it/shared", 2_000, segments=4)
    async with member(cluster, "it/shared", "doomed", "hold") as doomed:
        _, _, held = await doomed.line()
        async with member(cluster, "it/shared", "other", "read") as other:
            seen: dict[str, str] = {}
            while len(seen) < 400:  # it gets two of the four segments
                _, deliveries, value = await other.line()
                seen[value] = deliveries
            assert held not in seen
            doomed.process.send_signal(signal.SIGKILL)
            while len(seen) < 2_000:
                _, deliveries, value = await other.line()
                seen[value] = deliveries
    assert seen[held] == "2"
    assert sorted(map(int, seen)) == list(range(2_000))


async def test_a_frozen_member_delivers_nothing_that_others_were_given(cluster: Cluster, client: aio.Client) -> None:
    await publish(client, "it/thawed", 300)
    async with member(cluster, "it/thawed", "zombie", "slow") as zombie:
        for _ in range(3):
            await zombie.line()
        zombie.process.send_signal(signal.SIGSTOP)
        async with member(cluster, "it/thawed", "next", "slow") as following:
            others = {(await following.line())[1]}
            thawed_s = time.monotonic()
            zombie.process.send_signal(signal.SIGCONT)
            others |= {(await following.line())[1] for _ in range(20)}
            zombie.process.kill()
            delivered = {offset for at_s, offset, _, _ in await zombie.lines() if float(at_s) > thawed_s}
    assert not delivered & others


@pytest.mark.parametrize("how", ["burn", "burn-aio"])
async def test_a_handler_that_computes_for_long_keeps_its_membership(
    cluster: Cluster, client: aio.Client, how: str
) -> None:
    topic = f"it/{how}"
    await publish(client, topic, 1)
    async with member(cluster, topic, "busy", how) as busy:
        assert await busy.line() == ["0", "1", "0"]
        before = await described(client, topic)
        assert await busy.line() == ["burnt"]
        async with asyncio.timeout(WAIT_S):
            while (after := await described(client, topic)).segments[0].committed != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            # A loop that computed was blocked: its member opens another stream before it trusts its assignment.
            while how == "burn-aio" and not after.members[0].connected:
                after = await described(client, topic)
        assert after.generation == before.generation
        assert [(m.id, m.connected) for m in after.members] == [("busy", True)]


async def test_dead_letters_of_plain_topics_and_of_topics_with_a_schema(cluster: Cluster, client: aio.Client) -> None:
    table = pa.table({"id": [1, 2, 3], "price": [1.5, 2.5, None]})
    await client.admin.create_topic("it/priced", schema=table.schema)
    async with client.publisher("it/priced") as publisher:
        await publisher.send_table(table, key="id")
    await publish(client, "it/plain", 3)
    for topic, is_bad in (("it/priced", lambda m: m.value["id"] == 2), ("it/plain", lambda m: m.value == b"1")):
        deliveries = []
        async with client.subscriber(
            topic, group=GROUP, start="earliest", stop_at="latest", max_deliveries=2
        ) as subscriber:
            async for message in subscriber:
                if is_bad(message):
                    deliveries.append(message.deliveries)
                    message.nack(delay=0.05)
                else:
                    message.ack()
        assert deliveries == [1, 2]
        async with client.subscriber(f"{topic}.{GROUP}.dead-letter", start="earliest", stop_at="latest") as letters:
            (letter,) = [message async for message in letters]
        assert is_bad(letter)
        assert (letter.headers["dead-letter-deliveries"], letter.headers["dead-letter-offset"]) == (b"2", b"1")
