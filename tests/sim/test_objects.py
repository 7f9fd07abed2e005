"""The simulated object store: requests that are late, doubled, or outlive their sender, the same for the same seed."""

import asyncio
import random

import pytest

from seaweedmq.errors import AlreadyExists, SeaweedMQError, StorageFailed
from tests.doubles.memory_objects import MemoryBucket, ObjectOp
from tests.sim.machines.loop import OWNER, Owner, OwnerState, SimLoop
from tests.sim.machines.objects import SimObjectStore


def make_store(seed: int = 1) -> SimObjectStore:
    return SimObjectStore(MemoryBucket(lambda: 0), random.Random(seed))


async def until_settled(store: SimObjectStore) -> None:
    async with asyncio.timeout(120.0):
        await store.settled.wait()


async def test_a_calm_store_applies_each_request_once() -> None:
    store = make_store()
    objects = store.client("b1")
    e_tag = await objects.create("a", [b"1"])
    await objects.replace("a", [b"2"], e_tag=e_tag)
    assert bytes((await objects.get("a")).content) == b"2"
    assert sum(store.bucket.applied.values()) == 3
    assert store.under_way == 0


async def test_a_request_outlives_its_sender() -> None:
    store = make_store()
    sending = asyncio.create_task(store.client("b1").create("a", [b"1"]))
    await asyncio.sleep(0)
    sending.cancel()
    assert not store.bucket.stored
    await until_settled(store)
    assert "a" in store.bucket.stored


async def test_a_store_that_keeps_everything_is_an_error_and_applies_it_later() -> None:
    store = make_store()
    store.faults.late_share = 1.0
    store.faults.late_s_max = 100.0
    with pytest.raises(StorageFailed, match="no answer"):
        await store.client("b1").create("a", [b"1"])
    store.faults.calm()
    await until_settled(store)
    assert store.bucket.applied[ObjectOp.CREATE] == 4
    assert store.bucket.stored["a"].content == b"1"


async def test_lost_requests_are_never_applied() -> None:
    store = make_store()
    store.faults.lost_share = 1.0
    with pytest.raises(StorageFailed):
        await store.client("b1").create("a", [b"1"])
    assert (store.under_way, store.bucket.stored) == (0, {})


async def test_a_create_without_answer_finds_its_own_object() -> None:
    store = make_store()
    store.faults.unanswered_share = 1.0
    sending = asyncio.create_task(store.client("b1").create("a", [b"1"]))
    await asyncio.sleep(0.5)
    store.faults.calm()
    with pytest.raises(AlreadyExists):
        await sending
    assert store.bucket.stored["a"].content == b"1"


async def test_a_doubled_put_returns_after_a_newer_one() -> None:
    """The hazard that the contract of ``put`` names."""
    store = make_store()
    store.faults.twice_share = 1.0
    await store.client("b1").put("a", [b"old"])
    store.faults.calm()
    await store.client("b2").put("a", [b"new"])
    await until_settled(store)
    assert store.bucket.stored["a"].content == b"old"


async def stormy_run(seed: int) -> tuple[object, ...]:
    store = make_store(seed)
    faults = store.faults
    faults.lost_share, faults.unanswered_share, faults.late_share, faults.twice_share = 0.1, 0.1, 0.1, 0.3
    created: dict[str, list[bytes]] = {}

    async def client(name: str) -> None:
        objects = store.client(name)
        for number in range(20):
            key = f"k{number}"
            try:
                await objects.create(key, [name.encode()])
                created.setdefault(key, []).append(name.encode())
            except SeaweedMQError:
                pass

    await asyncio.gather(*(client(name) for name in ("b1", "b2", "b3")))
    await until_settled(store)
    content = {key: stored.content for key, stored in store.bucket.stored.items()}
    for key, winners in created.items():
        assert winners == [content[key]], "one creation succeeds, and its content stays"
    return content, created, store.bucket.applied, asyncio.get_running_loop().time()


@pytest.mark.parametrize("seed", range(10))
async def test_a_create_that_succeeded_stays_and_is_the_only_one(seed: int) -> None:
    await stormy_run(seed)


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> tuple[object, ...]:
        loop = SimLoop()
        try:
            return loop.run_until_complete(stormy_run(seed))
        finally:
            loop.close()

    assert run(3) == run(3)
    assert run(3) != run(4)


async def test_the_store_belongs_to_no_process() -> None:
    """A request that a process sent is applied while the process stands still."""
    store = make_store()
    owner = Owner("b1")
    token = OWNER.set(owner)
    try:
        sending = asyncio.create_task(store.client("b1").create("a", [b"1"]))
    finally:
        OWNER.reset(token)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    owner.state = OwnerState.FROZEN
    await until_settled(store)
    assert "a" in store.bucket.stored
    assert not sending.done()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    loop.thaw(owner)
    assert await sending == store.bucket.stored["a"].state.e_tag
