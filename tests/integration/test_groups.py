"""Groups of real processes on real brokers: members die, freeze and compute; no record is lost, no member expelled."""

import asyncio
import contextlib
import signal
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping

import pyarrow as pa
import pytest
import pytest_asyncio

from seaweedmq import aio
from seaweedmq.client.subscribe.messages import Message
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

    def say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"continue\n")


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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - it may change for any reason
            await asyncio.sleep(0.01)


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


async def test_a_frozen_member_commits_nothing_when_it_wakes_up(cluster: Cluster, client: aio.Client) -> None:
    await publish(client, "it/frozen", 10)
    async with member(cluster, "it/frozen", "zombie", "hold") as zombie:
        assert await zombie.line() == ["0", "1", "0"]
        zombie.process.send_signal(signal.SIGSTOP)
        async with member(cluster, "it/frozen", "next", "hold") as following:
            assert (await following.line())[:2] == ["0", "2"]
            zombie.process.send_signal(signal.SIGCONT)
            zombie.say()
            await zombie.line()
            topic = await described(client, "it/frozen")
            assert [(s.owner, s.committed or 0) for s in topic.segments] == [("next", 0)]
            following.say()
            assert await following.line() == ["committed"]


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


async def test_handlers_and_the_death_of_the_leader(cluster: Cluster, client: aio.Client) -> None:
    await publish(client, "it/handled", 1_000, segments=3)
    running: dict[bytes | None, int] = defaultdict(int)
    done: dict[bytes | None, list[int]] = defaultdict(list)
    has_begun = asyncio.Event()

    async def handler(message: Message) -> None:
        assert not running[message.key]
        running[message.key] += 1
        await asyncio.sleep(0.005)
        running[message.key] -= 1
        done[message.key].append(int(message.value))
        has_begun.set()

    async with client.subscriber("it/handled", group=GROUP, start="earliest", stop_at="latest") as subscriber:
        handling = asyncio.create_task(subscriber.handle(handler, concurrency=8))
        await has_begun.wait()
        leader = await cluster.leader()
        assert leader is not None
        await cluster.kill(leader)
        async with asyncio.timeout(WAIT_S):
            await handling
    assert sorted(number for numbers in done.values() for number in numbers) == list(range(1_000))
    assert all(numbers == sorted(numbers) for numbers in done.values())


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


async def test_order_and_groups_through_changes_of_segments(cluster: Cluster, client: aio.Client) -> None:
    topic = "it/changed"
    await client.admin.create_topic(topic, scaling="fixed")
    last: dict[bytes | None, int] = defaultdict(lambda: -1)
    count = 0

    async def read(subscriber: aio.GroupSubscriber) -> None:
        nonlocal count
        async for message in subscriber:
            assert int(message.value) > last[message.key]
            last[message.key] = int(message.value)
            count += 1
            message.ack()

    async with contextlib.AsyncExitStack() as stack:
        subscribers = [
            await stack.enter_async_context(client.subscriber(topic, group=GROUP, start="earliest")) for _ in range(3)
        ]
        readers = [asyncio.create_task(read(subscriber)) for subscriber in subscribers]
        async with client.publisher(topic) as publisher:
            for number in range(3_000):
                await publisher.send(b"%d" % number, key=b"%d" % (number % 40))
                if number % 500 == 250:
                    await publisher.flush(WAIT_S)
                    opened = sorted(await cluster.open_segments(topic), key=lambda s: s.slots)
                    if number % 1_000 == 250:
                        await client.admin.split_segment(
                            topic, opened[0].id, opened[0].slots.lo + opened[0].slots.width // 2
                        )
                    else:
                        await client.admin.merge_segments(topic, opened[0].id, opened[1].id)
        await until(lambda: count == 3_000 or any(reader.done() for reader in readers))
        for reader in readers:
            reader.cancel()
        for outcome in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome
    assert count == 3_000
