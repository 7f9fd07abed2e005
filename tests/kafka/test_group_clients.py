"""Groups of external Kafka consumers on real brokers: they share a topic, join, leave, die and resume."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psutil
import pytest
import pytest_asyncio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.kafka.group_consumer import CLIENTS
from tests.support.commands import Cluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

PARTITIONS = 10
WAIT_S = 60.0


class Member:
    """A consumer that runs as its own process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.owned: list[frozenset[int]] = []
        """Partitions that it owned, after each change."""
        self.got: list[tuple[int, int, str]] = []
        self._reading = asyncio.create_task(self._read())

    @property
    def owns(self) -> frozenset[int]:
        return self.owned[-1] if self.owned else frozenset()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            what, *words = line.decode().split()
            if what == "owns":
                self.owned.append(frozenset(map(int, words[0].split(","))) if words else frozenset())
            else:
                self.got.append((int(words[0]), int(words[1]), words[2]))

    async def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            await self.process.wait()
            await self._reading

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()
        await self._reading


class Group:
    """A topic, a group that reads it, and its members."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.members: list[Member] = []
        self.sent: list[str] = []
        self._producer = Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 5})
        cluster.ok("topic", "create", f"kafka/{name}", "--partitions", str(PARTITIONS), "--replicas", "2")

    async def member(self, client: str = "librdkafka", *settings: str) -> Member:
        command = [sys.executable, "-m", "tests.kafka.group_consumer", client, self.cluster.kafka, self.name, self.name]
        process = await asyncio.create_subprocess_exec(
            *command, *settings, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.members.append(Member(process))
        return self.members[-1]

    async def send(self, count: int) -> None:
        """Send this many records, over all partitions."""
        for number in range(len(self.sent), len(self.sent) + count):
            self._producer.produce(self.name, f"{number}", partition=number % PARTITIONS)
            self.sent.append(f"{number}")
        assert await asyncio.to_thread(self._producer.flush, WAIT_S) == 0

    async def shared(self, *members: Member) -> None:
        """Wait until these members own every partition once, and each owns some."""

        def settled() -> bool:
            owned = Counter(partition for member in members for partition in member.owns)
            return owned == Counter(range(PARTITIONS)) and all(member.owns for member in members)

        await until(settled, lambda: [sorted(member.owns) for member in members])

    async def received(self) -> None:
        """Wait until every record has arrived once, in the order of its partition."""
        await until(lambda: len(self.values()) >= len(self.sent), lambda: (len(self.values()), len(self.sent)))
        assert sorted(self.values(), key=int) == self.sent
        for member in self.members:
            for partition in range(PARTITIONS):
                offsets = [offset for number, offset, _ in member.got if number == partition]
                assert offsets == sorted(offsets)

    def values(self) -> list[str]:
        return [value for member in self.members for _, _, value in member.got]


async def until(condition: Callable[[], bool], tell: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 - it depends on other processes
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"still {tell()}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("groups") / "data", brokers=3, kafka_port=0) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def group(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Group]:
    made = Group(cluster, "".join(c if c.isalnum() else "-" for c in request.node.name))
    yield made
    for member in made.members:
        if member.process.returncode is None:
            await member.kill()


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("client", CLIENTS)
async def test_members_share_out_a_topic_and_one_leaves(group: Group, client: str, members: int) -> None:
    joined = [await group.member(client) for _ in range(members)]
    await group.shared(*joined)
    await group.send(1_000)
    await group.received()
    if members > 1:
        await joined[0].leave()
        await group.shared(*joined[1:])
        await group.send(200)
        await group.received()


async def test_clients_of_different_makers_are_one_group(group: Group) -> None:
    joined = [await group.member(client) for client in CLIENTS]
    await group.shared(*joined)
    await group.send(500)
    await group.received()


async def test_the_command_line_shows_and_serves_both_kinds_of_groups(group: Group, cluster: Cluster) -> None:
    def command(*arguments: str) -> Any:
        return json.loads(cluster.ok("group", *arguments, "--output", "json"))

    async def described(*options: str) -> Any:
        return await asyncio.to_thread(command, "describe", group.name, *options)

    topic = f"kafka/{group.name}"
    await group.send(100)
    await asyncio.to_thread(cluster.ok, "subscribe", topic, "--group", group.name)
    one, two = await group.member(), await group.member()
    await group.shared(one, two)
    await group.received()
    listed = [row for row in await asyncio.to_thread(command, "list") if row["group"] == group.name]
    assert [(row["kind"], row["topic"], row["members"], row["state"]) for row in listed] == [
        ("native", topic, 0, None),
        ("kafka", None, 2, "Stable"),
    ]
    assert (await described())["kind"] == (await described("--kind", "native"))["kind"] == "native"
    found = await described("--kind", "kafka")
    assert (found["state"], found["lag_records"], len(found["members"])) == ("Stable", 0, 2)
    assert [(o["partition"], o["committed"]) for o in found["offsets"]] == [(p, 10) for p in range(PARTITIONS)]
    elsewhere = await asyncio.to_thread(
        cluster.run, "group", "reset", group.name, "kafka/elsewhere", "--to", "earliest"
    )
    assert elsewhere.status == 1
    assert f"group {group.name} does not read kafka/elsewhere" in elsewhere.error
    refused = cluster.run("group", "delete", group.name, "--kind", "kafka", "--force")
    assert refused.status == 1
    assert "has 2 members, which track their own positions: stop them, then delete it" in refused.error
    for member in (one, two):
        await member.leave()
    await asyncio.to_thread(cluster.ok, "group", "delete", group.name)
    text = await asyncio.to_thread(cluster.ok, "group", "describe", group.name)
    assert "kafka" in text
    assert "no members" in text
    await asyncio.to_thread(cluster.ok, "group", "reset", group.name, topic, "--to", "offset:5")
    three = await group.member()
    await until(lambda: len(three.got) == 50, lambda: len(three.got))
    await three.leave()
    await asyncio.to_thread(cluster.ok, "group", "delete", group.name)
    assert cluster.run("group", "describe", group.name).status == 1


async def test_who_comes_back_goes_on_where_the_group_was(group: Group) -> None:
    first = [await group.member() for _ in range(3)]
    await group.shared(*first)
    await group.send(500)
    await group.received()
    for member in first:
        await member.leave()
    await group.send(500)
    second = [await group.member() for _ in range(2)]
    await group.shared(*second)
    await group.received()


async def test_the_share_of_a_member_that_is_killed_goes_to_the_others(group: Group) -> None:
    one, two = await group.member(), await group.member()
    await group.shared(one, two)
    await group.send(200)
    await group.received()
    await one.kill()
    await group.send(200)
    await group.shared(two)
    await group.received()


async def test_a_static_member_that_starts_again_disturbs_nobody(group: Group) -> None:
    one, two = (
        await group.member("librdkafka", "group.instance.id=1"),
        await group.member("librdkafka", "group.instance.id=2"),
    )
    await group.shared(one, two)
    changes = len(two.owned)
    await one.kill()
    again = await group.member("librdkafka", "group.instance.id=1")
    await group.shared(again, two)
    assert again.owns == one.owns
    assert len(two.owned) == changes
    await group.send(200)
    await group.received()


async def test_members_that_cooperate_keep_what_is_theirs(group: Group) -> None:
    strategy = "partition.assignment.strategy=cooperative-sticky"
    one = await group.member("librdkafka", strategy)
    await group.shared(one)
    two = await group.member("librdkafka", strategy)
    await group.shared(one, two)
    assert all(one.owns <= owned for owned in one.owned if owned)
    await group.send(200)
    await group.received()


async def test_a_coordinator_that_is_killed_is_not_noticed_by_members(group: Group, cluster: Cluster) -> None:
    """The last test, since it kills a broker. If that broker also leads the cluster, its lease expires first."""
    patient = "session.timeout.ms=30000"
    one, two = [await group.member("librdkafka", patient) for _ in range(2)]
    await group.shared(one, two)
    await group.send(200)
    await group.received()
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    described = await asyncio.to_thread(admin.describe_consumer_groups([group.name])[group.name].result)
    listening = {
        connection.laddr.port: process
        for process in map(psutil.Process, cluster.pids)
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    changes = [len(member.owned) for member in (one, two)]
    listening[described.coordinator.port].kill()
    await group.send(1_000)
    await group.received()
    assert [len(member.owned) for member in (one, two)] == changes
    for member in (one, two):
        await member.leave()
    three = await group.member()
    await group.shared(three)
    await group.send(100)
    await group.received()
