"""Groups: sharing, acknowledging, committing, redelivery, dead letters, fencing, reconnects."""

import asyncio
import itertools
import logging
from collections.abc import Callable

import pyarrow as pa
import pytest

from seaweedmq import aio
from seaweedmq.client.client import Client
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.subscribe.messages import FetchedRows, Message, Origin
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.core.member.acks import Ledger
from seaweedmq.errors import DeadlineExceeded, Fenced, InvalidArgument, NotFound, Unavailable
from tests.client.conftest import environment
from tests.client.fake_broker import FakeCluster

HEADERS = PLAIN_SCHEMA.field("_headers").type
TOPIC = "shop/orders"
GROUP = "billing"


async def publish(client: Client, first: int, count: int, keys: int = 20) -> None:
    async with client.publisher(TOPIC) as publisher:
        for number in range(first, first + count):
            await publisher.send(b"%d" % number, key=b"key-%d" % (number % keys))


def member(client: Client, **options: object) -> "aio.Opening[aio.GroupSubscriber]":
    return client.subscriber(TOPIC, **({"group": GROUP, "start": "earliest"} | options))  # type: ignore[call-overload,no-any-return]


def number(message: Message) -> int:
    return int(message.value)


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - no event covers every condition
            await asyncio.sleep(0.005)


async def test_batches(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC, segments=3)
    await publish(client, 0, 300)
    async with member(client, stop_at="latest") as subscriber:
        rows = 0
        async for batch in subscriber.batches():
            rows += batch.num_rows
            subscriber.ack(batch)
        assert rows == 300
        with pytest.raises(InvalidArgument, match="name these two in columns="):
            subscriber.ack(batch.select(["_key"]))
    assert cluster.coordinator(GROUP, TOPIC).committed == {n: cluster.stored(TOPIC, n).end for n in range(3)}


async def test_auto_ack_acknowledges_what_came_before(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client, auto_ack=True) as subscriber:
        async for message in subscriber:
            if number(message) == 4:
                break
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: 4}
    async with member(client, auto_ack=True, stop_at="latest") as subscriber:
        assert [batch.num_rows async for batch in subscriber.batches()]
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: 10}


async def test_a_refused_batch_comes_again_before_the_next(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.admin.create_topic(TOPIC)
    loop = asyncio.get_running_loop()
    loop_time, readings = loop.time, itertools.count()
    monkeypatch.setattr(loop, "time", lambda: loop_time() + 0.001 * next(readings))  # a busy machine
    async with client.publisher(TOPIC) as publisher:
        for first in (0, 50, 100):
            numbers = range(first, first + 50)
            table = pa.table({"_value": [b"%d" % n for n in numbers], "_key": [b"%d" % (n % 5) for n in numbers]})
            await (await publisher.send_table(table))
    async with member(client, stop_at="latest") as subscriber:
        got: list[list[int]] = []
        async for batch in subscriber.batches():
            got.append(batch.column("_offset").to_pylist())
            if len(got) == 1:
                subscriber.nack(batch, delay=0.02)
            else:
                subscriber.ack(batch)
    assert got[0] == got[1] == list(range(len(got[0]))), "however many tables it holds"
    assert [offset for offsets in got[1:] for offset in offsets] == list(range(150))


async def test_what_is_acknowledged_in_the_last_moment_is_not_delivered_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    await publish(client, 0, 40)
    async with member(client) as one:
        held: dict[int, Message] = {}
        async for message in one:
            held[message.segment] = message
            if len(held) == 2:
                break
            message.ack()
        await one.commit()
        position = Ledger.position

        def position_and_then_acknowledge(ledger: Ledger[FetchedRows]) -> int | None:
            found = position(ledger)
            for message in held.values():
                message.ack()  # as another thread may
            return found

        monkeypatch.setattr(Ledger, "position", position_and_then_acknowledge)
        async with member(client) as two, asyncio.timeout(10):
            message = await anext(aiter(two))
            assert message.offset == held[message.segment].offset + 1


async def test_dead_letters(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC, replicas=1)
    async with client.publisher(TOPIC) as publisher:
        for n in range(6):
            await publisher.send(b"%d" % n, key=b"k", headers={"h": b"v"}, timestamp=n + 1)
    async with member(client, max_deliveries=3, stop_at="latest") as subscriber:
        got = []
        async for message in subscriber:
            got.append(number(message))
            if number(message) == 2:
                message.nack()
            else:
                message.ack()
    assert got == [0, 1, 2, 2, 2, 3, 4, 5]
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: 6}
    async with client.subscriber(f"{TOPIC}.{GROUP}.dead-letter", start="earliest", stop_at="latest") as subscriber_:
        (letter,) = [message async for message in subscriber_]
    assert (letter.key, letter.value, letter.timestamp_us) == (b"k", b"2", 3)
    assert letter.headers == {
        "h": b"v",
        "dead-letter-reason": b"nack",
        "dead-letter-topic": TOPIC.encode(),
        "dead-letter-segment": b"0",
        "dead-letter-offset": b"2",
        "dead-letter-deliveries": b"3",
        "dead-letter-group": GROUP.encode(),
    }


