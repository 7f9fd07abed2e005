"""A cluster with every feature in use whose etcd loses its data, and is rebuilt from the storage as the guide says."""

import asyncio
import contextlib
import json
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import AlreadyExists, StaleMetadata, Unavailable
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.id_ranges import NO_IDS
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.compacting import compact_topic
from tests.faults.episode import stage
from tests.faults.machines.cluster import ROOT, Cluster
from tests.integration.kafka.raw import Brokers, commit_fields
from tests.support.kafka_batches import Record, batch_of

pytestmark = pytest.mark.integration

GUIDE = (ROOT / "deploy" / "README.md").read_text()
KEYED, COLUMNS, WORK, DEAD = "it/keyed", "it/columns", "it/work", "it/dead"
ORDERS = "kafka/orders"
GROUP, KAFKA_GROUP = "workers", "consumers"
SETTINGS = {"log_roll_age_s": 0.3, "maintenance_interval_s": 0.2, "conversion_delay_s_max": 0.1, "log_grace_s": 60.0}
KEYS = [b"key-%d" % number for number in range(20)]
DELAY_S = 5.0
PATIENCE_S = 30.0
WITHIN_S = 0.05


@dataclass
class Users:
    """The users of the cluster, and everything promised to them."""

    cluster: Cluster
    client: aio.Client
    records: dict[str, list[Any]] = field(default_factory=dict)
    """Values by topic, sorted."""
    topics: dict[str, Topic] = field(default_factory=dict)
    producer: int = -1
    """Id of a Kafka producer."""
    nodes: Mapping[int, int] = field(default_factory=dict)

    @property
    def brokers(self) -> Brokers:
        return Brokers(self.cluster.kafka)


@pytest.mark.deep
async def test_a_cluster_continues_after_etcd_was_rebuilt_from_its_storage(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            stage(tmp_path, brokers=2, lease_ttl_s=6.0, loopback=True, settings=SETTINGS)
        )
        async with aio.connect(cluster.bootstrap) as client:
            users = Users(cluster, client)
            await together(split_and_merge(users), table_of_columns(users), partitions(users), group(users))
            await remember(users)
        await cluster.etcd_data.lose()
        await until_all_refuse(cluster)
        await recover(cluster)
        await cluster.until_ready()
        async with aio.connect(cluster.bootstrap) as client:
            users.client = client
            await until_led(users)
            assert {name: stripped(topic) for name, topic in (await topics(client)).items()} == users.topics
            for name, values in users.records.items():
                assert await read(client, name) == values, name
            await together(keyed_continues(users), partitions_continue(users), group_continues(users))
        assert not cluster.tracebacks()


