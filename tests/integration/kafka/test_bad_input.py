"""Bad input to real brokers: each has one right answer, no other client is harmed, and memory stays flat.

While these tests run, a good producer and a good group are at work; each test ends with a check that they continue, and
after the last one none of their records is lost or twice (``good.py``). The table names the tests of every variant of a
line, below tests/kafka if not otherwise stated. Lines with (requests) are in ``test_bad_requests.py``.

| bad input | in every way | here |
|---|---|---|
| length negative, 0, 2 GiB; TLS, HTTP, gRPC, random | wire/test_connection | not a request |
| counts of 2^31, unknown API, version, wrong tags | wire/test_connection, test_mutated | not a request |
| half a request and silence | wire/test_connection | half a request |
| invalid batches, bombs, two, control | codec/kafka/test_batch | batches, bombs |
| null key in a compact topic, 1 byte too large | codec/kafka/test_batch, test_produce_fetch | rules of their own |
| sequence gap, repeat, wrap, old epoch, other's id | core/segment/test_kafka_producers | sequences |
| acks 0 that fails | wire/test_connection, test_produce_fetch | no answer |
| partition, topic id, epoch or offset is unknown | test_produce_fetch, test_topic_directory | places (requests) |
| an old epoch, an offset that was deleted | test_produce_fetch, test_topic_directory | former places (requests) |
| max_bytes 0, negative; min_bytes, max_wait 2^31 | core/kafka/test_fetch_budget | sizes (requests) |
| session unknown | core/kafka/test_fetch_session | sessions (requests) |
| group id, timeout, protocols, another's member | test_classic_group, groups/test_classic | groups (requests) |
| a group of the new protocol | ``test_not_supported.py`` | error with a remedy (requests) |
| commit: 10,000 partitions, 4,097 bytes, unknown | test_committed_offsets, groups/test_classic | commits (requests) |
| partitions, replicas, names, configs, twice at once | admin/test_topics, admin/test_configs | topics (requests) |
| delete while producing and fetching | groups/test_classic has that of offsets | deleted (requests) |
| configs changed through several brokers at once | admin/test_configs | no change is lost (requests) |
| etcd gone | test_shard, metadata/test_nodes; tests.faults | ``test_trouble.py`` |
| storage full | test_shard; tests.faults | ``test_full_storage.py`` |
| client that never reads | wire/test_connection | does not read |
| 10,000 idle connections, and one more | wire/test_connection | idle, ``test_many_connections.py`` |
"""

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import API, REQUESTS
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.good import GROWTH_BYTES_MAX, Good, resident_bytes
from tests.integration.kafka.raw import (
    FETCH,
    PRODUCE,
    Brokers,
    fetch_fields,
    produce_fields,
)
from tests.kafka.in_process_client import batch
from tests.kafka.wire.script import script
from tests.support.kafka_batches import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Record,
    batch_around,
    batch_of,
    changed,
    packed,
)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_else_is_harmed")]

READ_S = 2.0
"""``kafka_request_read_s`` of the cluster."""
BOMB = bytes(80 << 20)
"""Size above ``kafka_unpacked_bytes_max``."""
SMALL = batch_of([Record(b"k", b"v"), Record(None, b"w", (("h", b"1"),))])
SEQUENCE_MAX = 2**31 - 1


# --- bytes


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes(range(255, 0, -1)) * 8,
        struct.pack(">ihhih", 10, 77, 0, 1, -1),
        struct.pack(">ihhih", 10, API.METADATA, 99, 1, -1),
        struct.pack(">ihhihi", 14, API.METADATA, 0, 1, -1, 2**31 - 1),
        struct.pack(">ihhih", 16, API.METADATA, 9, 1, -1) + b"\0\xff\xff\xff\xff\x07",
        struct.pack(">ihhih", 15, API.METADATA, 9, 1, -1) + b"\xff\xff\xff\xff\x07",
    ],
)
async def test_what_is_no_request_ends_its_connection(brokers: Brokers, garbage: bytes) -> None:
    for port in brokers.ports:
        async with script(port) as peer:
            peer.say(garbage)
            assert await peer.is_closed()


async def test_half_a_request_and_silence_ends_its_connection(brokers: Brokers) -> None:
    began = time.monotonic()
    async with script(brokers.ports[0]) as length, script(brokers.ports[0]) as half:
        length.say(b"\0\0")
        half.say(struct.pack(">ihhih", 1 << 16, API.METADATA, 0, 1, -1) + bytes(1_000))
        assert await length.is_closed()
        assert await half.is_closed()
    assert READ_S - 0.5 < time.monotonic() - began < READ_S + 10


async def test_who_does_not_read_is_no_burden(
    kafka: Kafka, brokers: Brokers, create: Callable[..., str], good: Good
) -> None:
    topic = create()
    port = await brokers.leader(topic)
    for _ in range(8):
        assert (await brokers.produce(topic, 0, batch(bytes(1_000_000)), port=port)).error_code == Code.NONE
    before = resident_bytes(kafka.cluster)
    async with AsyncExitStack() as stack:
        deaf = [await stack.enter_async_context(script(port, buffer_bytes=4_096)) for _ in range(5)]
        for peer in deaf:
            fields = fetch_fields(topic, 0, 0, max_bytes=8 << 20, partition_max_bytes=8 << 20)
            for number in range(100):
                peer.ask(number, API.FETCH, FETCH, REQUESTS[API.FETCH](version=FETCH, **fields))
        for _ in range(3):
            await asyncio.to_thread(good.goes_on)
        assert max(map(int.__sub__, resident_bytes(kafka.cluster), before)) < GROWTH_BYTES_MAX