async def test_dead_letters_keep_the_columns_of_a_schema(client: Client) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
    await client.admin.create_topic(TOPIC, schema=table.schema)
    async with client.publisher(TOPIC) as publisher:
        await publisher.send_table(table, key="id")
    async with member(client, max_deliveries=1, dead_letter="shop/lost", stop_at="latest") as subscriber:
        async for message in subscriber:
            if message.value["id"] == 2:
                message.nack()
            else:
                message.ack()
    async with client.subscriber("shop/lost", start="earliest", stop_at="latest") as lost:
        (letter,) = [message async for message in lost]
    assert (letter.key, letter.value) == (b"2", {"id": 2, "name": None})
    assert letter.headers["dead-letter-offset"] == b"1"


async def test_a_letter_of_a_record_that_just_fits_a_frame_is_kept(client: Client, cluster: FakeCluster) -> None:
    """With the headers of the dead letter it is too large: they are dropped, the record is not."""
    cluster.frame_bytes_max = 100_000
    await client.admin.create_topic(TOPIC)
    kept = []
    async with client.publisher(TOPIC) as publisher:
        for size in range(97_500, 100_000, 100):
            columns = {"_key": [b"k"], "_headers": pa.array([[("h", b"v")]], HEADERS), "_value": [bytes(size)]}
            try:
                await (await publisher.send_table(pa.table(columns)))
            except InvalidArgument:
                break
            kept.append(size)
    assert 10 < len(kept) < 25

    async def handler(message: Message) -> None:
        raise ValueError("the input could not be read" * 30)

    async with member(client, max_deliveries=1, stop_at="latest") as subscriber, asyncio.timeout(60):
        await subscriber.handle(handler)
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: len(kept)}
    async with client.subscriber(f"{TOPIC}.{GROUP}.dead-letter", start="earliest", stop_at="latest") as subscriber_:
        letters = [message async for message in subscriber_]
    assert sorted(len(letter.value) for letter in letters) == kept
    assert {letter.headers["h"] for letter in letters} == {b"v"}
    told = {len(letter.headers) for letter in letters}
    assert told == {7, 6, 1}, "whole, without the reason, and without any of the headers"


async def test_a_letter_of_a_record_that_fits_no_frame_says_where_it_is(client: Client, cluster: FakeCluster) -> None:
    """A compressed record of a Kafka client may be larger than any frame once unpacked."""
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await publisher.send(bytes(200_000), key=b"k", headers={"h": b"v"})
        await publisher.send(b"next", key=b"k")
    cluster.frame_bytes_max = 100_000
    async with member(client, max_deliveries=1, stop_at="latest") as subscriber, asyncio.timeout(60):
        async for message in subscriber:
            if message.value == b"next":
                message.ack()
            else:
                message.nack()
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: 2}
    async with client.subscriber(f"{TOPIC}.{GROUP}.dead-letter", start="earliest", stop_at="latest") as subscriber_:
        (letter,) = [message async for message in subscriber_]
    assert (letter.key, letter.value, letter.headers["h"]) == (b"k", None, b"v")
    assert (letter.headers["dead-letter-segment"], letter.headers["dead-letter-offset"]) == (b"0", b"0")
    assert letter.headers["dead-letter-left-out"] == b"_value (200004 bytes)"


