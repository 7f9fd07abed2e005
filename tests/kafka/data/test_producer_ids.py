"""Producer ids from one counter of all brokers, each block claimed in the storage."""

import asyncio
import random

import pytest

from seaweedmq.codec.state.kafka import id_counter_from_json, id_counter_to_json
from seaweedmq.codec.state.keys import KAFKA_PRODUCER_IDS
from seaweedmq.core.kafka.id_blocks import BLOCK_IDS
from seaweedmq.errors import Corrupt, StorageFailed, Unavailable
from seaweedmq.kafka.data.producer_ids import CLAIMS_KEPT, ProducerIds
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.producer import KAFKA_PRODUCERS
from seaweedmq.ports import Delete, Put
from tests.doubles.memory_meta import MemoryMetaServer, MemoryMetaStore
from tests.doubles.memory_store import MemorySegmentStore, StorageOp


class Cluster:
    def __init__(self) -> None:
        self.server = MemoryMetaServer()
        self.store = MemorySegmentStore(lambda: 0)
        self.started = 0

    def broker(self) -> ProducerIds:
        self.started += 1
        return ProducerIds(MemoryMetaStore(self.server), self.store, random.Random(self.started))

    def counter(self) -> bytes | None:
        entry = self.server.get(KAFKA_PRODUCER_IDS)
        return None if entry is None else entry.value

    def set_back(self, counter: bytes | None) -> None:
        self.server.transact([], [Delete(KAFKA_PRODUCER_IDS) if counter is None else Put(KAFKA_PRODUCER_IDS, counter)])


async def test_no_two_producers_get_the_same_id() -> None:
    cluster = Cluster()
    asking = [cluster.broker() for _ in range(4)]
    given = await asyncio.gather(*(broker.next() for _ in range(BLOCK_IDS + 10) for broker in asking))
    assert len(set(given)) == len(given)
    assert min(given) == KAFKA_PRODUCERS.start
    assert max(given) < KAFKA_PRODUCERS.start + 16 * BLOCK_IDS, "a block is taken when the last one is used up"


async def test_a_broker_that_starts_again_goes_on_behind_its_last_block() -> None:
    cluster = Cluster()
    before = await cluster.broker().next()
    assert await cluster.broker().next() == before + BLOCK_IDS


async def test_a_counter_that_makes_no_sense_gives_nothing() -> None:
    assert id_counter_from_json(id_counter_to_json(4_000)) == 4_000
    cluster = Cluster()
    for value in (999, KAFKA_PRODUCERS.stop + 1):
        cluster.set_back(id_counter_to_json(value))
        with pytest.raises(Corrupt, match="next_id"):
            await cluster.broker().next()


@pytest.mark.parametrize("seed", range(20))
async def test_no_id_is_given_again_however_often_etcd_is_set_back(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster()
    backups: list[bytes | None] = [None]
    given: list[int] = []
    for _ in range(3 * CLAIMS_KEPT):
        given += await asyncio.gather(*(cluster.broker().next() for _ in range(rng.randint(1, 3))))
        backups.append(cluster.counter())
        if rng.random() < 0.3:
            cluster.set_back(rng.choice(backups))
    assert len(set(given)) == len(given)
    assert len(await cluster.store.read_claims(ClaimKind.PRODUCER_IDS)) <= CLAIMS_KEPT


async def test_a_claim_that_took_too_long_is_not_believed() -> None:
    """During a broker's claim etcd is set back, and others claim so many blocks that one of the same number would be
    gone by now."""
    cluster = Cluster()
    slow = asyncio.Event()
    first = claim = f"kafka/producer-ids/{KAFKA_PRODUCERS.start:015d}"

    async def hold(op: StorageOp, path: str) -> None:
        if op is StorageOp.PUT and path == claim:
            await slow.wait()

    cluster.store.fault = hold
    late = asyncio.create_task(cluster.broker().next())
    while cluster.counter() is None:  # noqa: ASYNC110 - the task has no event for it
        await asyncio.sleep(0)
    claim = ""
    cluster.set_back(None)
    others = [await cluster.broker().next() for _ in range(2 * CLAIMS_KEPT)]
    assert others[0] == KAFKA_PRODUCERS.start
    assert first not in cluster.store.files
    slow.set()
    assert await late not in others


async def test_without_the_storage_no_id_is_given() -> None:
    cluster = Cluster()

    async def fail(op: StorageOp, path: str) -> None:
        raise StorageFailed(f"no {op} of {path}")

    cluster.store.fault = fail
    broker = cluster.broker()
    with pytest.raises(Unavailable, match="without the storage"):
        await broker.next()
    cluster.store.fault = Cluster().store.fault
    assert await broker.next() == KAFKA_PRODUCERS.start
