"""Subscribing: start positions, ends, lineage, reconnects and bounded memory."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq import aio
from seaweedmq.client.client import Client
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.subscribe import reader
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.codec.frame import Frame
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound, StaleMetadata, Unavailable
from seaweedmq.model.description import SegmentStats
from seaweedmq.model.messages.calls import DescribeTopic
from seaweedmq.model.topic import TopicName
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeBroker, FakeCluster

TOPIC = "shop/orders"


async def publish(client: Client, first: int, count: int, keys: int = 20) -> None:
    async with client.publisher(TOPIC) as publisher:
        for number in range(first, first + count):
            await publisher.send(b"%d" % number, key=b"key-%d" % (number % keys), timestamp=number + 1)


async def read(client: Client, **options: object) -> list[Message]:
    options = {"start": "earliest", "stop_at": "latest"} | options
    async with client.subscriber(TOPIC, **options) as subscriber:  # type: ignore[arg-type]
        return [message async for message in subscriber]


def values(messages: list[Message]) -> list[int]:
    return [int(message.value) for message in messages]


def check_order(messages: list[Message], count: int) -> None:
    """Check that each record comes once, and those of a key in order, at rising offsets."""
    assert sorted(values(messages)) == list(range(count))
    last: dict[bytes | None, tuple[int, int]] = defaultdict(lambda: (-1, -1))
    for message in messages:
        now = (int(message.value), message.offset)
        assert now[0] > last[message.key][0]
        assert now[1] > last[message.key][1]
        last[message.key] = now


async def test_where_to_begin(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 100)
    assert values(await read(client)) == list(range(100))
    assert values(await read(client, start=90)) == list(range(90, 100))
    assert values(await read(client, start="latest")) == []
    early = datetime.fromtimestamp(0, UTC)
    assert values(await read(client, start=early)) == list(range(100))
    assert values(await read(client, start="earliest", limit=7)) == list(range(7))
    assert values(await read(client, limit=0)) == []
    assert values(await read(client, stop_at=None, timeout=0.05)) == list(range(100)), "idle time ends it"
    with pytest.raises(InvalidArgument, match='is not "earliest"'):
        await read(client, start="first")


async def test_latest_gets_what_comes_after_it_opened(client: Client) -> None:
    await client.admin.create_topic(TOPIC, segments=3)
    await publish(client, 0, 50)
    async with client.subscriber(TOPIC, start="latest", limit=60) as subscriber:
        reading = asyncio.create_task(_collect(subscriber))
        await asyncio.sleep(0.01)
        await publish(client, 50, 60)
        assert sorted(values(await reading)) == list(range(50, 110))


async def _collect(subscriber: aio.Subscriber) -> list[Message]:
    return [message async for message in subscriber]


async def test_an_offset_beyond_the_end_is_waited_for(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with client.subscriber(TOPIC, start=15, limit=5) as subscriber:
        reading = asyncio.create_task(_collect(subscriber))
        await asyncio.sleep(0.01)
        await publish(client, 10, 10)
        assert values(await reading) == [15, 16, 17, 18, 19]


async def test_a_successor_waits_until_all_before_it_was_delivered(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    await publish(client, 0, 100)
    cluster.seal(TOPIC, 0, (10_000,))
    await publish(client, 100, 100)
    cluster.merge(TOPIC, 3, 1)
    await publish(client, 200, 100)
    cluster.kill("b-0")
    messages = await read(client, stop_at=None, timeout=0.3)
    check_order(messages, 300)
    assert {message.segment for message in messages} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("seed", range(5))
async def test_order_through_splits_merges_and_broken_streams_while_reading(
    cluster: FakeCluster, client: Client, seed: int
) -> None:
    rng = random.Random(seed)
    await client.admin.create_topic(TOPIC, segments=2)
    async with client.subscriber(TOPIC, start="earliest", limit=1_000) as subscriber:
        reading = asyncio.create_task(_collect(subscriber))
        for round_ in range(20):
            await publish(client, round_ * 50, 50)
            opened = sorted(
                (s.meta for s in cluster.segments[TopicName.parse(TOPIC)].values() if s.meta.is_open),
                key=lambda s: s.slots,
            )
            at = rng.randrange(len(opened))
            match rng.choice(["drop", "split", "merge", "calm"]):
                case "drop":
                    cluster.drop_connections()
                case "split":
                    cluster.seal(TOPIC, opened[at].id, (opened[at].slots.lo + opened[at].slots.width // 2,))
                case "merge" if at + 1 < len(opened):
                    cluster.merge(TOPIC, opened[at].id, opened[at + 1].id)
        check_order(await reading, 1_000)


async def test_stop_at_latest_does_not_run_after_a_publisher(client: Client) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    await publish(client, 0, 500)
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        await publish(client, 500, 500)
        assert sorted(values(await _collect(subscriber))) == list(range(500))


async def test_close_ends_whoever_waits_and_so_does_a_deleted_topic_with_not_found(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    subscriber = await client.subscriber(TOPIC)
    reading = asyncio.create_task(_collect(subscriber))
    await asyncio.sleep(0.01)
    await subscriber.close()
    assert await reading == []
    await subscriber.close()
    async with client.subscriber(TOPIC) as subscriber:
        await client.admin.delete_topic(TOPIC)
        with pytest.raises(NotFound, match="there is no topic"):
            await _collect(subscriber)


async def test_batches_and_messages_may_be_mixed_and_batches_have_the_columns_asked_for(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 100)
    seen: list[int] = []
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        async for message in subscriber:
            message.ack()
            seen.append(message.offset)
            if len(seen) == 30:
                break
        async for batch in subscriber.batches():
            seen += batch.column("_offset").to_pylist()
    assert seen == list(range(100))
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest", columns=["_offset", "_key"]) as subscriber:
        batches = [batch async for batch in subscriber.batches()]
    assert pa.Table.from_batches(batches).to_pylist()[4] == {"_offset": 4, "_key": b"key-4"}
    with pytest.raises(InvalidArgument, match="no column 'price': choose from _segment, _offset"):
        await client.subscriber(TOPIC, columns=["price"])


async def test_a_subscriber_that_does_not_read_takes_no_more_than_its_buffer(cluster: FakeCluster) -> None:
    config = ClientConfig(subscribe_buffer_bytes_max=400_000, credit_bytes_min=1_000, batch_bytes=10_000)
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=config) as client:
        await client.admin.create_topic(TOPIC, segments=4)
        async with client.publisher(TOPIC) as publisher:
            for number in range(2_000):
                await publisher.send(bytes(1_000), key=b"%d" % number)
        async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
            await asyncio.sleep(0.1)
            under_way = sum(cluster.frames_sent.values())
            assert 300_000 < under_way < 500_000
            assert sum(cluster.credit_given.values()) <= 400_000
            assert len(await _collect(subscriber)) == 2_000


async def test_segments_take_turns(client: Client) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    async with client.publisher(TOPIC, batch_bytes=1_000) as publisher:
        for number in range(2_000):
            await publisher.send(bytes(100), key=b"%d" % number)
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        await asyncio.sleep(0.05)
        turns = [batch.column("_segment")[0].as_py() async for batch in subscriber.batches()]
    assert turns[:6] in ([0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0])


async def test_a_cluster_out_of_reach_is_an_error_after_the_deadline(cluster: FakeCluster) -> None:
    config = ClientConfig(read_retry_timeout_s=0.1, rpc_timeout_s=0.1, backoff_s_max=0.02)
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=config) as client:
        await client.admin.create_topic(TOPIC)
        async with client.subscriber(TOPIC) as subscriber:
            for broker in list(cluster.brokers):
                cluster.kill(broker)
            with pytest.raises(Unavailable):
                await _collect(subscriber)


async def test_connecting_to_nobody_names_every_address_and_why(cluster: FakeCluster) -> None:
    config = ClientConfig(connect_timeout_s=0.1)
    with pytest.raises(Unavailable, match=r"within 0.1 s, tried .*nowhere:1: connection to nowhere:1 refused"):
        await aio.connect("nowhere:1,nowhere:2", dialer=cluster.dialer(), env=environment(), config=config)
    for wrong in ("", "host", "host:port", "host:0", ":17777"):
        with pytest.raises(InvalidArgument, match=r"HOST:PORT"):
            await aio.connect(wrong, dialer=cluster.dialer(), env=environment())


# --- many sealed segments, and pruned ones
async def test_a_long_lineage_is_read_page_by_page_and_followed_without_another_look_at_it(
    cluster: FakeCluster, client: Client
) -> None:
    cluster.sealed_per_page = 3
    await client.admin.create_topic(TOPIC)
    last = 0
    for number in range(10):
        await publish(client, number, 1)
        (last,) = cluster.seal(TOPIC, last)
    assert [s.id for s in (await client.admin.describe_topic(TOPIC)).segments] == list(range(11))
    assert values(await read(client)) == list(range(10))
    async with client.subscriber(TOPIC, start="earliest", limit=20) as subscriber:
        cluster.asked.clear()
        got = []
        async for message in subscriber:
            got.append(message)
            if len(got) >= 10 and len(got) < 20:
                await publish(client, len(got), 1)
                (last,) = cluster.seal(TOPIC, last)
    check_order(got, 20)
    assert all(which.sealed_above is None and len(which.ids) <= 3 for which in cluster.asked)


async def test_a_subscriber_goes_on_past_segments_that_were_pruned_before_it_came_to_them(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 1)
    async with client.subscriber(TOPIC, start="earliest", limit=3) as subscriber:
        messages = aiter(subscriber)
        got = [await anext(messages)]
        left, right = cluster.seal(TOPIC, 0, (30_000,))
        (after_left,) = cluster.seal(TOPIC, left)
        merged = cluster.merge(TOPIC, after_left, right)
        cluster.prune(TOPIC, left, after_left)
        await publish(client, 1, 2)
        got += [message async for message in messages]
    assert values(got) == [0, 1, 2]
    assert {m.segment for m in got} == {0, merged}


async def test_a_subscriber_continues_though_a_recovered_etcd_does_not_know_that_its_segment_was_sealed(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 1)
    async with client.subscriber(TOPIC, start="earliest", limit=2) as subscriber:
        messages = aiter(subscriber)
        got = [await anext(messages)]
        waiting = asyncio.ensure_future(anext(messages))
        cluster.seal(TOPIC, 0)
        await asyncio.sleep(0.05)  # its reader ends, and one of the successor starts
        cluster.forget_seal(TOPIC, 0)
        cluster.drop_connections()
        await asyncio.sleep(0.05)
        (third,) = cluster.seal(TOPIC, 0)
        await publish(client, 1, 1)
        got.append(await waiting)
    assert values(got) == [0, 1]
    assert [m.segment for m in got] == [0, third]


async def test_a_reader_to_the_latest_record_waits_for_no_segment_that_is_pruned_meanwhile(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.admin.create_topic(TOPIC)
    (second,) = cluster.seal(TOPIC, 0)
    stats = FakeBroker.topic_stats

    async def stats_after_a_change(broker: FakeBroker, name: TopicName) -> tuple[SegmentStats, ...]:
        if second in cluster.segments[name]:
            cluster.seal(TOPIC, second)
            cluster.prune(TOPIC, 0, second)
        return await stats(broker, name)

    monkeypatch.setattr(FakeBroker, "topic_stats", stats_after_a_change)
    assert await read(client) == []


async def test_a_broker_is_not_avoided_because_nobody_tells_the_schema(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic gets its schema while a subscriber reads; for a while the other brokers are silent, and this one lags."""
    patience = []
    answer, answer_timeout_s = FakeBroker.call, Cluster.answer_timeout_s
    told = asyncio.Event()

    def spied(self: Cluster, address: str) -> float:
        patience.append(answer_timeout_s(self, address))
        return patience[-1]

    async def lagging(broker: FakeBroker, request: Any) -> Any:
        if isinstance(request, DescribeTopic) and not told.is_set():
            if broker.id == cluster.stored(TOPIC).meta.primary:
                raise StaleMetadata("this broker lags")
            await told.wait()
        return await answer(broker, request)

    monkeypatch.setattr(Cluster, "answer_timeout_s", spied)
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher, client.subscriber(TOPIC, limit=2) as subscriber:
        monkeypatch.setattr(FakeBroker, "call", lagging)
        await publisher.send_table(pa.table({"number": [1, 2]}))
        await asyncio.sleep(1.1 * QUICK.rpc_timeout_s)
        told.set()
        numbers = [batch.column("number").to_pylist() async for batch in subscriber.batches()]
    assert numbers == [[1, 2]]
    assert set(patience) == {QUICK.rpc_timeout_s}