async def test_a_segment_moves_only_after_what_is_out_is_settled(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    await publish(client, 0, 200, keys=50)
    async with member(client) as first:
        held: dict[int, Message] = {}
        async for message in first:
            if message.segment not in held:
                held[message.segment] = message
            else:
                message.ack()
            if len(held) == 2:
                break
        async with member(client) as second:
            taking = asyncio.create_task(anext(aiter(second)))
            await asyncio.sleep(0.1)
            assert not taking.done()
            later = asyncio.create_task(_collect(first))
            await asyncio.sleep(0.1)
            assert not taking.done()
            for message in held.values():
                message.ack()
            moved = await asyncio.wait_for(taking, 5)
            assert moved.offset == cluster.coordinator(GROUP, TOPIC).committed[moved.segment]
            await first.close()
            assert all(message.segment != moved.segment for message in await later)


async def _collect(subscriber: aio.Subscriber | aio.GroupSubscriber) -> list[Message]:
    return [message async for message in subscriber]


async def test_a_later_member_of_the_same_name_fences_the_earlier(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client, member="me") as first:
        message = await anext(aiter(first))
        async with member(client, member="me") as second:
            with pytest.raises(Fenced, match="another subscriber joined the group as member me"):
                await _collect(first)
            message.ack()
            with pytest.raises(Fenced):
                await first.commit()
            assert (await anext(aiter(second))).offset == 0


async def test_a_lost_coordinator_hinders_nobody(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client) as subscriber:
        reading = aiter(subscriber)
        (await anext(reading)).ack()
        coordinator = cluster.coordinator(GROUP, TOPIC)
        coordinator.is_silent = True
        (await anext(reading)).ack()
        with pytest.raises(DeadlineExceeded, match=r"did not take a commit within 0\.05 s"):
            await subscriber.commit(timeout=0.05)
        coordinator.is_silent = False
        coordinator.break_streams()
        for _ in range(8):
            (await anext(reading)).ack()
        await subscriber.commit()
        assert coordinator.committed == {0: 10}
        assert coordinator.group.record.generation == 1


async def test_a_member_that_was_gone_too_long_goes_on_with_what_it_gets(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client, member="zombie") as subscriber:
        out = await anext(aiter(subscriber))
        coordinator = cluster.coordinator(GROUP, TOPIC)
        dead, cluster.dead = cluster.dead, set(cluster.brokers)
        coordinator.break_streams()
        await until(lambda: not coordinator.group.members)
        cluster.dead = dead
        await until(lambda: "zombie" in coordinator.group.members)
        out.ack()
        again = await anext(aiter(subscriber))
        assert (again.offset, again.deliveries) == (0, 2)
        again.ack()
        await subscriber.commit()
        assert coordinator.committed == {0: 1}


async def test_delivery_waits_for_acknowledgements(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    await publish(client, 0, 100)
    with caplog.at_level(logging.WARNING):
        async with member(client, max_unacked=10) as subscriber:
            reading = aiter(subscriber)
            out = [await anext(reading) for _ in range(10)]
            more = asyncio.create_task(anext(reading))
            await asyncio.sleep(0.05)
            assert not more.done()
            for message in out:
                message.ack()
            assert (await more).value is not None
    assert [r.message for r in caplog.records if "delivery waits" in r.message] != []


async def test_pause_and_resume(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client, timeout=0.5) as subscriber:
        reading = aiter(subscriber)
        assert number(await anext(reading)) == 0
        subscriber.pause()
        more = asyncio.create_task(anext(reading))
        await asyncio.sleep(1.0)  # longer than the idle limit
        assert not more.done()
        subscriber.resume()
        assert number(await more) == 1


async def test_a_handler_may_end_it(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client) as subscriber:

        async def handler(message: Message) -> None:
            if message.offset == 4:
                await subscriber.close()

        await subscriber.handle(handler)
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: 5}


async def test_what_can_not_be_is_refused(client: Client) -> None:
    with pytest.raises(NotFound):
        await member(client)
    await client.admin.create_topic(TOPIC)
    for options, why in (
        ({"group": "a/b"}, "group 'a/b' is not allowed"),
        ({"member": ""}, "member '' is not allowed"),
        ({"max_unacked": 0}, "max_unacked=0 is below 1"),
        ({"max_deliveries": 0}, "max_deliveries=0 is below 1"),
        ({"dead_letter": "a/b"}, "dead_letter= needs max_deliveries="),
        ({"group": None, "auto_ack": True}, "auto_ack= needs a group"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            await member(client, **options)  # type: ignore[arg-type]
    async with member(client) as subscriber:
        with pytest.raises(InvalidArgument, match="concurrency=0 is below 1"):
            await subscriber.handle(print, concurrency=0)
        with pytest.raises(InvalidArgument, match="delay=-1 is not allowed"):
            subscriber.nack(Message(Origin(str(TOPIC), 0, None, subscriber.payloads), 0, 0, None, b"", None), delay=-1)


async def test_nobody_to_join(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    for broker in cluster.brokers.values():
        broker.join_group = _unavailable  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable, match=r"could not join group billing of shop/orders within 0\.5 s"):
        await member(client)


async def _unavailable(requests: object) -> object:
    raise Unavailable("no leader")
    yield


async def test_a_limit_ends_handling_when_all_have_returned(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 20, keys=3)
    handled: list[int] = []
    running: list[bytes | None] = []
    most = 0

    async def handler(message: Message) -> None:
        nonlocal most
        assert message.key not in running
        running.append(message.key)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.remove(message.key)
        handled.append(number(message))

    async with member(client, limit=8) as subscriber:
        await subscriber.handle(handler, concurrency=3)
    assert (len(handled), most) == (8, 3)
    async with member(client, stop_at="latest") as subscriber:
        await subscriber.handle(handler)
    assert sorted(handled) == list(range(20))


async def test_a_record_that_kills_its_readers_is_given_up(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 3)
    for _ in range(2):  # twins that are fenced during the first record, like processes that crash on it
        async with member(client, member="me") as victim:
            assert (await anext(aiter(victim))).offset == 0
            async with member(client, member="me") as last:
                pass
            assert last.is_closed
    coordinator = cluster.coordinator(GROUP, TOPIC)
    crashes = coordinator.group.record.crashes[0]
    async with member(client, max_deliveries=crashes, stop_at="latest") as subscriber:
        got = []
        async for message in subscriber:
            got.append(message.offset)
            message.ack()
    assert got == [1, 2]
    async with client.subscriber(f"{TOPIC}.{GROUP}.dead-letter", start="earliest", stop_at="latest") as letters:
        (letter,) = [message async for message in letters]
    assert letter.headers["dead-letter-reason"] == b"delivered %d times and not acknowledged" % crashes


async def test_a_sealed_segment_that_is_finished_is_committed_at_once(cluster: FakeCluster) -> None:
    config = ClientConfig(group_commit_interval_s=1_000.0)
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=config) as client:
        await client.admin.create_topic(TOPIC)
        await publish(client, 0, 10)
        async with member(client) as subscriber:
            reading = aiter(subscriber)
            (await anext(reading)).ack()
            await subscriber.commit()
            cluster.seal(TOPIC, 0)
            await publish(client, 10, 1)
            for _ in range(9):
                (await anext(reading)).ack()
            message = await asyncio.wait_for(anext(reading), 5)
            assert (message.segment, number(message)) == (1, 10)


async def test_delivery_waits_for_bytes_too(cluster: FakeCluster) -> None:
    config = ClientConfig(group_unacked_bytes_max=50_000, batch_bytes=10_000)
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=config) as client:
        await client.admin.create_topic(TOPIC)
        async with client.publisher(TOPIC) as publisher:
            for _ in range(200):
                await publisher.send(bytes(1_000))
        async with member(client, timeout=0.5) as subscriber:
            out = await _collect(subscriber)
        assert 40 <= len(out) <= 80


async def test_retention_that_overtakes_a_member_does_not_end_it(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client, 0, 10)
    async with member(client) as subscriber:
        reading = aiter(subscriber)
        for _ in range(10):
            (await anext(reading)).ack()
        stored = cluster.stored(TOPIC)
        stored.frames, stored.headers, stored.ends, stored.end = [], [], [], 20
        cluster.drop_connections()
        await publish(client, 20, 1)
        message = await asyncio.wait_for(anext(reading), 5)
        assert (message.offset, number(message)) == (20, 20)
        message.ack()
        await subscriber.commit()
        assert cluster.coordinator(GROUP, TOPIC).committed == {0: 21}


async def test_a_deleted_topic_ends_in_not_found(client: Client, cluster: FakeCluster) -> None:
    await client.admin.create_topic(TOPIC)
    async with member(client) as subscriber:
        await client.admin.delete_topic(TOPIC)
        with pytest.raises(NotFound, match="there is no topic"):
            await _collect(subscriber)
