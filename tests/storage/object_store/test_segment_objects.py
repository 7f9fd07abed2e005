"""Log objects, and tables that retention removes."""

import logging
from dataclasses import replace

import pytest

from seaweedmq.codec.object_keys import TopicKey
from seaweedmq.codec.paths import DELETED_TOPICS, TOPIC_DOCUMENT, removed_dir
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound, StorageFailed
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.object_store import topic_objects
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from tests.doubles.memory_objects import ObjectOp, ObjectRequest
from tests.support.object_carriers import LateWrites, doubled
from tests.support.segments import NAME, make_topic
from tests.support.stores import bucket, object_store, put_log, put_table

S = 1_000_000


class Clock:
    """The clock of a store."""

    def __init__(self) -> None:
        self.us = 1_700_000_000 * S

    def __call__(self) -> int:
        return self.us


async def with_topic(store: ObjectSegmentStore, uid: int = 7) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=uid))}, uid=uid, revision=uid)


async def test_a_log_object_of_the_same_bytes_is_its_own_and_of_others_corrupt() -> None:
    store = object_store(bucket())
    log = await put_log(store, 0, b"frames")
    assert (await put_log(store, 0, b"frames")).path == log.path
    for content in (b"framez", b"frames and more", b""):
        with pytest.raises(Corrupt, match=r"-b-1\.log exists with other content"):
            await put_log(store, 0, content)
    with pytest.raises(InvalidArgument):
        await store.create_log_object(NAME, 7, 0, base_offset=5, end_offset=5, writer="b-1", content=[b""])
    with pytest.raises(InvalidArgument):
        await store.create_log_object(NAME, 7, 0, base_offset=5, end_offset=6, writer="../b", content=[b""])


async def test_a_log_object_whose_answer_is_lost_is_created_once() -> None:
    stored = bucket()
    store = object_store(stored, doubled(stored))
    log = await put_log(store, 0, b"frames")
    assert [each.path for each in await store.list_files(NAME, 0, uid=7)] == [log.path]
    network = LateWrites(stored, lambda request: request.op is ObjectOp.CREATE)
    late = object_store(stored, network.carry)
    with pytest.raises(StorageFailed):
        await put_log(late, 10, b"frames")
    network.is_late = lambda request: False
    again = await put_log(late, 10, b"frames")
    network.late.append(ObjectRequest(op=ObjectOp.CREATE, key=again.path, content=b"late"))
    network.release()
    assert stored.stored[again.path].content.endswith(b"frames")


async def test_a_table_that_retention_removes_is_hidden_and_deleted_when_its_readers_are_done() -> None:
    clock = Clock()
    stored = bucket(clock)
    store, other = object_store(stored), object_store(stored)
    await with_topic(store)
    paths = [await put_table(store, base, base + 10) for base in (0, 10, 20)]
    old, *_ = await store.list_files(NAME, 0, uid=7)
    await store.record_removed(NAME, 7, {0: 10})
    await store.delete([old])
    for each in (store, other):
        assert [file.path for file in await each.list_files(NAME, 0)] == paths[1:]
    assert paths[0] in stored.stored, "a reader that found it reads on"
    clock.us += 50 * S
    await store.record_removed(NAME, 7, {0: 20})
    await store.sweep(NAME, 7, kept_s=60)
    assert paths[0] in stored.stored
    clock.us += 10 * S
    await store.sweep(NAME, 7, kept_s=60, now_us=clock.us - 1)
    assert paths[0] in stored.stored, "the clock of the caller is behind"
    await store.sweep(NAME, 7, kept_s=60, now_us=clock.us)
    assert [path in stored.stored for path in paths] == [False, True, True]
    assert await store.removed(NAME, 7) == {0: 20}
    clock.us += 50 * S
    await store.sweep(NAME, 7, kept_s=60)
    assert [path in stored.stored for path in paths] == [False, False, True]
    marks = [key for key in stored.stored if key.startswith(removed_dir(NAME))]
    assert len(marks) == 1, "the highest removal stays"
    assert await store.removed(NAME, 7) == {0: 20}


async def test_a_hidden_table_of_a_pruned_segment_stays_as_long() -> None:
    clock = Clock()
    stored = bucket(clock)
    store = object_store(stored)
    table, log = await put_table(store, 0, 10), await put_log(store, 10, b"x")
    await store.record_removed(NAME, 7, {0: 10})
    topic = replace(make_topic(), pruned=IdRanges(((0, 1),)))
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(topic)}, uid=7, revision=1)
    await store.sweep(NAME, 7, kept_s=60)
    assert (table in stored.stored, log.path in stored.stored) == (True, False)
    assert await store.removed(NAME, 7) == {0: 10}, "the mark hides it"
    clock.us += 60 * S
    await store.sweep(NAME, 7, kept_s=60)
    assert (table in stored.stored, await store.removed(NAME, 7)) == (False, {})


