"""Bad input to real brokers harms no other client and costs little memory: one story of each kind.

While these tests run, a good producer and a good group are at work; each test ends with a check that they continue, and
after the last one none of their records is lost or twice (``good.py``). The table names the tests of every variant,
below tests/kafka if not otherwise stated.

| bad input | in every way |
|---|---|
| length negative, 0, 2 GiB; TLS, HTTP, gRPC, random | wire/test_connection |
| counts of 2^31, unknown API, version, wrong tags | wire/test_connection, test_mutated |
| half a request and silence | wire/test_connection |
| invalid batches, bombs, two, control | codec/kafka/test_batch, differential |
| null key in a compact topic, 1 byte too large | codec/kafka/test_batch, test_produce_fetch |
| sequence gap, repeat, wrap, old epoch, other's id | core/segment/test_kafka_producers, differential |
| acks 0 that fails | wire/test_connection, test_produce_fetch, differential |
| partition, topic id, epoch or offset is unknown | differential, test_topic_directory |
| an old epoch, an offset that was deleted | test_produce_fetch, test_topic_directory, differential |
| max_bytes 0, negative; min_bytes, max_wait | core/kafka/test_fetch_budget, differential |
| session unknown | core/kafka/test_fetch_session, differential |
| group id, timeout, protocols, another's member | test_classic_group, differential |
| a group of the new protocol | admin/test_inventory, ``test_not_supported.py`` |
| commit: 10,000 partitions, 4,097 bytes, unknown | test_committed_offsets, groups/test_classic, differential |
| partitions, replicas, names, configs, twice at once | admin/test_topics, differential |
| configs changed through several brokers at once | admin/test_configs |
| any value of any field of any request | requests/test_handlers |
| etcd gone | test_shard, test_etcd_refuses; tests.faults, ``test_trouble.py`` |
| storage full | test_shard; tests.faults, ``test_full_storage.py`` |
| client that never reads | wire/test_connection, test_fairness, test_slow_readers |
| as many idle connections as may be, and one more | wire/test_connection, ``test_many_connections.py`` |
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from seaweedmq.kafka.wire.messages import API, REQUESTS
from seaweedmq.model.kafka.codes import Code
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.good import GROWTH_BYTES_MAX, Good, resident_bytes
from tests.integration.kafka.raw import FETCH, Brokers, fetch_fields
from tests.kafka.in_process_client import batch
from tests.kafka.wire.script import script
from tests.support.kafka_batches import GZIP, LZ4, SNAPPY, ZSTD, batch_around, packed

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_else_is_harmed")]

BOMB = bytes(80 << 20)
"""Size above ``kafka_unpacked_bytes_max``."""


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


async def test_bombs_are_refused_and_cost_no_more_than_the_bound(
    kafka: Kafka, brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create(max_message_bytes="8000000")
    port = await brokers.leader(topic)
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        bomb = batch_around(packed(codec, BOMB), attributes=codec)
        before = resident_bytes(kafka.cluster)
        for _ in range(3):
            said = await brokers.produce(topic, 0, bomb, port=port)
            assert said.error_code == Code.INVALID_RECORD, (codec, said.error_message)
        assert max(map(int.__sub__, resident_bytes(kafka.cluster), before)) < GROWTH_BYTES_MAX, codec