async def test_a_thousand_idle_connections_are_nobodys_business(kafka: Kafka, brokers: Brokers, good: Good) -> None:
    before = resident_bytes(kafka.cluster)
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(script(brokers.ports[0])) for _ in range(1_000)]
        await asyncio.to_thread(good.goes_on)
        grown = resident_bytes(kafka.cluster)[0] - before[0]
        assert grown < 16 << 10 << 10, "16 KiB each"
        idle[-1].ask(7, API.LIST_GROUPS, 0, REQUESTS[API.LIST_GROUPS](version=0))
        assert (await idle[-1].hear(API.LIST_GROUPS, 0))[0] == 7


# --- Produce


async def test_batches_that_are_not_sound_are_refused_each_with_its_code(
    brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create(max_message_bytes="8000000")
    port = await brokers.leader(topic)
    for bad, code in (
        (b"", Code.INVALID_RECORD),
        (SMALL[:-1], Code.INVALID_RECORD),
        (SMALL + SMALL, Code.INVALID_RECORD),
        (changed(SMALL, batch_length=-1), Code.INVALID_RECORD),
        (changed(SMALL, batch_length=2**31 - 1), Code.INVALID_RECORD),
        (changed(SMALL, crc=7), Code.CORRUPT_MESSAGE),
        (changed(SMALL, magic=0), Code.INVALID_RECORD),
        (changed(SMALL, magic=1), Code.INVALID_RECORD),
        *((changed(SMALL, attributes=codec), Code.UNSUPPORTED_COMPRESSION_TYPE) for codec in (5, 6, 7)),
        *((changed(SMALL, attributes=codec), Code.INVALID_RECORD) for codec in (GZIP, SNAPPY, LZ4, ZSTD)),
        (changed(SMALL, attributes=0x20), Code.INVALID_RECORD),
        (changed(SMALL, attributes=0x10), Code.INVALID_TXN_STATE),
        (changed(SMALL, record_count=3, last_offset_delta=2), Code.INVALID_RECORD),
        (changed(SMALL, record_count=2**31 - 1, last_offset_delta=2**31 - 2), Code.INVALID_RECORD),
        (changed(SMALL, last_offset_delta=7), Code.INVALID_RECORD),
        (changed(SMALL, first_timestamp_ms=253_402_300_800_000), Code.INVALID_TIMESTAMP),
    ):
        said = await brokers.produce(topic, 0, bad, port=port)
        assert (said.error_code, said.base_offset) == (code, -1), said.error_message
        assert said.error_message
    assert (await brokers.produce(topic, 0, SMALL, port=port)).base_offset == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_bombs_are_refused_and_cost_no_more_than_the_bound(
    kafka: Kafka, brokers: Brokers, create: Callable[..., str], codec: int
) -> None:
    topic = create(max_message_bytes="8000000")
    port = await brokers.leader(topic)
    bomb = batch_around(packed(codec, BOMB), attributes=codec)
    before = resident_bytes(kafka.cluster)
    for _ in range(3):
        said = await brokers.produce(topic, 0, bomb, port=port)
        assert said.error_code == Code.INVALID_RECORD, said.error_message
    assert max(map(int.__sub__, resident_bytes(kafka.cluster), before)) < GROWTH_BYTES_MAX


async def test_topics_with_rules_of_their_own(brokers: Brokers, create: Callable[..., str]) -> None:
    keyed, bare = batch(b"v", keys=[b"k"]), batch(b"v")
    compact = create(cleanup_policy="compact")
    assert (await brokers.produce(compact, 0, bare)).error_code == Code.INVALID_RECORD
    assert (await brokers.produce(compact, 0, keyed)).error_code == Code.NONE
    small = create(max_message_bytes=str(len(bare)))
    assert (await brokers.produce(small, 0, keyed)).error_code == Code.MESSAGE_TOO_LARGE
    assert (await brokers.produce(small, 0, bare)).error_code == Code.NONE


async def test_sequences_that_do_not_fit(brokers: Brokers, create: Callable[..., str]) -> None:
    topic = create()
    port = await brokers.leader(topic)
    ids = [
        await brokers.ask(port, API.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=0)
        for _ in range(2)
    ]
    one, other = (found.producer_id for found in ids)
    assert one != other
    for producer, code, offset in (
        ((one, 0, 0), Code.NONE, 0),
        ((one, 0, 2), Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        ((one, 0, 0), Code.NONE, 0),
        ((one, 0, 1), Code.NONE, 1),
        ((one, 2, 1), Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        ((one, 1, 0), Code.NONE, 2),
        ((one, 0, 2), Code.INVALID_PRODUCER_EPOCH, -1),
        ((other, 0, SEQUENCE_MAX), Code.NONE, 3),
        ((other, 0, 0), Code.NONE, 4),
        ((other, 0, SEQUENCE_MAX), Code.NONE, 3),
    ):
        said = await brokers.produce(topic, 0, batch(b"x", producer=producer), port=port)
        assert (said.error_code, said.base_offset) == (code, offset), (producer, said.error_message)


async def test_who_wants_no_answer_hears_of_a_failure_by_the_end_of_its_connection(
    brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create()
    async with script(await brokers.leader(topic)) as peer:
        for bad in (batch(b"x"), changed(SMALL, crc=7)):
            fields = produce_fields(topic, 0, bad, acks=0)
            peer.ask(1, API.PRODUCE, PRODUCE, REQUESTS[API.PRODUCE](version=PRODUCE, **fields))
        assert await peer.is_closed()
