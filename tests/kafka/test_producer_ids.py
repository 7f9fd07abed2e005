"""Brokers that give ids to producers, all from one counter."""

import asyncio
import random

import pytest

from seaweedmq.codec.kafka_producers import id_counter_from_json, id_counter_to_json
from seaweedmq.codec.keys import KAFKA_PRODUCER_IDS
from seaweedmq.coordination.memory import MemoryMetaServer, MemoryMetaStore
from seaweedmq.core.kafka.id_blocks import BLOCK_IDS
from seaweedmq.errors import Corrupt
from seaweedmq.kafka.producer_ids import ProducerIds
from seaweedmq.model.producer import KAFKA_PRODUCERS
from seaweedmq.ports import Put


def brokers(server: MemoryMetaServer, count: int) -> list[ProducerIds]:
    return [ProducerIds(MemoryMetaStore(server), random.Random(n)) for n in range(count)]


async def test_no_two_producers_get_the_same_id() -> None:
    server = MemoryMetaServer()
    asking = brokers(server, 4)
    given = await asyncio.gather(*(broker.next() for _ in range(BLOCK_IDS + 10) for broker in asking))
    assert len(set(given)) == len(given)
    assert min(given) == KAFKA_PRODUCERS.start
    assert max(given) < KAFKA_PRODUCERS.start + 8 * BLOCK_IDS, "a block is taken when the last one is used up"


async def test_a_broker_that_starts_again_goes_on_behind_its_last_block() -> None:
    server = MemoryMetaServer()
    before = await brokers(server, 1)[0].next()
    assert await brokers(server, 1)[0].next() == before + BLOCK_IDS


async def test_a_counter_that_makes_no_sense_gives_nothing() -> None:
    assert id_counter_from_json(id_counter_to_json(4_000)) == 4_000
    server = MemoryMetaServer()
    for value in (999, KAFKA_PRODUCERS.stop + 1):
        await MemoryMetaStore(server).transact([], [Put(KAFKA_PRODUCER_IDS, id_counter_to_json(value))])
        with pytest.raises(Corrupt, match="next_id"):
            await brokers(server, 1)[0].next()
