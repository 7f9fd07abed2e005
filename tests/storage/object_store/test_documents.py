"""Documents on an object store: late, doubled and competing writes."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path
from seaweedmq.codec.state.document_versions import DocumentVersion, version_of, with_version
from seaweedmq.codec.state.documents import topic_document, topic_from_document
from seaweedmq.errors import Corrupt, NotFound, StorageFailed
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.object_store import documents
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from tests.doubles.memory_objects import MemoryBucket, ObjectAnswer, ObjectOp, ObjectRequest
from tests.support.object_carriers import LateWrites, doubled
from tests.support.segments import NAME, make_topic
from tests.support.stores import bucket, object_store, put_log

PATH = document_path(NAME, TOPIC_DOCUMENT)


async def put(store: SegmentStore, revision: int, uid: int = 7) -> None:
    """Put a document whose content shows its revision."""
    topic = replace(make_topic(uid=uid), pruned=IdRanges(((0, revision),)))
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(topic)}, uid=uid, revision=revision)


async def shown(store: SegmentStore) -> tuple[int, int]:
    """Return uid and revision of the document."""
    topic = topic_from_document(await store.read_document(NAME, TOPIC_DOCUMENT))
    return topic.uid, topic.pruned.ranges[0][1]


@pytest.fixture
def stored() -> MemoryBucket:
    return bucket()


async def test_a_lower_or_equal_revision_changes_nothing(stored: MemoryBucket) -> None:
    store = object_store(stored)
    await put(store, 5)
    before = stored.stored[PATH]
    await put(store, 4)
    await put(store, 5)
    assert stored.stored[PATH] is before
    await put(store, 6)
    assert await shown(store) == (7, 6)


@pytest.mark.parametrize("first", [0, 3])
async def test_a_write_of_a_deposed_leader_that_is_applied_late_changes_nothing(
    stored: MemoryBucket, first: int
) -> None:
    network = LateWrites(stored, lambda request: True)
    deposed, leader = object_store(stored, network.carry), object_store(stored)
    if first:
        await put(leader, first)
    with pytest.raises(StorageFailed):
        await put(deposed, 5)
    await put(leader, 6)
    assert all(isinstance(answer, Exception) for answer in network.release())
    assert await shown(leader) == (7, 6)


async def test_a_write_whose_answer_is_lost_succeeds(stored: MemoryBucket) -> None:
    store = object_store(stored, doubled(stored))
    for revision in (1, 2):
        await put(store, revision)
        assert await shown(store) == (7, revision)
    await store.delete_topic(NAME, 7, revision=5)
    assert await store.list_topics() == []


async def test_of_competing_writers_the_highest_revision_remains(stored: MemoryBucket) -> None:
    async def carry(request: ObjectRequest) -> ObjectAnswer:
        await asyncio.sleep(0)  # the others read the same version first
        return stored.apply(request)

    stores = [object_store(stored, carry) for _ in range(4)]
    await asyncio.gather(*(put(store, revision) for revision, store in enumerate(stores, 1)))
    assert await shown(stores[0]) == (7, 4)


async def test_a_document_that_others_always_change_is_an_error(
    stored: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PAUSE_S_FIRST", 0.0)

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        answer = stored.apply(request)
        if request.op is ObjectOp.GET:
            stored.apply(ObjectRequest(op=ObjectOp.PUT, key=PATH, content=b"{}"))
        return answer

    with pytest.raises(StorageFailed, match=r"topic\.json is not written: other processes wrote it 10 times"):
        await put(object_store(stored, carry), 1)


async def test_a_deleted_topic_has_no_more_documents(stored: MemoryBucket) -> None:
    network = LateWrites(stored, lambda request: True)
    store, deposed = object_store(stored), object_store(stored, network.carry)
    await put(store, 5)
    with pytest.raises(StorageFailed):
        await put(deposed, 6)
    await store.delete_topic(NAME, 7, revision=5)
    assert all(isinstance(answer, Exception) for answer in network.release())
    with pytest.raises(StorageFailed, match="the topic was deleted"):
        await put(store, 9)
    with pytest.raises(NotFound):
        await store.read_document(NAME, TOPIC_DOCUMENT)
    assert await store.list_documents(NAME) == []
    await put(store, 4, uid=8)
    assert await store.list_documents(NAME) == [], "a lower revision is of an earlier topic"
    await put(store, 6, uid=8)
    assert await shown(store) == (8, 6)


async def test_a_creation_that_is_applied_after_the_deletion_changes_nothing(stored: MemoryBucket) -> None:
    """The topic was deleted before its first document was written."""
    network = LateWrites(stored, lambda request: True)
    with pytest.raises(StorageFailed):
        await put(object_store(stored, network.carry), 1)
    store = object_store(stored)
    await store.delete_topic(NAME, 7, revision=5)
    network.release()
    assert await store.list_topics() == []
    await put(store, 6, uid=8)
    assert await shown(store) == (8, 6)


async def test_deletion_spares_the_documents_of_a_recreated_topic(stored: MemoryBucket) -> None:
    store = object_store(stored)
    await put(store, 5, uid=8)
    await store.delete_topic(NAME, 7, revision=5)
    assert await shown(store) == (8, 5)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"deleted": []}', b'{"v": 1}' + b" " * 500])
async def test_a_damaged_document_is_replaced_and_hides_nothing(stored: MemoryBucket, content: bytes) -> None:
    store = object_store(stored)
    await store.objects.put(PATH, [content])
    log = await put_log(store, 0, b"x")
    assert (await store.list_topics(), await store.with_folder([NAME])) == ([NAME], {NAME})
    assert [each.path for each in await store.list_topic_files(NAME)] == [log.path]
    assert await store.list_documents(NAME) == [TOPIC_DOCUMENT]
    with pytest.raises(Corrupt):
        await store.sweep(NAME, 7, kept_s=0)
    await put(store, 1)
    assert await shown(store) == (7, 1)


async def test_a_damaged_document_is_deleted_with_its_topic(stored: MemoryBucket) -> None:
    store = object_store(stored)
    await store.objects.put(PATH, [b"{"])
    await store.delete_topic(NAME, 7, revision=5)
    assert await store.list_topics() == []


async def test_a_document_that_another_program_wrote_is_of_its_topic(stored: MemoryBucket) -> None:
    store = object_store(stored)
    await store.objects.put(PATH, [topic_document(make_topic(uid=8))])
    await store.delete_topic(NAME, 7, revision=5)
    assert topic_from_document(await store.read_document(NAME, TOPIC_DOCUMENT)).uid == 8
    await put(store, 1, uid=8)
    assert await shown(store) == (8, 1)


async def test_topic_and_lineage_are_both_replaced_although_one_fails(stored: MemoryBucket) -> None:
    network = LateWrites(stored, lambda request: request.key == PATH)
    store = object_store(stored, network.carry)
    with pytest.raises(StorageFailed):
        await store.put_documents(NAME, {TOPIC_DOCUMENT: b'{"v": 1}', LINEAGE_DOCUMENT: b'{"v": 1}'}, uid=7, revision=1)
    assert list(stored.stored) == [document_path(NAME, LINEAGE_DOCUMENT)]


def test_versions_are_read_from_the_first_bytes() -> None:
    version = DocumentVersion(uid=2**63, revision=3 << 40)
    for content in (b'{"v": 1}', b'{\n  "v": 1\n}\n'):
        assert version_of(with_version(content, version)) == version
    assert version_of(b'{"v": 1}') is None
    assert version_of(b'{"v": 1, "deleted": "7"}') == DocumentVersion(uid=7, revision=0, is_deleted=True)


async def test_the_store_is_one_of_the_port(stored: MemoryBucket) -> None:
    store: SegmentStore = object_store(stored)
    assert isinstance(store, ObjectSegmentStore)
