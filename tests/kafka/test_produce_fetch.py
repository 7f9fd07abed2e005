"""Records through the Kafka gateway and back: from memory, logs and tables, across moves and deaths."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from seaweedmq.broker.local import LocalPartition
from seaweedmq.codec.frame import SCHEMA_VERSION_SHIFT
from seaweedmq.codec.kafka.header import HEADER_BYTES as BATCH_HEADER_BYTES
from seaweedmq.codec.payload.batch import encode_frame, payload_schema
from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.errors import StaleMetadata, Unavailable
from seaweedmq.kafka.data import fetch
from seaweedmq.kafka.data.partition_reader import PartitionReader
from seaweedmq.kafka.metadata.partition_lookup import LeaderHint, PartitionLookup
from seaweedmq.kafka.wire import messages
from seaweedmq.kafka.wire.messages import API, Request
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.files import FileKind
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.calls import DeleteTopic, RaiseLowWatermark, SealSegment
from seaweedmq.model.messages.publish import PublishFrames
from seaweedmq.model.topic import Scaling, TopicName
from seaweedmq.runtime.later import Later
from seaweedmq.runtime.log_once import REJECTIONS_PAUSE_S
from seaweedmq.runtime.turns import Turns
from tests.broker.testbed import Testbed
from tests.doubles.memory_store import StorageOp
from tests.integration.kafka.raw import PRODUCE, fetch_fields, fetched, produce_fields
from tests.kafka.in_process_client import (
    NO_PRODUCER,
    InProcessClient,
    batch,
    in_process_clients,
    more_in_process_clients,
    records_of,
)
from tests.support.kafka_batches import GZIP

ORDERS = TopicName("kafka", "orders")
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
"""Marks of ListOffsets: the first offset in logs, and the last offset in tables."""


async def topic(testbed: Testbed, client: InProcessClient, partitions: int = 1, **settings: Any) -> None:
    await testbed.topic(client.host, ORDERS, partitions=partitions, **settings)
    await testbed.until(lambda: len(client.host.inspect.view.open_of(ORDERS)) == partitions)


async def leader_of(testbed: Testbed, opened: list[InProcessClient], partition: int = 0) -> InProcessClient:
    """Return the client of the partition's primary."""

    def primary() -> str:
        open_segments = testbed.leader().inspect.view.open_of(ORDERS).values()
        return next((s.primary for s in open_segments if s.slots.lo == partition), "")

    await testbed.until(lambda: any(d.host.lives and d.host.broker.id == primary() for d in opened))
    return next(d for d in opened if d.host.broker.id == primary())


async def single(testbed: Testbed, partitions: int = 1, **settings: Any) -> InProcessClient:
    [client] = await in_process_clients(testbed)
    await topic(testbed, client, partitions, **settings)
    return client


async def replicated(testbed: Testbed, brokers: int, **config: Any) -> tuple[InProcessClient, list[InProcessClient]]:
    """Return the client of the leader of a topic with two replicas, and all clients."""
    opened = await in_process_clients(testbed, brokers, **config)
    await topic(testbed, opened[0], replicas=2)
    return await leader_of(testbed, opened), opened


def replicas_of(client: InProcessClient) -> int:
    """Return the number of replicas of the open segment in the broker's view; 0 without one."""
    return sum(len(segment.replicas) for segment in client.host.inspect.view.open_of(ORDERS).values())


async def test_a_reply_that_nobody_waits_for_any_more_may_be_dropped(testbed: Testbed) -> None:
    client = await single(testbed)
    for acks in (0, -1):
        request = client.request(API.PRODUCE, PRODUCE, **produce_fields("orders", 0, batch(b"a"), acks=acks))
        waiting = await testbed.network.spawn(client.host.owner, client.begin(request))
        assert isinstance(waiting, Later), "a coroutine that is never awaited leaves a warning"


async def test_what_is_produced_is_fetched_with_its_offsets(testbed: Testbed) -> None:
    client = await single(testbed, partitions=2)
    for number in range(3):
        said = await client.produce("orders", 1, batch(b"a%d" % number, b"b%d" % number))
        assert (said.error_code, said.base_offset) == (Code.NONE, 2 * number), said.error_message
    found = await client.fetch("orders", 1, 0)
    assert (found.error_code, found.high_watermark) == (Code.NONE, 6)
    assert records_of(found.records) == [
        (0, None, b"a0"), (1, None, b"b0"), (2, None, b"a1"), (3, None, b"b1"), (4, None, b"a2"), (5, None, b"b2"),
    ]  # fmt: skip
    other = await client.fetch("orders", 0, 0)
    assert (other.high_watermark, other.records or b"") == (0, b"")
    for epoch, code in ((1, Code.NONE), (0, Code.FENCED_LEADER_EPOCH), (2, Code.UNKNOWN_LEADER_EPOCH), (-1, Code.NONE)):
        assert (await client.fetch("orders", 1, 0, epoch=epoch)).error_code == code
    for end_of_time in (253_402_300_800_000, 2**63 - 1):
        said = await client.list_offset("orders", 1, end_of_time)
        assert (said.error_code, said.offset, said.timestamp) == (Code.NONE, -1, -1)
    await client.host.api.call(RaiseLowWatermark(ORDERS, {1: 4}))
    await testbed.until(lambda: client.host.inspect.view.topics[ORDERS].low_watermarks)
    assert (await client.produce("orders", 1, batch(b"a"))).log_start_offset == 4


