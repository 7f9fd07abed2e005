"""The contract of every SegmentStore, on any medium."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, journal_name, producers_document
from seaweedmq.codec.state.documents import lineage_document, lineage_from_document, topic_document, topic_from_document
from seaweedmq.errors import AlreadyExists, Closed, NotFound, StorageFailed
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.stores import open_store
from tests.doubles.memory_store import MemorySegmentStore
from tests.support.moto_server import MotoServer, point_to
from tests.support.segments import NAME, make_preamble, make_segment, make_topic
from tests.support.stores import TABLE, bucket, marker, mount, new_folder, object_store, put_log, put_table, unmount

OTHER = TopicName("shop", "other")
JOURNAL = journal_name(0, 1, 1)


@pytest.fixture(params=["files", "memory", "objects", "moto"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SegmentStore]:
    made: FileSegmentStore | MemorySegmentStore | ObjectSegmentStore
    match request.param:
        case "files":
            made = FileSegmentStore(new_folder(tmp_path))
        case "memory":
            made = MemorySegmentStore(lambda: 1_000)
        case "objects":
            made = object_store(bucket())
        case _:
            moto: MotoServer = request.getfixturevalue("moto")
            point_to(moto, monkeypatch.setenv, monkeypatch.delenv)
            made = open_store(f"s3://{moto.new_bucket()}/pre fix/städte", random.Random(1))
    yield made
    await made.close()


async def content_of(store: SegmentStore, file: SegmentFile) -> bytes:
    reader = await store.open(file)
    data = bytes(await reader.read(0, 10**6))
    await reader.close()
    return data


def document_in(store: SegmentStore, path: str) -> bytes:
    """Read a document as Spark does."""
    if isinstance(store, MemorySegmentStore):
        return bytes(store.files[path].data)
    assert isinstance(store, (FileSegmentStore, ObjectSegmentStore))
    return store.place.read(path)


async def put_topic(store: SegmentStore, uid: int = 7, revision: int = 1, pruned: IdRanges | None = None) -> None:
    topic = replace(make_topic(uid=uid), pruned=pruned or IdRanges())
    documents = {TOPIC_DOCUMENT: topic_document(topic), LINEAGE_DOCUMENT: lineage_document(NAME, [make_segment()])}
    await store.put_documents(NAME, documents, uid=uid, revision=revision)


async def test_files_are_listed_by_segment_offset_and_writer_with_what_their_names_say(store: SegmentStore) -> None:
    await put_topic(store)
    before = await store.now_us()
    for segment in (10, 1, 0):
        for base, writer in ((10, "b-1"), (0, "b-2"), (0, "b-1")):
            await put_log(store, base, b"x", writer=writer, segment=segment)
    listed = {segment: await store.list_files(NAME, segment) for segment in (0, 1, 10)}
    for segment, files in listed.items():
        found = [(f.segment, f.base_offset, f.writer) for f in files]
        assert found == [(segment, 0, "b-1"), (segment, 0, "b-2"), (segment, 10, "b-1")]
        assert await store.list_files(NAME, segment, uid=7, covering=5) == files
    assert await store.list_topic_files(NAME) == [file for files in listed.values() for file in files]
    assert await store.list_topic_files(NAME, uid=7) == await store.list_topic_files(NAME)
    first = listed[0][0]
    end = 10 if isinstance(store, ObjectSegmentStore) else None
    assert (first.topic, first.kind, first.end_offset) == (NAME, FileKind.LOG, end)
    assert first.size_bytes == len(make_preamble(0)) + 1
    assert 0 < before <= first.modified_us <= await store.now_us()
    assert await store.list_files(NAME, 2) == []
    assert await store.list_files(OTHER, 0) == await store.list_topic_files(OTHER) == []


async def test_reading_at_any_position_and_beyond_the_end(store: SegmentStore) -> None:
    file = await put_log(store, 0, b"0123456789")
    start = file.size_bytes - 10
    reader = await store.open(file)
    assert await reader.read(start + 2, 3) == b"234"
    assert await reader.read(start + 8, 100) == b"89"
    assert await reader.read(file.size_bytes + 5, 10) == b""
    await reader.close()
    with pytest.raises(Closed):
        await reader.read(0, 1)


async def test_a_table_is_read_at_any_position_by_a_thread(store: SegmentStore) -> None:
    await put_topic(store)
    await put_table(store, 0, 10)
    (file,) = await store.list_files(NAME, 0)
    assert (file.kind, file.base_offset, file.end_offset, file.writer) == (FileKind.TABLE, 0, 10, "")
    source = await store.open_input(file)

    def read() -> None:
        assert source.seek(0, os.SEEK_END) == file.size_bytes == len(TABLE)
        assert (source.seek(2), source.read(3), source.tell()) == (2, b"R1x", 5)
        assert source.read(100) == TABLE[5:]
        assert source.read(1) == b""
        source.close()
        assert source.closed

    await asyncio.to_thread(read)


async def test_deleted_files_are_gone_and_may_be_deleted_again(store: SegmentStore) -> None:
    await put_topic(store)
    await put_table(store, 0, 10)
    await put_log(store, 0, b"x")
    files = await store.list_files(NAME, 0)
    log, table = sorted(files, key=lambda file: file.kind)
    await store.delete(files)
    await store.delete(files)
    await store.delete([])
    assert await store.list_files(NAME, 0) == []
    with pytest.raises(NotFound, match=r"\.log was deleted: list the segment's files again"):
        await content_of(store, log)
    with pytest.raises((NotFound, FileNotFoundError), match=r"was deleted"):
        await asyncio.to_thread((await store.open_input(table)).read)


async def test_documents_are_replaced_whole_and_are_not_segment_files(store: SegmentStore) -> None:
    assert await store.list_documents(NAME) == []
    with pytest.raises(NotFound):
        await store.read_document(NAME, LINEAGE_DOCUMENT)
    await put_topic(store)
    await put_topic(store, revision=2, pruned=IdRanges(((3, 4),)))
    for content in (
        await store.read_document(NAME, TOPIC_DOCUMENT),
        await asyncio.to_thread(document_in, store, document_path(NAME, TOPIC_DOCUMENT)),
    ):
        topic = topic_from_document(content)
        assert (topic.uid, topic.pruned) == (7, IdRanges(((3, 4),)))
    assert lineage_from_document(await store.read_document(NAME, LINEAGE_DOCUMENT)) == (NAME, (make_segment(),))
    await store.put_documents(NAME, {producers_document(3): b"{}"}, uid=7, revision=0)
    assert await store.read_document(NAME, producers_document(3)) == b"{}"
    assert await store.list_documents(NAME) == [LINEAGE_DOCUMENT, producers_document(3), TOPIC_DOCUMENT]
    assert await store.list_files(NAME, 0) == []
    assert await store.used_segments(NAME) == {3}


async def test_a_deleted_topic_leaves_its_name_free_and_a_late_deletion_spares_the_next(store: SegmentStore) -> None:
    assert await store.with_folder([NAME, OTHER]) == frozenset()
    await put_topic(store)
    await put_log(store, 0, b"old")
    await put_table(store, 0, 10)
    await store.record_removed(NAME, 7, {3: 5})
    assert (await store.with_folder([NAME, OTHER]), await store.list_topics()) == ({NAME}, [NAME])
    assert await store.has_topics()
    await store.delete_topic(NAME, 7, revision=8)
    await store.delete_topic(NAME, 7, revision=8)
    assert await store.list_files(NAME, 0) == await store.list_files(NAME, 0, uid=7) == []
    assert (await store.with_folder([NAME]), await store.list_topics()) == (frozenset(), [])
    assert (await store.list_documents(NAME), await store.used_segments(NAME)) == ([], frozenset())
    assert await store.deleted_topics() == {7}
    assert not await store.has_topics()
    await put_topic(store, uid=8, revision=9)
    await put_log(store, 0, b"new", uid=8)
    await store.delete_topic(NAME, 7, revision=8)
    await store.sweep_deleted()
    assert len(await store.list_files(NAME, 0)) == 1
    assert await store.list_topics() == [NAME]


async def test_what_the_document_calls_pruned_is_swept_away(store: SegmentStore) -> None:
    with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
        await store.sweep(NAME, 7, kept_s=0.0)
    await put_topic(store)
    await put_log(store, 0, b"x")
    kept = await put_log(store, 0, b"x", segment=2)
    await put_table(store, 0, 10, segment=1)
    await store.put_documents(NAME, {producers_document(1): b"{}"}, uid=7, revision=0)
    await store.record_removed(NAME, 7, {1: 5, 2: 5})
    await store.sweep(NAME, 7, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 3, "nothing is pruned yet"
    await put_topic(store, revision=2, pruned=IdRanges(((0, 2),)))
    await store.sweep(NAME, 8, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 3, "these are not of topic 8"
    await store.sweep(NAME, 7, kept_s=0.0)
    await store.sweep(NAME, 7, kept_s=0.0)
    assert [file.path for file in await store.list_topic_files(NAME)] == [kept.path]
    assert (await store.used_segments(NAME), await store.removed(NAME, 7)) == ({2}, {2: 5})


async def test_the_highest_removal_of_a_segment_holds(store: SegmentStore) -> None:
    await put_topic(store)
    assert await store.removed(NAME, 7) == {}
    for offset in (10, 30, 20, 30):
        await store.record_removed(NAME, 7, {0: offset, 4: 1})
    assert (await store.removed(NAME, 7), await store.removed(NAME, 8)) == ({0: 30, 4: 1}, {})


async def test_a_number_is_claimed_once(store: SegmentStore) -> None:
    await store.create_claim(ClaimKind.NODE_IDS, 5, b"host:1")
    await store.create_claim(ClaimKind.PRODUCER_IDS, 5, b"")
    with pytest.raises(AlreadyExists, match="number 5 is taken"):
        await store.create_claim(ClaimKind.NODE_IDS, 5, b"host:2")
    assert await store.read_claims(ClaimKind.NODE_IDS) == {5: b"host:1"}
    assert await store.read_claims(ClaimKind.PRODUCER_IDS) == {5: b""}
    await store.delete_claims(ClaimKind.NODE_IDS, [5, 6])
    await store.delete_claims(ClaimKind.NODE_IDS, [])
    assert await store.read_claims(ClaimKind.NODE_IDS) == {}


async def test_a_journal_grows_until_it_is_deleted(store: SegmentStore) -> None:
    with pytest.raises(NotFound):
        await store.read_journal(JOURNAL)
    journal = await store.create_journal(JOURNAL)
    with pytest.raises(AlreadyExists):
        await store.create_journal(JOURNAL)
    assert (await store.list_journals(), await store.read_journal(JOURNAL)) == ([JOURNAL], b"")
    await journal.append([b"one", memoryview(b"two")])
    await journal.append([])
    assert await store.read_journal(JOURNAL) == b"onetwo"
    await journal.append([b"x" * 100_000])
    await journal.append([b"end"], sync=True)
    await journal.sync()
    assert journal.size_bytes == 100_009
    assert await store.read_journal(JOURNAL) == b"onetwo" + b"x" * 100_000 + b"end"
    await journal.close()
    with pytest.raises(Closed):
        await journal.append([b"more"])
    await store.delete_journals([JOURNAL, journal_name(0, 1, 2)])
    assert await store.list_journals() == []
    with pytest.raises(NotFound):
        await store.read_journal(JOURNAL)


async def test_the_marker_is_created_once_and_replaced_and_one_of_others_rejected(store: SegmentStore) -> None:
    assert await store.read_marker() is None
    with pytest.raises(StorageFailed, match=r"has no cluster\.json"):
        await store.replace_marker(marker())
    assert await store.create_marker(marker()) == marker()
    assert await store.create_marker(marker("two")) == marker(), "the first one counts"
    await store.replace_marker(marker(revision=7))
    assert await store.read_marker() == marker(revision=7)
    with pytest.raises(StorageFailed, match="belongs to cluster one, not to two"):
        await store.replace_marker(marker("two"))
    store.bind("two")
    for call in (store.verify_root, store.list_topics):
        with pytest.raises(StorageFailed, match="belongs to cluster one, not to two"):
            await call()
    store.bind("one")
    await store.verify_root()
    assert await store.list_topics() == []


async def test_without_its_marker_a_bound_storage_does_nothing(store: SegmentStore, tmp_path: Path) -> None:
    if isinstance(store, ObjectSegmentStore) and store.uri.startswith("s3:"):
        pytest.skip("the bucket in memory shows it")
    await store.create_marker(marker())
    store.bind("one")
    assert not await store.has_topics()
    await put_topic(store)
    assert await store.has_topics()
    file = await put_log(store, 0, b"before")
    table = await put_table(store, 0, 10, segment=1)
    mounted = unmount(store, tmp_path / "aside")
    refused: list[Callable[[], Awaitable[object]]] = [
        store.check,
        store.now_us,
        store.verify_root,
        lambda: put_log(store, 100, b"x"),
        lambda: store.list_files(NAME, 0),
        lambda: store.list_files(NAME, 0, uid=7, covering=0),
        lambda: store.list_topic_files(NAME),
        lambda: store.open(file),
        lambda: store.open_input(file),
        lambda: store.delete([file]),
        lambda: put_topic(store, revision=2),
        lambda: store.record_removed(NAME, 7, {0: 1}),
        lambda: store.removed(NAME, 7),
        store.list_topics,
        lambda: store.with_folder([NAME]),
        store.deleted_topics,
        lambda: store.used_segments(NAME),
        lambda: store.list_documents(NAME),
        lambda: store.read_document(NAME, TOPIC_DOCUMENT),
        lambda: store.create_claim(ClaimKind.NODE_IDS, 1, b""),
        lambda: store.read_claims(ClaimKind.NODE_IDS),
        lambda: store.create_journal(JOURNAL),
        store.list_journals,
        lambda: store.read_journal(JOURNAL),
        lambda: store.delete_journals([JOURNAL]),
        lambda: store.sweep(NAME, 7, kept_s=0),
        lambda: store.delete_topic(NAME, 7, revision=8),
    ]
    for call in refused:
        with pytest.raises(StorageFailed, match=r"has no cluster\.json, so it (is not mounted or|was emptied or)"):
            await call()
    mount(store, tmp_path / "aside", mounted)
    assert [each.path for each in await store.list_topic_files(NAME)] == [file.path, table]
    await store.check()
