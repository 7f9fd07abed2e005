"""Publishing under every fault of network and cluster."""

import asyncio
import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq.client.client import Client
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.publish.futures import RecordFuture
from seaweedmq.client.publish.publish_stream import UPDATE_SILENCE_S
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.publish.receipts import Receipt
from seaweedmq.codec.frame import split_frames
from seaweedmq.errors import Closed, DeadlineExceeded, InvalidArgument, NotFound, OutOfRange, Unavailable
from seaweedmq.model.messages.calls import AwaitTopics
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.ring import KeyRange, slot_of
from seaweedmq.model.topic import TopicName
from tests.client.conftest import NOW_US, QUICK
from tests.client.fake_broker import FakeBroker, FakeCluster
from tests.client.publish.troubles import stored

TOPIC = "shop/orders"


def kept(cluster: FakeCluster, topic: str = TOPIC) -> dict[tuple[int, int], tuple[bytes | None, bytes]]:
    """Return all stored records, (segment, offset) -> (key, value)."""
    found = stored(cluster, TopicName.parse(topic))
    return {(segment, offset): (key, value) for offset, segment, key, value in found}


def check_story(cluster: FakeCluster, sent: dict[bytes, tuple[bytes, Receipt]]) -> None:
    """Check that every record is stored once, where its receipt says, and those of one key in order."""
    records = kept(cluster)
    assert sorted(value for _, value in records.values()) == sorted(sent)
    for value, (key, receipt) in sent.items():
        if receipt.offset is not None:
            assert records[receipt.segment, receipt.offset] == (key, value)
    segments = cluster.segments[TopicName.parse(TOPIC)]
    by_key: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for (segment, offset), (kept_key, value) in records.items():
        assert kept_key is not None
        assert slot_of(kept_key) in segments[segment].meta.slots
        by_key[kept_key].append((offset, int(value.split(b"/")[1])))
    for path in by_key.values():
        numbers = [number for _, number in sorted(path)]
        assert numbers == sorted(numbers)


async def send_all(
    publisher: Publisher, first: int, count: int, keys: int = 40
) -> list[tuple[bytes, bytes, RecordFuture]]:
    out = []
    for number in range(first, first + count):
        key = b"key-%d" % (number * 7919 % keys)
        value = b"value/%d" % number
        out.append((key, value, await publisher.send(value, key=key)))
    return out


async def receipts(sent: list[tuple[bytes, bytes, RecordFuture]]) -> dict[bytes, tuple[bytes, Receipt]]:
    return {value: (key, await future) for key, value, future in sent}