async def test_a_fetch_ends_at_once_where_there_is_more_than_its_reply_may_hold(testbed: Testbed) -> None:
    """Whole batches stop short of the limit, and more than ``bytes_max`` never fits."""
    client = await single(testbed)
    for _ in range(8):
        await client.produce("orders", 0, batch(b"x" * 2_000))
    began = testbed.loop.time()
    for bytes_max in (100_000, 3_000):
        found = await client.fetch(
            "orders", 0, 0, wait_ms=60_000, min_bytes=10_000, partition_bytes_max=10_000, bytes_max=bytes_max
        )
        assert len(records_of(found.records)) == min(bytes_max, 10_000) // 2_100
    assert testbed.loop.time() - began < 1
    client.host.broker.ports.partitions.leads(ORDERS, 0).open_segment.evict(1 << 30)
    assert records_of((await client.fetch("orders", 0, 7, wait_ms=60_000, min_bytes=10_000)).records)
    assert testbed.loop.time() - began < 2, "what is in files already is not waited for"


async def test_fetches_that_wait_for_much_read_once(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await single(testbed)
    reads, read = list[int](), PartitionReader.read

    async def counted(self: PartitionReader, partition: Any, offset: int, *rest: Any) -> Any:
        reads.append(offset)
        return await read(self, partition, offset, *rest)

    monkeypatch.setattr(PartitionReader, "read", counted)
    waiting = [
        asyncio.create_task(client.fetch("orders", 0, 0, wait_ms=60_000, min_bytes=18 * 1_100)) for _ in range(3)
    ]
    for _ in range(18):
        await client.produce("orders", 0, batch(b"x" * 1_000))
    assert not any(task.done() for task in waiting)
    await client.produce("orders", 0, batch(b"x" * 1_000))
    assert [len(records_of(found.records)) for found in await asyncio.gather(*waiting)] == [19] * 3
    assert reads == [0] * 3


async def test_consumers_that_one_commit_wakes_read_one_after_another(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await single(testbed)
    turns, events, read = Turns(testbed.loop.time), list[str](), PartitionReader.read

    def noted(work: Callable[[], None]) -> None:
        events.append("waits for its turn")
        asyncio.get_running_loop().call_later(1, work)

    async def counted(self: PartitionReader, partition: Any, offset: int, *rest: Any) -> Any:
        events.append("reads")
        return await read(self, partition, offset, *rest)

    def with_turn(self: InProcessClient, *args: Any, **fields: Any) -> Request:
        return replace(request(self, *args, **fields), turn=turns.begin())

    request = InProcessClient.request
    monkeypatch.setattr(turns, "call_next", noted)
    monkeypatch.setattr(PartitionReader, "read", counted)
    monkeypatch.setattr(InProcessClient, "request", with_turn)
    waiting = [asyncio.create_task(client.fetch("orders", 0, 0, wait_ms=60_000)) for _ in range(3)]
    await asyncio.sleep(5)
    assert events == []
    await client.produce("orders", 0, batch(b"late"))
    await asyncio.gather(*waiting)
    assert events == ["waits for its turn"] * 3 + ["reads"] * 3


async def test_a_partition_that_does_not_exist_does_not_end_the_wait_of_the_others(testbed: Testbed) -> None:
    """Otherwise a consumer of a deleted topic would send thousands of requests a second."""
    client = await single(testbed, partitions=2)

    async def fetch(*partitions: int) -> dict[int, Code]:
        topics = [fetched("orders", *partitions)]
        reply = await client.ask(API.FETCH, 12, **fetch_fields("orders", 0, 0, topics=topics, max_wait_ms=5_000))
        return {one.partition_index: Code(one.error_code) for one in reply.responses[0].partitions}

    began = testbed.loop.time()
    assert await fetch(0, 7) == {0: Code.NONE, 7: Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert testbed.loop.time() - began == pytest.approx(5, abs=0.1)
    assert await fetch(7) == {7: Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert testbed.loop.time() - began == pytest.approx(5, abs=0.1), "as Apache Kafka: there is nothing to wait for"
    waiting = asyncio.create_task(fetch(0, 1))
    await asyncio.sleep(1)
    await client.host.api.call(DeleteTopic(ORDERS))
    assert set((await waiting).values()) == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert testbed.loop.time() - began < 8


async def test_a_fetch_does_not_hold_up_what_the_client_asks_behind_it(testbed: Testbed) -> None:
    client = await single(testbed)
    await client.produce("orders", 0, batch(b"little"))
    began = testbed.loop.time()
    waiting = asyncio.create_task(client.fetch("orders", 0, 0, wait_ms=60_000, min_bytes=10_000))
    nowhere = asyncio.create_task(client.fetch("orders", 0, 1, wait_ms=60_000))
    await asyncio.sleep(5)
    assert not any(task.done() for task in (waiting, nowhere)), "another Fetch does not end the wait"
    await client.list_offset("orders", 0, timestamp=-1)
    assert records_of((await waiting).records) == [(0, None, b"little")]
    found = await nowhere
    assert (found.error_code, bytes(found.records)) == (Code.NONE, b"")
    assert testbed.loop.time() - began < 6
    await client.fetch("orders", 0, 1, wait_ms=5_000)
    assert testbed.loop.time() - began > 9, "an earlier request does not end the wait"


async def test_a_client_that_asks_elsewhere_is_told_the_leader_and_its_address(testbed: Testbed) -> None:
    """The leader is not named where it does not help."""
    leader, other = await leader_and_other(testbed)
    assert (await other.fetch("orders", 0, 0)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    topic_id = UUID(bytes=other.handlers.directory.find("orders").id)
    for api, version in ((API.PRODUCE, 10), (API.PRODUCE, 12), (API.PRODUCE, 13), (API.FETCH, 16), (API.FETCH, 17)):
        if api is API.PRODUCE:
            name = {"name": "orders"} if version < 13 else {"topic_id": topic_id}
            data = {**name, "partition_data": [{"index": number, "records": batch(b"x")} for number in (0, 7)]}
            reply = await other.ask(api, version, acks=-1, timeout_ms=1_000, topic_data=[data])
            said, nowhere = reply.responses[0].partition_responses
        else:
            fields = fetch_fields("orders", 0, 0, topics=[fetched(topic_id, 0, 7)])
            del fields["replica_id"]
            reply = await other.ask(api, version, **fields)
            said, nowhere = reply.responses[0].partitions
        assert said.error_code == Code.NOT_LEADER_OR_FOLLOWER, (api, version)
        assert_names(leader, said, reply)
        assert nowhere.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert nowhere.current_leader is None, (api, version)


async def leader_and_other(testbed: Testbed) -> tuple[InProcessClient, InProcessClient]:
    """Return clients of the leader of a topic's only partition, and of another broker that knows it."""
    opened = await in_process_clients(testbed, 2)
    await topic(testbed, opened[0])
    leader = await leader_of(testbed, opened)
    [other] = [d for d in opened if d is not leader]
    await testbed.until(lambda: other.host.inspect.view.open_of(ORDERS))
    return leader, other


def assert_names(leader: InProcessClient, partition: Any, reply: Any) -> None:
    """Check that a reply names the partition's leader with epoch and address (KIP-951)."""
    node = leader.handlers.nodes.of_broker(leader.host.broker.id)
    [segment] = leader.host.inspect.view.open_of(ORDERS).values()
    assert node is not None
    told = partition.current_leader
    assert (told.leader_id, told.leader_epoch) == (node.id, segment.id)
    [endpoint] = reply.node_endpoints
    address = leader.host.inspect.view.brokers[leader.host.broker.id].kafka_address
    assert (endpoint.node_id, f"{endpoint.host}:{endpoint.port}") == (node.id, address)


async def test_whoever_waited_for_long_hears_of_the_leader_of_now(testbed: Testbed) -> None:
    leader, opened = await replicated(testbed, 3)
    rest = [d for d in opened if d is not leader]
    before = rest[0].handlers.directory.find("orders")
    leader.host.kill()
    successor = await leader_of(testbed, rest)
    here = rest[0].host
    await testbed.until(
        lambda: [s.primary for s in here.inspect.view.open_of(ORDERS).values()] == [successor.host.broker.id]
    )
    [segment] = here.inspect.view.open_of(ORDERS).values()
    partitions = PartitionLookup(here.broker.ports.partitions, rest[0].handlers.directory)
    hint = partitions.hint(before, 0, StaleMetadata("the segment is sealed"))
    assert hint is not None
    assert hint == LeaderHint(rest[0].handlers.nodes.of_broker(successor.host.broker.id), segment.id)
    assert partitions.hint(before, 0, Unavailable("it has no leader")) is None, "this error gives no hint"
    await here.api.call(DeleteTopic(ORDERS))
    await testbed.until(lambda: ORDERS not in here.inspect.view.topics)
    assert partitions.hint(before, 0, StaleMetadata("the segment is sealed")) is None, "the topic has no leader"


async def test_an_idempotent_producer_goes_on_after_its_primary_died(testbed: Testbed) -> None:
    leader, opened = await replicated(testbed, 3)
    for sequence in range(5):
        said = await leader.produce("orders", 0, batch(b"%d" % sequence, producer=(1_000, 0, sequence)))
        assert said.error_code == Code.NONE, said.error_message
    leader.host.kill()
    rest = [d for d in opened if d is not leader]
    successor = await leader_of(testbed, rest)
    repeated = await successor.produce("orders", 0, batch(b"4", producer=(1_000, 0, 4)))
    assert repeated.error_code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER), repeated.error_message
    gap = await successor.produce("orders", 0, batch(b"6", producer=(1_000, 0, 6)))
    assert gap.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await successor.produce("orders", 0, batch(b"5", producer=(1_000, 0, 5)))).base_offset == 5
    found = records_of((await successor.fetch("orders", 0, 0)).records)
    assert [(offset, value) for offset, _, value in found] == [(i, b"%d" % i) for i in range(6)]


async def test_with_fewer_replicas_than_min_insync_replicas_only_acks_all_is_refused(testbed: Testbed) -> None:
    leader, other = await in_process_clients(testbed, 2)
    await topic(testbed, leader, replicas=2, configs=(("min.insync.replicas", "2"),))
    leader = await leader_of(testbed, opened := [leader, other])
    [other] = [client for client in opened if client is not leader]
    first, second = (batch(b"%d" % n, producer=(1_000, 0, n)) for n in (0, 1))
    assert (await leader.produce("orders", 0, first)).base_offset == 0
    other.host.kill()
    await testbed.until(lambda: replicas_of(leader) == 1)
    refused = await leader.produce("orders", 0, second)
    assert (refused.error_code, refused.base_offset) == (Code.NOT_ENOUGH_REPLICAS, -1)
    assert "has 1 replicas now, below min.insync.replicas=2" in refused.error_message
    quick = await leader.produce("orders", 0, batch(b"quick"), acks=1)
    assert (quick.error_code, quick.base_offset) == (Code.NONE, 1)

    [back] = await more_in_process_clients(testbed, 1)
    await testbed.until(lambda: replicas_of(leader) == 2)
    leader = await leader_of(testbed, [leader, back])
    stored = await leader.produce("orders", 0, second)
    assert (stored.error_code, stored.base_offset) == (Code.NONE, 2), stored.error_message
    found = records_of((await leader.fetch("orders", 0, 0)).records)
    assert [value for _, _, value in found] == [b"0", b"quick", b"1"]


@pytest.mark.parametrize("producer", [1_000, NO_PRODUCER])
async def test_what_is_not_kept_in_time_is_kept_later_and_the_retry_of_an_idempotent_producer_finds_it(
    testbed: Testbed, producer: int
) -> None:
    leader, opened = await replicated(testbed, 2, replica_timeout_s=60.0, lease_ttl_s=60.0)
    [follower] = [client for client in opened if client is not leader]
    sent = batch(b"once", producer=(producer, 0, 0))
    follower.host.freeze()
    began = testbed.loop.time()
    said = await leader.produce("orders", 0, sent, timeout_ms=200)
    assert (said.error_code, said.base_offset) == (Code.REQUEST_TIMED_OUT, -1)
    assert testbed.loop.time() - began == pytest.approx(0.2, abs=0.05)
    assert (await leader.fetch("orders", 0, 0)).high_watermark == 0
    again = asyncio.create_task(leader.produce("orders", 0, sent))
    await asyncio.sleep(5)
    assert not again.done(), "the first copy is there, and not kept yet"
    follower.host.thaw()
    said, is_copy = await again, producer == NO_PRODUCER
    assert (said.error_code, said.base_offset) == (Code.NONE, 1 if is_copy else 0)
    found = records_of((await leader.fetch("orders", 0, 0)).records)
    assert [value for _, _, value in found] == [b"once", b"once"] if is_copy else [b"once"]


async def test_what_finds_no_room_in_time_is_not_stored_and_what_comes_behind_it_waits_for_it(testbed: Testbed) -> None:
    leader, opened = await replicated(testbed, 2, replica_timeout_s=60.0, lease_ttl_s=60.0)
    [follower] = [client for client in opened if client is not leader]
    numbered = [batch(b"%d" % n + b"." * 60_000, producer=(1_000, 0, n)) for n in range(6)]
    follower.host.freeze()
    said = [await leader.produce("orders", 0, sent, timeout_ms=200) for sent in numbered[:5]]
    assert [one.error_code for one in said] == [Code.REQUEST_TIMED_OUT] * 5
    assert ["no memory" in one.error_message for one in said] == [False, False, False, False, True]
    follower.host.thaw()
    await testbed.until(lambda: leader.host.broker.ports.partitions.leads(ORDERS, 0).high_watermark == 4)
    assert (await leader.produce("orders", 0, numbered[5])).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert [(await leader.produce("orders", 0, sent)).base_offset for sent in numbered] == [0, 1, 2, 3, 4, 5]
    assert [offset for offset, _, _ in records_of((await leader.fetch("orders", 0, 0)).records)] == [0, 1, 2, 3, 4, 5]


async def test_what_fell_out_of_memory_comes_from_logs_and_tables_alike(testbed: Testbed) -> None:
    client = await single(testbed)
    sent = [b"%06d" % i + b"." * 500 for i in range(400)]
    for first in range(0, 400, 20):
        await client.produce("orders", 0, batch(*sent[first : first + 20]))

    async def all_of_them() -> list[bytes | None]:
        offset, values = 0, []
        while offset < 400:
            found = records_of((await client.fetch("orders", 0, offset, partition_bytes_max=30 * KIB)).records)
            values += [value for at, _, value in found if at >= offset]
            offset = found[-1][0] + 1
        return values

    async def marks() -> tuple[int, int]:
        told = [await client.list_offset("orders", 0, mark) for mark in (EARLIEST_LOCAL, LATEST_TIERED)]
        assert {one.error_code for one in told} == {Code.NONE}
        return told[0].offset, told[1].offset

    assert await all_of_them() == sent
    partition = client.host.broker.ports.partitions.leads(ORDERS, 0)
    partition.open_segment.evict(1 << 30)
    assert partition.in_memory(0, 1) is None
    assert await all_of_them() == sent
    assert await marks() == (0, -1)
    await testbed.until(lambda: testbed.files(FileKind.TABLE, ORDERS), patience_s=1_000)
    assert await all_of_them() == sent
    assert await marks() == (0, 399)
    await client.produce("orders", 0, batch(b"in the next log"))
    assert await marks() == (0, 399)
    await testbed.until(
        lambda: [log.base_offset for log in testbed.files(FileKind.LOG, ORDERS)] == [400], patience_s=1_000
    )
    assert await marks() == (400, 400), "the next log also has a table before the first log goes"
    assert await all_of_them() == [*sent, b"in the next log"]


async def test_who_asks_for_records_of_a_topic_with_columns_is_not_told_to_try_again(testbed: Testbed) -> None:
    [client] = await in_process_clients(testbed)
    columns, flags = pa.schema([("number", pa.int64())]), 1 << SCHEMA_VERSION_SHIFT
    await topic(testbed, client, schema=schema_to_bytes(columns))
    publisher = await client.host.publisher(name=ORDERS)
    row = pa.RecordBatch.from_arrays([pa.array([7])], schema=payload_schema(flags, columns))
    table = encode_frame(
        row,
        flags=flags,
        producer_id=publisher.producer,
        producer_epoch=publisher.epoch,
        first_sequence=0,
        timestamp_min=testbed.wall_us(),
        timestamp_max=testbed.wall_us(),
        slot_min=0,
        slot_max=0,
        histogram=(1,) + (0,) * 15,
    )
    await publisher.stream.send(PublishFrames(table))
    await publisher.acks(1)
    assert (await client.fetch("orders", 0, 0)).error_code == Code.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert (await client.produce("orders", 0, batch(b"plain"))).error_code == Code.INVALID_REQUEST


async def test_times_too_far_from_the_brokers_are_refused(testbed: Testbed) -> None:
    client = await single(testbed, configs=(("message.timestamp.before.max.ms", "5000"),))
    now_ms = client.host.broker.ports.runtime.env.wall_us() // 1000
    for time_ms, code in (
        (now_ms + 3_600_000, Code.NONE), (now_ms + 3_700_000, Code.INVALID_TIMESTAMP), (now_ms - 4_000, Code.NONE),
        (now_ms - 9_000, Code.INVALID_TIMESTAMP), (-1, Code.NONE),
    ):  # fmt: skip
        assert (await client.produce("orders", 0, batch(b"a", time_ms=time_ms))).error_code == code, time_ms


@pytest.mark.parametrize("ahead_s", [-86_400.0, 86_400.0])
async def test_a_clock_that_was_set_refuses_nothing_for_an_hour_that_it_would_have_taken_before(
    testbed: Testbed, ahead_s: float
) -> None:
    client = await single(testbed, configs=(("message.timestamp.before.max.ms", "5000"),))

    async def code() -> Code:
        said = await client.produce("orders", 0, batch(b"a", time_ms=testbed.wall_us() // 1000))
        return Code(said.error_code)

    client.host.ahead_s = ahead_s
    assert await code() == Code.NONE
    await asyncio.sleep(3_500)
    assert await code() == Code.NONE
    await asyncio.sleep(200)
    assert await code() == Code.INVALID_TIMESTAMP
    client.host.ahead_s = 0.0
    assert await code() == Code.NONE, "it is right again"


async def test_a_batch_unpacks_to_as_much_as_may_be_and_not_to_one_byte_more(testbed: Testbed) -> None:
    [client] = await in_process_clients(testbed, kafka_unpacked_bytes_max=1 * MIB)
    await topic(testbed, client)
    around = len(batch(bytes(1_000_000))) - BATCH_HEADER_BYTES - 1_000_000
    largest = 1 * MIB - around
    assert (await client.produce("orders", 0, batch(bytes(largest), codec=GZIP))).error_code == Code.NONE
    refused = await client.produce("orders", 0, batch(bytes(largest + 1), codec=GZIP))
    assert (refused.error_code, refused.base_offset) == (Code.INVALID_RECORD, -1)
    assert "not sound gzip of at most 1048576 bytes of records" in refused.error_message
    assert (await client.produce("orders", 0, batch(b"small", codec=GZIP))).base_offset == 1


async def test_a_ring_that_is_never_cut_is_read_and_not_written(testbed: Testbed) -> None:
    [client] = await in_process_clients(testbed)
    await testbed.topic(client.host, ORDERS, segments=2, scaling=Scaling.FIXED)
    await testbed.until(lambda: len(client.host.inspect.view.open_of(ORDERS)) == 2)
    publisher = await client.host.publisher(name=ORDERS, segment=1)
    await publisher.store(1, slots=(40_000, 40_000))
    assert (await client.produce("orders", 1, batch(b"x"))).error_code == Code.INVALID_TOPIC_EXCEPTION
    assert records_of((await client.fetch("orders", 1, 0)).records) == [(0, None, b"1:0")]


async def test_records_that_a_seal_retained_are_acknowledged(testbed: Testbed) -> None:
    client = await single(testbed)
    open_segment = client.host.broker.ports.partitions.leads(ORDERS, 0).open_segment
    synced = testbed.faults.hold(StorageOp.SYNC)
    producing = asyncio.create_task(client.produce("orders", 0, batch(b"one")))
    await testbed.until(lambda: open_segment.log.end == 1)
    sealing = asyncio.create_task(client.host.api.call(SealSegment(ORDERS, 0)))
    await testbed.until(lambda: open_segment.rejection)
    synced.set()
    await sealing
    said = await producing
    assert (said.error_code, said.base_offset) == (Code.NONE, 0)
    assert open_segment.log.committed == 0, "the metadata alone confirm the record"


async def test_topics_of_coordinators_are_read_and_not_written(testbed: Testbed) -> None:
    [client] = await in_process_clients(testbed)
    found = await client.ask(messages.API.FIND_COORDINATOR, 3, key="group", key_type=0)
    assert found.error_code == Code.NONE
    assert (await client.produce("__consumer_offsets", 0, batch(b"x"))).error_code == Code.INVALID_TOPIC_EXCEPTION
    assert (await client.fetch("__consumer_offsets", 0, 0)).error_code == Code.NONE


async def test_a_fetch_that_waits_hears_that_the_partition_moved(testbed: Testbed) -> None:
    leader, opened = await replicated(testbed, 3)
    await leader.produce("orders", 0, batch(b"one"))
    waiting = asyncio.create_task(leader.fetch("orders", 0, 1, wait_ms=60_000))
    await asyncio.sleep(1)
    began = testbed.loop.time()
    await leader.host.stop()
    said = await waiting
    assert said.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert testbed.loop.time() - began < 10
    successor = await leader_of(testbed, [d for d in opened if d is not leader])
    assert records_of((await successor.fetch("orders", 0, 0)).records) == [(0, None, b"one")]


async def test_partitions_that_are_unavailable_are_logged_once_a_minute(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = await single(testbed)
    partition = client.host.broker.ports.partitions.leads(ORDERS, 0)

    def leads(name: TopicName, number: int) -> Any:
        raise Unavailable(f"partition {number} of {name} has no open segment at the moment: retry")

    waiting = asyncio.create_task(client.fetch("orders", 0, 0, wait_ms=60_000))
    await asyncio.sleep(1)
    monkeypatch.setattr(client.host.broker.ports.partitions, "leads", leads)
    monkeypatch.setattr(LocalPartition, "is_over", True)
    partition.changed.fire()
    assert (await waiting).error_code == Code.NOT_LEADER_OR_FOLLOWER
    for _ in range(5):
        assert (await client.fetch("orders", 0, 0, wait_ms=500)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    await asyncio.sleep(REJECTIONS_PAUSE_S)
    await client.fetch("orders", 0, 0)
    why = "partition 0 of kafka/orders has no open segment at the moment: retry"
    assert [record.message for record in caplog.records if record.name == fetch.__name__] == [
        f"partitions of Kafka fetches rejected: {count} since the last such line: {why}" for count in (1, 6)
    ]


async def test_a_partition_whose_files_take_too_long_is_logged(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    client = await single(testbed)
    await client.produce("orders", 0, batch(b"one"))
    partition = client.host.broker.ports.partitions.leads(ORDERS, 0)
    await testbed.until(lambda: partition.open_segment.log.flushed == 1)
    partition.open_segment.evict(1 << 30)
    held = testbed.faults.hold(StorageOp.OPEN)
    assert (await client.fetch("orders", 0, 0)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    held.set()
    assert [record.message for record in caplog.records if record.name == fetch.__name__] == [
        "partitions of Kafka fetches rejected: 1 since the last such line: records of partition 0 of kafka/orders "
        "were not read within 10 s: the storage is slow, or slow consumers hold kafka_fetch_bytes_max: retry"
    ]


async def test_what_comes_behind_a_refused_batch_of_a_new_producer_waits_for_it(testbed: Testbed) -> None:
    """An unknown producer may begin anywhere; were the second batch accepted, the first never could be."""
    [client] = await in_process_clients(testbed)
    first, second = (batch(b"%d" % n, producer=(1_000, 0, n)) for n in (0, 1))
    assert (await client.produce("orders", 0, first)).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    await topic(testbed, client)
    assert (await client.produce("orders", 0, second)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert (await client.produce("orders", 0, first)).base_offset == 0
    assert (await client.produce("orders", 0, second)).base_offset == 1


async def test_a_producer_that_got_further_elsewhere_is_not_held_up_by_what_was_refused_here(testbed: Testbed) -> None:
    leader, opened = await replicated(testbed, 2)
    other = next(client for client in opened if client is not leader)
    numbered = [batch(b"%d" % n, producer=(1_000, 0, n)) for n in range(4)]
    assert (await leader.produce("orders", 0, numbered[0])).base_offset == 0
    assert (await other.produce("orders", 0, numbered[1])).error_code == Code.NOT_LEADER_OR_FOLLOWER
    for n in (1, 2):
        assert (await leader.produce("orders", 0, numbered[n])).base_offset == n
    await leader.host.stop()
    assert await leader_of(testbed, [other]) is other
    assert (await other.produce("orders", 0, numbered[3])).base_offset == 3


async def test_a_gap_behind_a_refused_batch_is_not_called_one(testbed: Testbed) -> None:
    """librdkafka would begin a new epoch, which stores the unacknowledged stored records again."""
    leader, opened = await replicated(testbed, 2)
    other = next(client for client in opened if client is not leader)
    numbered = [batch(b"%d" % n, producer=(1_000, 0, n)) for n in range(3)]
    assert (await leader.produce("orders", 0, numbered[0])).base_offset == 0
    assert (await other.produce("orders", 0, numbered[1])).error_code == Code.NOT_LEADER_OR_FOLLOWER
    await leader.host.stop()
    assert await leader_of(testbed, [other]) is other
    assert (await other.produce("orders", 0, numbered[2])).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert (await other.produce("orders", 0, numbered[1])).base_offset == 1
    assert (await other.produce("orders", 0, numbered[2])).base_offset == 2


async def test_more_producers_than_a_broker_remembers_are_rejected_for_good(testbed: Testbed) -> None:
    [client] = await in_process_clients(testbed, producers_max=3)
    await topic(testbed, client)
    for producer in range(1_000, 1_003):
        assert (await client.produce("orders", 0, batch(b"a", producer=(producer, 0, 0)))).error_code == Code.NONE
    said = await client.produce("orders", 0, batch(b"a", producer=(1_003, 0, 0)))
    assert said.error_code == Code.POLICY_VIOLATION
    assert "producers_max" in said.error_message
    assert (await client.produce("orders", 0, batch(b"a", producer=(1_000, 0, 1)))).error_code == Code.NONE
    assert (await client.produce("orders", 0, batch(b"no producer"))).error_code == Code.NONE


async def test_no_time_for_replicas_is_enough_where_none_are_waited_for(testbed: Testbed) -> None:
    leader, _ = await replicated(testbed, 2)
    for acks, code in ((1, Code.NONE), (-1, Code.REQUEST_TIMED_OUT)):
        assert (await leader.produce("orders", 0, batch(b"a"), timeout_ms=0, acks=acks)).error_code == code


async def test_a_topic_may_take_larger_batches_than_brokers_do(testbed: Testbed) -> None:
    [client] = await in_process_clients(testbed, frame_bytes_max=100_000)
    await topic(testbed, client, configs=(("max.message.bytes", "2147483647"),))
    assert (await client.produce("orders", 0, batch(bytes(99_000)))).error_code == Code.NONE
    said = await client.produce("orders", 0, batch(bytes(100_000)))
    assert (said.error_code, "frame_bytes_max" in said.error_message) == (Code.MESSAGE_TOO_LARGE, True)


@pytest.mark.parametrize("kind", FileKind)
async def test_files_are_read_once_by_who_catches_up_in_small_steps(testbed: Testbed, kind: FileKind) -> None:
    """Records without room in a reply are cached for the next one, so that no file is opened for each reply."""
    client = await single(testbed)
    for first in range(0, 400, 20):
        await client.produce("orders", 0, batch(*[b"%06d" % i + b"." * 500 for i in range(first, first + 20)]))
    if kind is FileKind.TABLE:
        await testbed.until(lambda: testbed.files(FileKind.TABLE, ORDERS), patience_s=1_000)
        for log in testbed.files(FileKind.LOG, ORDERS):
            del testbed.store.files[log.path]
    client.host.broker.ports.partitions.leads(ORDERS, 0).open_segment.evict(1 << 30)
    opened, offset, fetches = testbed.faults.counts[StorageOp.OPEN], 0, 0
    while offset < 400:
        found = records_of((await client.fetch("orders", 0, offset, partition_bytes_max=15_000)).records)
        assert found[0][0] <= offset
        offset, fetches = found[-1][0] + 1, fetches + 1
    assert fetches > 10
    assert testbed.faults.counts[StorageOp.OPEN] - opened <= 2


async def test_a_consumer_gets_what_lies_before_lost_records_and_then_an_error_until_it_seeks_behind_them(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    """Never OFFSET_OUT_OF_RANGE, after which clients silently continue elsewhere (``auto.offset.reset``)."""
    [client] = await in_process_clients(testbed, log_roll_bytes=4 * KIB, maintenance_interval_s=1e4)
    await topic(testbed, client)
    for first in range(0, 80, 4):
        await client.produce("orders", 0, batch(*[b"%06d" % i + b"." * 500 for i in range(first, first + 4)]))
    await testbed.until(lambda: client.host.inspect.segments[ORDERS, 0].log.flushed == 80)
    client.host.broker.ports.partitions.leads(ORDERS, 0).open_segment.evict(1 << 30)
    logs = testbed.files(FileKind.LOG, ORDERS)
    (begin, end), second_end = (log.base_offset for log in logs[1:3]), logs[3].base_offset
    del testbed.store.files[logs[1].path]

    before = await client.fetch("orders", 0, 0)
    assert (before.error_code, [at for at, _, _ in records_of(before.records)]) == (Code.NONE, list(range(begin)))
    for offset in (begin, begin + 1, begin):
        found = await client.fetch("orders", 0, offset)
        assert (found.error_code, found.records) == (Code.CORRUPT_MESSAGE, b"")
    assert f"kafka/orders#0: records of offsets [{begin}, {end}) are missing" in caplog.text
    behind = await client.fetch("orders", 0, end)
    assert behind.error_code == Code.NONE
    assert [at for at, _, _ in records_of(behind.records)] == list(range(end, 80))

    del testbed.store.files[logs[0].path]
    assert (await client.list_offset("orders", 0, -2)).offset == 0
    assert (await client.fetch("orders", 0, 0)).error_code == Code.CORRUPT_MESSAGE
    await client.host.api.call(RaiseLowWatermark(ORDERS, {0: end}))
    assert (await client.list_offset("orders", 0, -2)).offset == end, "deleted records are not lost"
    assert (await client.fetch("orders", 0, 0)).error_code == Code.OFFSET_OUT_OF_RANGE

    testbed.store.files[logs[2].path].data[len(testbed.store.files[logs[2].path].data) // 2] ^= 1
    while (found := await client.fetch("orders", 0, end)).error_code == Code.NONE:
        end = records_of(found.records)[-1][0] + 1
    assert (end < second_end, found.error_code) == (True, Code.CORRUPT_MESSAGE)
    assert f"{logs[2].path} is damaged at byte" in caplog.text