@pytest.mark.parametrize("group", [None, "billing"])
@pytest.mark.parametrize("are_batches", [False, True])
async def test_iteration_goes_on_after_a_step_that_was_given_up(
    client: Client, group: str | None, are_batches: bool
) -> None:
    """``asyncio.wait_for(anext(messages), 1)``, as in a consumer with other work."""
    await client.admin.create_topic(TOPIC)
    async with client.subscriber(TOPIC, group=group, start="earliest") as subscriber:
        arriving: AsyncIterator[Any] = subscriber.batches() if are_batches else aiter(subscriber)
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(arriving), 0.05)
            async with client.publisher(TOPIC) as publisher:
                await publisher.send(b"%d" % number)
            arrived = await asyncio.wait_for(anext(arriving), 5)
            value = arrived.column("_value")[0].as_py() if are_batches else arrived.value
            assert value == b"%d" % number


async def test_iteration_that_was_closed_has_ended(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 3)
    async with client.subscriber(TOPIC, start="earliest") as subscriber:
        async with aclosing(aiter(subscriber)) as messages:
            first = await anext(messages)
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        assert (await anext(aiter(subscriber))).offset == first.offset + 1


@pytest.mark.parametrize("group", [None, "billing"])
async def test_frames_stay_packed_until_they_are_taken(
    client: Client, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    """Batches of Kafka clients may unpack to a thousand times their size: waiting batches stay packed."""
    unpacked: list[int] = []

    def counted(frame: Frame, schema: pa.Schema | None) -> pa.RecordBatch:
        unpacked.append(frame.header.base_offset)
        batch = decode_frame(frame, schema)
        return pa.RecordBatch.from_arrays([pa.array([bytes(8 << 20)] * batch.num_rows)], names=["_value"])

    monkeypatch.setattr(reader, "decode_frame", counted)
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC, linger_s=0) as publisher:
        for _ in range(100):
            await (await publisher.send(b"packed"))
    options = {} if group is None else {"group": group, "max_unacked": 1}
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest", **options) as subscriber:  # type: ignore[call-overload]
        messages = aiter(subscriber)
        await anext(messages)
        await asyncio.sleep(1)
        assert len(unpacked) <= 2


async def test_a_frame_that_cannot_be_unpacked_is_an_error_behind_those_before_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(frame: Frame, schema: pa.Schema | None) -> pa.RecordBatch:
        if frame.header.base_offset == 2:
            raise Corrupt("frame at offset 2: unreadable payload")
        return decode_frame(frame, schema)

    monkeypatch.setattr(reader, "decode_frame", damaged)
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC, linger_s=0) as publisher:
        for number in range(4):
            await (await publisher.send(b"%d" % number))
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        messages = aiter(subscriber)
        assert [(await anext(messages)).value for _ in range(2)] == [b"0", b"1"]
        for _ in range(2):
            with pytest.raises(Corrupt, match="unreadable payload"):
                await anext(messages)