async def test_publishers_have_ids_that_are_none_of_kafkas(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    for value in (b"a", b"b"):
        async with client.publisher(TOPIC) as publisher:
            await (await publisher.send(value, key=b"k"))
    frames = [f for stored in cluster.segments[TopicName.parse(TOPIC)].values() for f in stored.frames]
    ids = {split.header.producer_id for data in frames for split in split_frames(data)}
    assert len(ids) == 2
    assert all(number & NATIVE_PRODUCER_BIT for number in ids)


async def test_who_sends_seldom_does_not_wait_and_who_sends_again_gathers_for_linger(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC, linger_s=30.0) as publisher:
        async with asyncio.timeout(5):
            await (await publisher.send(b"seldom"))
        gathered = [await publisher.send(value) for value in (b"again", b"and", b"again")]
        await asyncio.sleep(0.05)
        assert not any(sent.done() for sent in gathered)
        await publisher.flush()
        assert len(cluster.stored(TOPIC, 0).frames) == 2


async def test_headers_and_timestamps_travel_with_the_records_that_have_them(client: Client) -> None:
    """A program that copies messages passes ``header_pairs`` to the copy: repeated ones arrive as they were."""
    pairs = [("hop", b"1"), ("id", None), ("hop", b"2")]
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await publisher.send(b"plain")
        await publisher.send(b"full", key=b"k", headers={"a": b"1"}, timestamp=1_000_000)
        await publisher.send(b"late", headers=pairs, timestamp=2_000_000)
        with pytest.raises(InvalidArgument, match="they must map str to bytes, or be pairs"):
            await publisher.send(b"v", headers=["hop"])  # type: ignore[list-item]
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        plain, full, late = [message async for message in subscriber]
    assert (plain.value, plain.key, plain.headers, plain.timestamp_us) == (b"plain", None, {}, NOW_US)
    assert (full.value, full.key, full.headers, full.timestamp_us) == (b"full", b"k", {"a": b"1"}, 1_000_000)
    assert (late.value, late.key, late.header_pairs, late.timestamp_us) == (b"late", None, pairs, 2_000_000)


async def test_lost_acknowledgements_and_broken_streams_store_nothing_twice(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    sent = []
    async with client.publisher(TOPIC, linger_s=0.0) as publisher:
        for round_ in range(30):
            cluster.lose_acks = round_ % 3
            sent += await send_all(publisher, round_ * 20, 20)
            await asyncio.sleep(0.001)
            if round_ % 5 == 0:
                cluster.drop_connections()
    check_story(cluster, await receipts(sent))
    assert cluster.repeated_frames > 0


@pytest.mark.parametrize("seed", range(8))
async def test_order_and_exactly_once_through_splits_merges_and_dead_brokers(
    cluster: FakeCluster, client: Client, seed: int
) -> None:
    rng = random.Random(seed)
    await client.admin.create_topic(TOPIC, segments=2)
    sent: list[tuple[bytes, bytes, RecordFuture]] = []
    number = 0
    async with client.publisher(TOPIC, linger_s=0.0, batch_bytes=2_000) as publisher:
        for _ in range(25):
            count = rng.randrange(1, 80)
            sent += await send_all(publisher, number, count)
            number += count
            opened = sorted(
                (s.meta for s in cluster.segments[TopicName.parse(TOPIC)].values() if s.meta.is_open),
                key=lambda s: s.slots,
            )
            at = rng.randrange(len(opened))
            match rng.choice(["calm", "drop", "lose", "hold", "split", "merge", "move"]):
                case "drop":
                    cluster.drop_connections()
                case "lose":
                    cluster.lose_acks = 2
                case "hold":
                    cluster.holds_acks = True
                case "split":
                    slots = opened[at].slots
                    cluster.seal(TOPIC, opened[at].id, (slots.lo + slots.width // 3,))
                case "merge" if at + 1 < len(opened):
                    cluster.merge(TOPIC, opened[at].id, opened[at + 1].id)
                case "move":
                    cluster.seal(TOPIC, opened[at].id)
            await asyncio.sleep(rng.choice([0, 0.001, 0.003]))
            cluster.release_acks()
    check_story(cluster, await receipts(sent))


async def test_the_slower_side_of_a_merge_follows_the_faster_one_past_segments_that_are_sealed_since(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC, segments=2)
    async with client.publisher(TOPIC, batch_bytes=1) as publisher:  # every record in a frame of its own
        sent = await send_all(publisher, 0, 10)
        await publisher.flush()
        cluster.silent.add(1)
        merged = cluster.merge(TOPIC, 0, 1)
        more = await send_all(publisher, 10, 100)
        faster = sum(slot_of(key) in cluster.segments[TopicName.parse(TOPIC)][0].meta.slots for key, _, _ in more)
        await cluster.until_stored(TOPIC, cluster.stored(TOPIC, merged).meta.start_offset + faster, merged)
        (moved,) = cluster.seal(TOPIC, merged)
        again = await send_all(publisher, 110, 100)
        await cluster.until_stored(TOPIC, cluster.stored(TOPIC, moved).meta.start_offset + 1, moved)
        cluster.silent.clear()
        cluster.wake()
    check_story(cluster, await receipts(sent + more + again))


async def test_a_receipt_goes_without_offset_only_if_nobody_knows_it(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.recent_known = False
    async with client.publisher(TOPIC) as publisher:
        cluster.holds_acks = True
        sent = await send_all(publisher, 0, 5)
        await cluster.until_stored(TOPIC, 5)
        cluster.kill("b-0")
        cluster.seal(TOPIC, 0)
        cluster.release_acks()
        outcome = await receipts(sent)
    assert {receipt for _, receipt in outcome.values()} == {Receipt(0, None)}
    check_story(cluster, outcome)


async def test_a_refused_record_fails_with_its_frame_and_stops_no_other(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.refuse_value = b"poison"
    async with client.publisher(TOPIC, batch_bytes=1) as publisher:  # every record in a frame of its own
        sent = [await publisher.send(b"poison" if i == 7 else b"value/%d" % i) for i in range(20)]
        with pytest.raises(InvalidArgument, match="poison"):
            await publisher.flush()
        assert [i for i, future in enumerate(sent) if future.exception() is not None] == [7]
    assert len(kept(cluster)) == 19


async def test_a_key_over_the_limit_fails_alone_and_names_size_and_limit(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.frame_bytes_max = 100_000
    async with client.publisher(TOPIC) as publisher:
        before = await publisher.send(b"small")
        huge = await publisher.send(b"small", key=bytes(200_000))
        after = await publisher.send(b"small")
        assert (await before, await after) == (Receipt(0, 0), Receipt(0, 1))
        with pytest.raises(InvalidArgument, match=r"frame of 200\d\d\d bytes is over the limit of 100000"):
            await huge
        with pytest.raises(InvalidArgument, match="200000 bytes of key and headers is over the limit of 98"):
            await (await publisher.send(b"small", key=bytes(200_000)))
        with pytest.raises(InvalidArgument, match="over the limit"):
            await publisher.flush()
        await publisher.flush()  # the first flush has reported it


async def test_a_value_over_the_limit_is_uploaded(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.frame_bytes_max = 100_000
    async with client.publisher(TOPIC) as publisher:
        before = await publisher.send(b"1", key=b"k")
        await before  # the broker has reported its limit
        large = await publisher.send(b"2" * 200_000, key=b"k", headers={"h": b"v"})
        after = await publisher.send(b"3", key=b"k")
        await publisher.flush()
        assert [await each for each in (before, large, after)] == [Receipt(0, offset) for offset in range(3)]
    assert list(cluster.payloads.values()) == [b"2" * 200_000]


async def test_brokers_say_how_long_a_record_may_be(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.frame_bytes_max = 24 << 20
    async with client.publisher(TOPIC) as publisher:
        assert await (await publisher.send(bytes(20 << 20))) == Receipt(0, 0)
        with pytest.raises(InvalidArgument, match="shorten them, or raise frame_bytes_max on every broker"):
            await (await publisher.send(b"", key=bytes(28 << 20)))


async def test_every_lane_cuts_again_what_is_longer_than_its_broker_takes(cluster: FakeCluster, client: Client) -> None:
    """The client cuts frames for both segments before any broker has reported its limit, and one reports it first."""
    await client.admin.create_topic(TOPIC, segments=2)
    values = [b"x"] * 60_000 + [bytes(3 << 20)] * 16
    keys = [b"key-%d" % (number % 40) for number in range(len(values))]
    async with client.publisher(TOPIC) as publisher:
        receipt = await (await publisher.send_table(pa.table({"_value": values, "_key": keys})))
    assert receipt.records == len(values)
    assert {r.segment for r in receipt.ranges} == {0, 1}
    for segment in (0, 1):
        longest = max(len(frame) for frame in cluster.stored(TOPIC, segment).frames)
        assert 3 << 20 < longest <= cluster.frame_bytes_max


async def test_wrong_types_are_refused_at_once(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        with pytest.raises(InvalidArgument, match="the value is str"):
            await publisher.send("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="the key is int"):
            await publisher.send(b"", key=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="header 'a' is str"):
            await publisher.send(b"", headers={"a": "b"})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="neither a datetime"):
            await publisher.send(b"", timestamp=2**63)
        assert await (await publisher.send(memoryview(b"ok"))) == Receipt(0, 0)  # type: ignore[arg-type]


async def test_memory_is_bounded_while_nothing_is_acknowledged(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC, buffer_bytes_max=100_000, batch_bytes=10_000) as publisher:
        cluster.holds_acks = True
        count = 0

        async def send_on() -> None:
            nonlocal count
            while True:
                await publisher.send(bytes(1_000))
                count += 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_on(), 0.2)
        assert 80 <= count <= 100
        assert publisher.buffer.room.used_bytes <= 100_000
        cluster.release_acks()
        await publisher.send(bytes(1_000))
    assert len(kept(cluster)) == count + 1


async def test_what_is_not_acknowledged_in_time_fails_and_neither_later_records_nor_the_broker_suffer(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = []
    answer_timeout_s = Cluster.answer_timeout_s

    def spied(self: Cluster, address: str) -> float:
        patience.append(answer_timeout_s(self, address))
        return patience[-1]

    monkeypatch.setattr(Cluster, "answer_timeout_s", spied)
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC, delivery_timeout_s=0.2) as publisher:
        cluster.holds_acks = True
        late = await publisher.send(b"late")
        with pytest.raises(DeadlineExceeded, match="may be stored nevertheless"):
            await late
        with pytest.raises(DeadlineExceeded):
            await publisher.flush()
        cluster.release_acks()
        assert (await (await publisher.send(b"next"))).offset == 1  # the late one was stored
    assert len(kept(cluster)) == 2
    assert patience == [QUICK.rpc_timeout_s] * 2, "the broker is not avoided"


async def test_flush_in_vain_says_so_and_goes_on_sending(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        cluster.holds_acks = True
        sent = await publisher.send(b"x")
        with pytest.raises(DeadlineExceeded, match=r"1 batches are not acknowledged after 0.05 s"):
            await publisher.flush(0.05)
        cluster.release_acks()
        await publisher.flush(5)
        assert sent.done()


async def test_a_deleted_or_unknown_topic_and_a_closed_client_fail(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    publisher = await client.publisher(TOPIC)
    await (await publisher.send(b"x"))
    await client.admin.delete_topic(TOPIC)
    with pytest.raises(NotFound, match="there is no topic shop/orders"):
        await (await publisher.send(b"x"))
    await publisher.close()
    with pytest.raises(NotFound, match="there is no topic no/such"):
        await client.publisher("no/such")
    with pytest.raises(InvalidArgument, match="NAMESPACE/NAME"):
        client.publisher("nonsense")
    await client.close()
    with pytest.raises(Closed):
        await client.publisher(TOPIC)


async def test_closing_delivers_in_time_or_fails_and_takes_nothing_more(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    publisher = await client.publisher(TOPIC)
    sent = await publisher.send(b"x")
    await asyncio.gather(publisher.close(), publisher.close())
    assert sent.result() == Receipt(0, 0)
    with pytest.raises(Closed, match="publisher of shop/orders is closed"):
        await publisher.send(b"y")
    cluster.holds_acks = True
    publisher = await client.publisher(TOPIC)
    sent = await publisher.send(b"x")
    with pytest.raises(DeadlineExceeded):
        await publisher.close(timeout=0.05)
    with pytest.raises(Closed, match="closed before this was acknowledged"):
        await sent


async def test_a_cluster_that_is_gone_is_named_in_the_error(cluster: FakeCluster, client: Client) -> None:
    for broker in list(cluster.brokers):
        cluster.kill(broker)
    with pytest.raises(Unavailable, match=r"fake:9000: .*refused.*fake:9001: .*refused|fake:9001.*fake:9000"):
        await client.admin.list_topics()


# --- what was sealed long ago
async def test_a_publisher_goes_on_where_its_segment_was_pruned_while_it_was_idle(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"first", key=b"k"))
        (second,) = cluster.seal(TOPIC, 0)
        cluster.drop_connections()
        (third,) = cluster.seal(TOPIC, second)
        cluster.prune(TOPIC, 0, second)
        receipt = await (await publisher.send(b"again", key=b"k"))
        assert receipt.segment == third
    assert len(cluster.stored(TOPIC, third).frames) == 1


@pytest.mark.parametrize("is_pruned", [False, True])
async def test_what_waits_while_no_segment_takes_its_keys_is_sent_later(
    cluster: FakeCluster, client: Client, is_pruned: bool
) -> None:
    """The metadata is in this state only briefly."""
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"first", key=b"k"))
        (second,) = cluster.seal(TOPIC, 0)
        taker = cluster.stored(TOPIC, second)
        whole = taker.meta
        taker.meta = replace(whole, slots=KeyRange(0, 1))
        if is_pruned:
            cluster.prune(TOPIC, 0)
        cluster.drop_connections()
        sent = await publisher.send(b"again", key=b"k")
        await asyncio.sleep(0.05)
        assert not sent.done()
        taker.meta = whole
        assert await asyncio.wait_for(sent, 5) == Receipt(second, 1)


async def test_what_may_be_stored_in_a_segment_that_was_pruned_is_not_sent_again(
    cluster: FakeCluster, client: Client
) -> None:
    """The metadata no longer shows whether it was."""
    await client.admin.create_topic(TOPIC)
    cluster.in_flight_frames_max = 3
    async with client.publisher(TOPIC, batch_bytes=1) as publisher:  # every record in a frame of its own
        cluster.holds_acks = True
        sent = await send_all(publisher, 0, 5)
        await cluster.until_stored(TOPIC, 3)
        (second,) = cluster.seal(TOPIC, 0)
        cluster.prune(TOPIC, 0)
        cluster.drop_connections()
        cluster.release_acks()
        with pytest.raises(OutOfRange, match="may have been stored"):
            await publisher.flush()
        failed = [future.exception() is not None for _, _, future in sent]
        assert failed == [True] * 3 + [False] * 2
    assert len(cluster.stored(TOPIC, second).frames) == 2


async def test_a_publisher_goes_on_where_the_successors_of_its_segment_were_pruned(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"first", key=b"k"))
        second = cluster.seal(TOPIC, 0, (100,))
        opened = [cluster.seal(TOPIC, number)[0] for number in second]
        cluster.prune(TOPIC, *second)
        receipts = [await (await publisher.send(b"again", key=b"k%d" % n)) for n in range(50)]
        assert {receipt.segment for receipt in receipts} <= set(opened)


async def test_a_publisher_asks_for_open_segments_and_its_own_however_many_were_sealed(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    last = 0
    for _ in range(50):
        (last,) = cluster.seal(TOPIC, last)
    cluster.asked.clear()
    async with client.publisher(TOPIC) as publisher:
        for _ in range(10):
            assert (await (await publisher.send(b"x"))).segment == last
            (last,) = cluster.seal(TOPIC, last)
    assert cluster.asked
    assert all(which.sealed_above is None and len(which.ids) <= 3 for which in cluster.asked)


async def test_a_publisher_whose_broker_is_gone_waits_to_be_told_where_to_go_on(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"first"))
        cluster.kill(cluster.stored(TOPIC).meta.primary)
        cluster.asked.clear()
        sent = await publisher.send(b"second")
        await asyncio.sleep(5)
        assert not sent.done()
        assert cluster.asked == [], "an update of the topic will arrive without a call"
        (second,) = cluster.seal(TOPIC, 0)
        began = asyncio.get_running_loop().time()
        assert (await sent).segment == second
        assert asyncio.get_running_loop().time() - began < 0.2


@pytest.mark.parametrize("frozen_s", [0.2, 0.7, 2.0, 4.0, 10.0])
async def test_a_publisher_waits_for_a_frozen_broker_no_longer_than_until_its_segment_goes_on_elsewhere(
    cluster: FakeCluster, client: Client, frozen_s: float
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"first"))
        cluster.freeze(cluster.stored(TOPIC).meta.primary)
        sent = await publisher.send(b"second")
        await asyncio.sleep(frozen_s)
        assert not sent.done()
        (second,) = cluster.seal(TOPIC, 0)
        began = asyncio.get_running_loop().time()
        assert (await sent).segment == second
        assert asyncio.get_running_loop().time() - began < 0.1
    assert [value for _, value in kept(cluster).values()] == [b"first", b"second"]


async def test_a_publisher_asks_where_to_go_on_if_nobody_tells(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = FakeBroker.call

    async def silent(broker: FakeBroker, request: Any) -> Any:
        if isinstance(request, AwaitTopics):
            raise Unavailable("not now")
        return await call(broker, request)

    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"first"))
        monkeypatch.setattr(FakeBroker, "call", silent)
        cluster.kill(cluster.stored(TOPIC).meta.primary)
        sent = await publisher.send(b"second")
        await asyncio.sleep(0.1)
        (second,) = cluster.seal(TOPIC, 0)
        assert (await asyncio.wait_for(sent, 2 * UPDATE_SILENCE_S)).segment == second


async def test_a_publisher_that_closes_leaves_no_question_behind(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(broker: FakeBroker, request: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    await client.admin.create_topic(TOPIC)
    here = asyncio.all_tasks()
    publisher = await client.publisher(TOPIC)
    cluster.refuse = Unavailable("not now")
    monkeypatch.setattr(FakeBroker, "call", never)
    sent = await publisher.send(b"x")
    await asked.wait()
    with pytest.raises(DeadlineExceeded):
        await publisher.close(timeout=0.1)
    with pytest.raises(Closed):
        await sent
    assert asyncio.all_tasks() == here
