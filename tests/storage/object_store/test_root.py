"""The marker of a cluster at a prefix."""

import pytest

from seaweedmq.codec.paths import CLUSTER_DOCUMENT
from seaweedmq.errors import Corrupt, StorageFailed, Unsupported
from seaweedmq.storage.object_store.root import ObjectRoot
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects, ObjectAnswer, ObjectOp, ObjectRequest
from tests.support.object_carriers import LateWrites, doubled
from tests.support.stores import bucket, marker


def root(stored: MemoryBucket, network: LateWrites | None = None, interval_s: float = 10.0) -> ObjectRoot:
    return ObjectRoot(MemoryObjects(stored, carry=network and network.carry), verify_interval_s=interval_s)


async def test_the_marker_is_read_at_most_once_an_interval() -> None:
    stored = bucket()
    checked = root(stored)
    await checked.verify_often()
    assert stored.applied[ObjectOp.GET] == 0, "no cluster is bound"
    await checked.create_marker(marker())
    checked.bind("one")
    for _ in range(5):
        await checked.verify_often()
    assert stored.applied[ObjectOp.GET] == 1
    await checked.verify()
    assert stored.applied[ObjectOp.GET] == 2
    checked.bind("one")
    await checked.verify_often()
    assert stored.applied[ObjectOp.GET] == 3


async def test_a_failed_check_is_repeated_at_the_next_call() -> None:
    stored = bucket()
    checked = root(stored)
    checked.bind("one")
    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"has no cluster\.json, so it was emptied or is another prefix"):
            await checked.verify_often()
    await checked.create_marker(marker())
    await checked.verify_often()


@pytest.mark.parametrize(("content", "error"), [(b"{", Corrupt), (b"", Corrupt), (b'{"v": 99}', Unsupported)])
async def test_an_unreadable_marker_stops_everything(content: bytes, error: type[Exception]) -> None:
    stored = bucket()
    checked = root(stored, interval_s=0.0)
    await checked.create_marker(marker())
    checked.bind("one")
    await checked.verify_often()
    await MemoryObjects(stored).put(CLUSTER_DOCUMENT, [content])
    with pytest.raises(StorageFailed, match=r"cluster\.json is unreadable .*: restore it"):
        await checked.verify_often()
    for call in (checked.read_marker(), checked.replace_marker(marker()), checked.create_marker(marker())):
        with pytest.raises(error):
            await call


async def test_a_late_replacement_changes_nothing() -> None:
    stored = bucket()
    network = LateWrites(stored, lambda request: request.op is ObjectOp.REPLACE)
    deposed, leader = root(stored, network), root(stored)
    await leader.create_marker(marker(revision=1))
    with pytest.raises(StorageFailed):
        await deposed.replace_marker(marker(revision=2))
    await leader.replace_marker(marker(revision=3))
    network.release()
    await leader.replace_marker(marker(revision=2))
    assert await leader.read_marker() == marker(revision=3)


async def test_answers_that_are_lost_change_nothing() -> None:
    stored = bucket()
    checked = ObjectRoot(MemoryObjects(stored, carry=doubled(stored)))
    assert await checked.create_marker(marker()) == marker()
    await checked.replace_marker(marker(revision=2))
    assert await checked.read_marker() == marker(revision=2)


async def test_of_two_clusters_at_one_prefix_one_is_rejected() -> None:
    stored = bucket()
    one, two = root(stored), root(stored)
    assert await one.create_marker(marker("one")) == await two.create_marker(marker("two")) == marker("one")
    two.bind("two")
    with pytest.raises(StorageFailed, match="belongs to cluster one, not to two: give the storage of that cluster"):
        await two.verify_often()


async def test_a_marker_that_others_always_replace_is_an_error() -> None:
    stored = bucket()

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        answer = stored.apply(request)
        if request.op is ObjectOp.GET:
            stored.apply(
                ObjectRequest(op=ObjectOp.PUT, key=CLUSTER_DOCUMENT, content=stored.stored[request.key].content)
            )
        return answer

    checked = ObjectRoot(MemoryObjects(stored, carry=carry))
    await checked.create_marker(marker())
    with pytest.raises(StorageFailed, match="other brokers replaced it 5 times"):
        await checked.replace_marker(marker(revision=2))


async def test_a_store_that_hides_what_was_written_is_rejected() -> None:
    stored = bucket()

    class Hiding(MemoryObjects):
        async def put(self, *_: object, **__: object) -> str:
            return ""

    with pytest.raises(StorageFailed, match="does not show an object that it stored"):
        await ObjectRoot(Hiding(stored)).now_us()


async def test_the_clock_leaves_no_object() -> None:
    stored = bucket(lambda: 5_000_001)
    assert await root(stored).now_us() == 5_000_000
    assert not stored.stored