async def test_without_tables_to_delete_a_sweep_reads_no_clock() -> None:
    stored = bucket()
    store = object_store(stored)
    await with_topic(store)
    await put_table(store, 0, 10)
    before = stored.applied[ObjectOp.PUT]
    await store.sweep(NAME, 7, kept_s=0)
    assert stored.applied[ObjectOp.PUT] == before


async def test_what_arrives_late_for_a_deleted_topic_leaves_the_name_free() -> None:
    stored = bucket()
    network = LateWrites(stored, lambda request: request.key.endswith(".log"))
    store, late = object_store(stored), object_store(stored, network.carry)
    await with_topic(store)
    with pytest.raises(StorageFailed):
        await put_log(late, 0, b"late")
    await store.delete_topic(NAME, 7, revision=7)
    network.release()
    assert (await store.with_folder([NAME]), await store.list_topics()) == (frozenset(), [])
    assert await store.list_topic_files(NAME) == []
    await with_topic(store, uid=8)
    assert await store.list_topic_files(NAME) == []
    assert any(key.startswith(TopicKey(NAME, 7).folder) for key in stored.stored)
    await store.delete_topic(NAME, 7, revision=7)
    assert not any(key.startswith(TopicKey(NAME, 7).folder) for key in stored.stored)


async def test_a_sweep_of_deleted_topics_takes_what_was_late() -> None:
    store = object_store(bucket())
    await with_topic(store)
    await store.delete_topic(NAME, 7, revision=7)
    log = await put_log(store, 0, b"late")
    await store.sweep_deleted()
    with pytest.raises(NotFound):
        await store.objects.head(log.path)


async def test_records_without_a_document_are_listed_until_their_topic_is_known_as_deleted() -> None:
    """The document is lost: a recovery reads the topic from its log objects."""
    store = object_store(bucket())
    first, second = await put_log(store, 0, b"x", uid=7), await put_log(store, 0, b"x", uid=9)
    assert await store.list_topics() == [NAME]
    assert [each.path for each in await store.list_topic_files(NAME)] == [first.path, second.path]
    await store.objects.put(f"{DELETED_TOPICS}/9", [])
    assert [each.path for each in await store.list_topic_files(NAME)] == [first.path]
    assert await store.used_segments(NAME) == {0}


async def test_the_oldest_records_of_deleted_topics_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_objects, "DELETED_TOPICS_MAX", 2)
    monkeypatch.setattr(topic_objects, "DELETED_TOPICS_SPARE", 1)
    clock = Clock()
    store = object_store(bucket(clock))
    for uid in (30, 20, 10, 40):
        await store.delete_topic(NAME, uid, revision=7)
        clock.us += S
    assert await store.deleted_topics() == {10, 40}


FOREIGN = (
    "topics/readme.txt",
    "topics/shop/readme.txt",
    "topics/Shop!/or ders/topic.json",
    "topics/shop/.sinks/orders/q-7",
    "topics/shop/orders/notes.json",
    "topics/shop/orders/007/log/00000000/x",
    "topics/shop/orders/²/log/00000000/x",
    "topics/shop/orders/7/log/00000000/x.log",
    "topics/shop/orders/7/log/00000000/00000000000000000000-00000000000000000010-b-1.log.tmp",
    "topics/shop/orders/7/log/00000001/00000000000000000010-00000000000000000010-b-1.log",
    "topics/shop/orders/7/table/part-0.parquet",
    "topics/shop/orders/7/table/_delta_log/00000000000000000000.json",
    "topics/shop/orders/7/producers-1.json",
    "topics/shop/orders/.removed/x",
    "topics/.deleted/x",
    "kafka/node-ids/x",
    "groups/x.journal/0",
    "groups/00000000-00000000000000000001-000001.journal",
    "cluster.json.bak",
)


async def test_foreign_objects_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    stored = bucket()
    store = object_store(stored)
    await with_topic(store)
    log = await put_log(store, 0, b"x")
    for key in FOREIGN:
        await store.objects.put(key, [b"foreign"])
    with caplog.at_level(logging.WARNING):
        assert [each.path for each in await store.list_topic_files(NAME)] == [log.path]
        assert await store.list_topics() == [NAME]
    assert "part-0.parquet is not a file of SeaweedMQ" in caplog.text
    assert (await store.used_segments(NAME), await store.removed(NAME, 7)) == ({0}, {})
    assert (await store.deleted_topics(), await store.read_claims(ClaimKind.NODE_IDS)) == (frozenset(), {})
    assert (await store.list_journals(), await store.list_documents(NAME)) == ([], [TOPIC_DOCUMENT])
    assert await store.with_folder([NAME, TopicName("shop", "other")]) == {NAME}
    await store.sweep(NAME, 7, kept_s=0)
    assert set(FOREIGN) <= stored.stored.keys()