async def together(*works: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


# --- before ---------------------------------------------------------------------------------------------------------


async def split_and_merge(users: Users) -> None:
    admin = users.client.admin
    await create(
        users, KEYED, replicas=2, retention=86_400, retention_bytes=1 << 40, configs={"max.message.bytes": "500000"}
    )
    await publish(users.client, KEYED, b"before")
    await reshape(users, lambda segments: admin.split_segment(KEYED, segments[0]))
    await publish(users.client, KEYED, b"between")
    await reshape(users, lambda segments: admin.merge_segments(KEYED, segments[0], segments[1]))
    await publish(users.client, KEYED, b"after")


async def reshape(users: Users, change: Callable[[list[int]], Awaitable[object]]) -> None:
    """Change the open segments of a topic, in the order of their slots; retry if they were replaced meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await users.client.admin.describe_topic(KEYED)
            still_open = sorted((s for s in found.segments if s.is_open), key=lambda segment: segment.slots.lo)
            with contextlib.suppress(StaleMetadata):
                await change([segment.id for segment in still_open])
                return


async def create(users: Users, name: str, **settings: Any) -> None:
    with contextlib.suppress(AlreadyExists):  # the client's first attempt took too long, and its second one finds it
        await users.client.admin.create_topic(name, **settings)


async def publish(client: aio.Client, topic: str, text: bytes) -> None:
    async with await client.publisher(topic) as publisher:
        for key in KEYS:
            await publisher.send(text + b" " + key, key=key)


async def table_of_columns(users: Users) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    await create(users, COLUMNS, schema=schema, replicas=2)
    folder = users.cluster.storage / "topics" / COLUMNS / "table"
    async with await users.client.publisher(COLUMNS) as publisher:
        for number in range(3):
            rows = {"id": [2 * number, 2 * number + 1], "name": ["a", "b"]}
            await (await publisher.send_table(pa.table(rows, schema=schema)))
            await until(lambda count=number: len(list(folder.glob("*.parquet"))) > count)
    await until_documented(users, COLUMNS)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            done = await asyncio.to_thread(
                compact_topic, DirectoryPlace(users.cluster.storage), TopicName.parse(COLUMNS)
            )
            if done.merged:
                return
            await asyncio.sleep(WITHIN_S)  # a broker is about to publish the last one


async def partitions(users: Users) -> None:
    await create(users, ORDERS, partitions=2, replicas=2)
    users.producer = await producer_id(users)
    for sequence in range(4):
        assert await produce(users, sequence) == (Code.NONE, sequence)
    assert await users.client.admin.delete_records(ORDERS, {0: 2}) == {0: 2}
    port = await users.brokers.coordinator(KAFKA_GROUP)
    reply = await users.brokers.ask(port, API.OFFSET_COMMIT, 8, **commit_fields(KAFKA_GROUP, {"orders": [0, 1]}))
    assert [part.error_code for part in reply.topics[0].partitions] == [Code.NONE] * 2


async def producer_id(users: Users) -> int:
    port = users.brokers.ports[0]
    made = await users.brokers.ask(port, API.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=0)
    assert made.error_code == Code.NONE
    return int(made.producer_id)


async def produce(users: Users, sequence: int, producer: int | None = None) -> tuple[int, int]:
    """Produce one record to the first partition, as a client that retries; return error code and offset."""
    identity = (users.producer if producer is None else producer, 0, sequence)
    batch = batch_of([Record(b"k", b"%d" % sequence)], producer=identity)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            said = await users.brokers.produce("orders", 0, batch, port=await users.brokers.leader("orders"))
            if said.error_code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER):
                return said.error_code, said.base_offset
            await asyncio.sleep(WITHIN_S)


async def group(users: Users) -> None:
    """A group whose position is 3, which it delays: it acknowledged 0 and 1, sent 2 to the dead letters, and has 4 and
    5 in flight.
    """
    await create(users, WORK, replicas=2, scaling="fixed")
    await create(users, DEAD, replicas=2)
    async with await users.client.publisher(WORK) as publisher:
        for number in range(6):
            await publisher.send(b"%d" % number)
    async with asyncio.timeout(PATIENCE_S), worker(users) as subscriber:
        deliveries: dict[bytes, int] = {}
        async for message in subscriber:
            deliveries[message.value] = message.deliveries
            if message.value in (b"0", b"1"):
                message.ack()
            elif message.value == b"2":
                message.nack()
            elif message.value == b"3":
                message.nack(delay=DELAY_S)
            if len(deliveries) == 6 and deliveries[b"2"] == 2:
                break
        await subscriber.commit()
        await until_read(users.client, DEAD, 1)
        await subscriber.commit()


def worker(users: Users) -> Any:
    return users.client.subscriber(WORK, group=GROUP, start="earliest", max_deliveries=2, dead_letter=DEAD)


async def remember(users: Users) -> None:
    """Record the promises of the cluster."""
    users.topics = {name: stripped(topic) for name, topic in (await topics(users.client)).items()}
    users.records = {name: await read(users.client, name) for name in (KEYED, COLUMNS, ORDERS, WORK, DEAD)}
    counts = {name: len(values) for name, values in users.records.items()}
    assert counts == {KEYED: 60, COLUMNS: 6, ORDERS: 2, WORK: 6, DEAD: 1}
    users.nodes = await nodes(users)


async def topics(client: aio.Client) -> dict[str, Topic]:
    return {str(topic.name): topic for topic in await client.admin.list_topics()}


def stripped(topic: Topic) -> Topic:
    """Return a topic without the ids of its segments, which grow."""
    return replace(topic, next_segment=0, pruned=NO_IDS)


async def nodes(users: Users) -> dict[int, int]:
    """Return the ids by which Kafka clients know the brokers, by their ports."""
    reply = await users.brokers.metadata()
    return {broker.port: broker.node_id for broker in reply.brokers}


async def read(client: aio.Client, topic: str) -> list[Any]:
    """Return values with their offsets, sorted."""
    async with asyncio.timeout(PATIENCE_S), client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        return sorted([(message.offset, str(message.key), str(message.value)) async for message in subscriber])


async def until_read(client: aio.Client, topic: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(await read(client, topic)) < count:  # noqa: ASYNC110
            await asyncio.sleep(WITHIN_S)


async def until_documented(users: Users, topic: str) -> None:
    """Wait until jobs, which know the files alone, find the topic."""
    await until((users.cluster.storage / "topics" / topic / "topic.json").exists)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - files have no event
            await asyncio.sleep(WITHIN_S)


# --- the loss, and the recovery -------------------------------------------------------------------------------------


async def until_all_refuse(cluster: Cluster) -> None:
    """Wait until every broker names the command in its log and to its clients."""
    command = f"`seaweedmq cluster recover --storage {cluster.storage.as_uri()} --etcd ENDPOINTS`"
    for node in cluster.nodes:
        await until(lambda node=node: command in cluster.log_end(node, 50))
        with pytest.raises(Unavailable, match="cluster recover"):
            await aio.connect(cluster.network.advertise(node.index), config=ClientConfig(connect_timeout_s=0.5))


async def recover(cluster: Cluster) -> None:
    """Run the guide's commands: the plan changes nothing, the next one recovers, and then nothing is left to do."""
    section = GUIDE.split("## When etcd is lost", 1)[1].split("\n## ", 1)[0]
    plan, apply = re.findall(r"^seaweedmq cluster recover .*$", section, re.MULTILINE)
    assert "--apply" in apply
    status, out, _ = await run(cluster, plan + " -o json")
    found = json.loads(out)
    assert (status, found["state"], found["problems"], found["applied"]) == (0, "lost", [], False)
    shown = {topic["topic"]: topic for topic in found["topics"]}
    assert {KEYED, COLUMNS, ORDERS, WORK, DEAD} <= shown.keys()
    assert shown[COLUMNS]["columns"] == ["id: int64", "name: string"]
    assert shown[ORDERS]["low_watermarks"] == [2]
    assert [segment["end_offset"] for segment in shown[ORDERS]["segments"]] == [4, 0]
    assert found["groups"] == [{"topic": WORK, "group": GROUP}]
    assert (await cluster.meta.list("/seaweedmq/topics/")).entries == ()
    status, out, err = await run(cluster, apply)
    assert status == 0, err
    assert "recovered: etcd has cluster" in out
    status, out, _ = await run(cluster, apply)
    assert (status, out[:13]) == (0, "nothing to do")


async def run(cluster: Cluster, line: str) -> tuple[int | None, str, str]:
    words = shlex.split(line)
    assert words[0] == "seaweedmq"
    words[words.index("--storage") + 1] = str(cluster.storage)
    words[words.index("--etcd") + 1] = cluster.etcd.endpoint
    words += ["--lease-ttl", "1"]  # every broker rejects requests by now
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "seaweedmq.cli.main", *words[1:]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


# --- after ----------------------------------------------------------------------------------------------------------


async def until_led(users: Users) -> None:
    """Wait until open segments have live primaries again, as after a crash of all brokers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            described = [await users.client.admin.describe_topic(name) for name in users.topics]
            if all(s.primary in found.addresses for found in described for s in found.segments if s.is_open):
                return
            await asyncio.sleep(WITHIN_S)


async def keyed_continues(users: Users) -> None:
    await publish(users.client, KEYED, b"recovered")
    found = await read(users.client, KEYED)
    assert len(found) == 80
    assert found[:60] == users.records[KEYED]


async def partitions_continue(users: Users) -> None:
    assert await produce(users, 2) == (Code.NONE, 2), "a repeat has the offset of the first attempt"
    assert await produce(users, 4) == (Code.NONE, 4), "and the next one follows"
    other = await producer_id(users)
    assert other > users.producer
    assert await produce(users, 0, other) == (Code.NONE, 5)
    assert [offset for offset, *_ in await read(users.client, ORDERS)] == [2, 3, 4, 5]
    await users.brokers.coordinator(KAFKA_GROUP)
    described = await users.client.admin.describe_kafka_group(KAFKA_GROUP)
    assert {offset.partition: offset.committed for offset in described.offsets} == {(ORDERS, 0): 1, (ORDERS, 1): 1}
    assert await nodes(users) == users.nodes


async def group_continues(users: Users) -> None:
    got: dict[bytes, int] = {}
    async with asyncio.timeout(PATIENCE_S), worker(users) as subscriber:
        async for message in subscriber:
            got[message.value] = message.deliveries
            message.ack()
            if len(got) == 3:
                break
        await subscriber.commit()
    assert got.keys() == {b"3", b"4", b"5"}
    assert got[b"3"] == 2
    described = await users.client.admin.describe_group(GROUP)
    assert [segment.lag_records for segment in described.topics[0].segments if segment.lag_records] == []
    assert len(await read(users.client, DEAD)) == 1
