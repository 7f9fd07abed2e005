"""The contract of every SegmentStore, on any medium."""

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, journal_name, table_path
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import AlreadyExists, Closed, NotFound, StorageFailed
from seaweedmq.model.cluster import STORAGE_FORMAT, StorageMarker
from seaweedmq.model.files import FileKind
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.store.files import FileSegmentStore
from tests.doubles.memory_store import MemoryFile, MemorySegmentStore
from tests.support.segments import NAME, begin_log, make_preamble, make_topic, write_log

TABLE = b"PAR1xyz"


@pytest.fixture(params=["files", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SegmentStore]:
    made = FileSegmentStore(_folder(tmp_path)) if request.param == "files" else MemorySegmentStore(lambda: 1_000)
    yield made
    await made.close()


def _folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


async def read_all(store: SegmentStore, path: str) -> bytes:
    file = next(f for f in await store.list_files(NAME, 0) if f.path == path)
    reader = await store.open(file)
    data = bytes(await reader.read(0, 10**6))
    await reader.close()
    return data


async def put_table(store: SegmentStore, path: str, content: bytes = TABLE) -> None:
    """Put a table as a converter does."""
    if isinstance(store, MemorySegmentStore):
        await store.put_file(path, content)
        return
    assert isinstance(store, FileSegmentStore)
    table = store.place.root / path
    await asyncio.to_thread(table.parent.mkdir, parents=True, exist_ok=True)
    await asyncio.to_thread(table.write_bytes, content)


def document_in(store: SegmentStore, path: str) -> bytes:
    """Read a document as Spark does."""
    if isinstance(store, MemorySegmentStore):
        return bytes(store.files[path].data)
    assert isinstance(store, FileSegmentStore)
    return (store.place.root / path).read_bytes()


async def test_a_log_that_is_put_holds_its_preamble_and_is_put_once(store: SegmentStore) -> None:
    await store.put_log(NAME, 0, 10, "b-1.synced", make_preamble(10))
    (file,) = await store.list_files(NAME, 0)
    assert (file.kind, file.base_offset, file.writer) == (FileKind.LOG, 10, "b-1.synced")
    assert await read_all(store, file.path) == make_preamble(10)
    with pytest.raises(AlreadyExists):
        await store.put_log(NAME, 0, 10, "b-1.synced", b"others")
    assert await read_all(store, file.path) == make_preamble(10)
    assert len(await store.list_files(NAME, 0)) == 1


async def test_a_log_is_created_once_and_holds_its_preamble_and_what_was_appended(store: SegmentStore) -> None:
    log = await begin_log(store, 0)
    await log.append([b"one", memoryview(b"two"), b""])
    await log.append([])
    await asyncio.gather(log.append([b"three"]), log.sync(), log.sync())
    assert log.size_bytes == len(make_preamble(0)) + 11
    assert await read_all(store, log.path) == make_preamble(0) + b"onetwothree"
    pieces = [b"%06d" % i for i in range(5_000)]  # more than one call takes
    await log.append(pieces)
    assert (await read_all(store, log.path)).endswith(b"three" + b"".join(pieces))
    with pytest.raises(AlreadyExists):
        await begin_log(store, 0)
    await write_log(store, 0, [b"another writer"], writer="b-2")
    assert len(await store.list_files(NAME, 0)) == 2
    await log.close()
    await log.close()
    with pytest.raises(Closed):
        await log.append([b"x"])
    with pytest.raises(Closed):
        await log.sync()


async def test_files_are_listed_by_segment_offset_and_writer_with_what_their_names_say(store: SegmentStore) -> None:
    before = await store.now_us()
    for segment in (10, 1, 0):
        for base, writer in ((10, "b-1"), (0, "b-2"), (0, "b-1")):
            await write_log(store, base, [b"x"], writer=writer, segment=segment)
    listed = {segment: await store.list_files(NAME, segment) for segment in (0, 1, 10)}
    for segment, files in listed.items():
        found = [(f.segment, f.base_offset, f.writer) for f in files]
        assert found == [(segment, 0, "b-1"), (segment, 0, "b-2"), (segment, 10, "b-1")]
    assert await store.list_topic_files(NAME) == [file for files in listed.values() for file in files]
    first = listed[0][0]
    assert (first.topic, first.kind, first.end_offset) == (NAME, FileKind.LOG, None)
    assert first.size_bytes == len(make_preamble(0)) + 1
    assert 0 < before <= first.modified_us <= await store.now_us()
    assert await store.list_files(NAME, 2) == []
    other = TopicName("shop", "other")
    assert await store.list_files(other, 0) == await store.list_topic_files(other) == []


async def test_reading_at_any_position_and_beyond_the_end(store: SegmentStore) -> None:
    file = await write_log(store, 0, [b"0123456789"])
    start = file.size_bytes - 10
    reader = await store.open(file)
    assert await reader.read(start + 2, 3) == b"234"
    assert await reader.read(start + 8, 100) == b"89"
    assert await reader.read(file.size_bytes + 5, 10) == b""
    await reader.close()
    with pytest.raises(Closed):
        await reader.read(0, 1)


async def test_a_table_is_read_at_any_position_by_a_thread(store: SegmentStore) -> None:
    await put_table(store, table_path(NAME, 0, 0, 10))
    (file,) = await store.list_files(NAME, 0)
    source = await store.open_input(file)

    def read() -> None:
        assert source.seek(0, os.SEEK_END) == file.size_bytes == len(TABLE)
        assert (source.seek(2), source.read(3), source.tell()) == (2, b"R1x", 5)
        assert source.read(100) == TABLE[5:]
        assert source.read(1) == b""
        source.close()
        assert source.closed
        with pytest.raises(ValueError, match="closed"):
            source.read(1)

    await asyncio.to_thread(read)


async def test_arrow_reads_a_table_as_it_was_when_it_was_opened(store: SegmentStore) -> None:
    """A reader that has it open reads it to its end, though retention removes it. (NFS may answer ESTALE.)"""
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(range(1_000))}), sink)
    await put_table(store, table_path(NAME, 0, 0, 10), sink.getvalue())
    (file,) = await store.list_files(NAME, 0)
    source = await store.open_input(file)
    await store.delete([file])

    def read() -> int:
        with contextlib.closing(source), pq.ParquetFile(source) as table:
            return sum(table.read().column("n").to_pylist())

    assert await asyncio.to_thread(read) == sum(range(1_000))


async def test_deleted_files_are_gone_and_may_be_deleted_again(store: SegmentStore) -> None:
    await put_table(store, table_path(NAME, 0, 0, 10))
    await write_log(store, 0, [b"x"])
    files = await store.list_files(NAME, 0)
    log, table = sorted(files, key=lambda file: file.kind)
    await store.delete(files)
    await store.delete(files)
    assert await store.list_files(NAME, 0) == []
    with pytest.raises(NotFound):
        await store.open(log)
    with pytest.raises(NotFound, match=r"\.parquet was deleted: list the segment's files again"):
        await store.open_input(table)


async def test_documents_are_replaced_whole_and_are_not_segment_files(store: SegmentStore) -> None:
    await store.put_documents(NAME, {"lineage.json": b"{}"})
    await store.put_documents(NAME, {"lineage.json": b'{"v": 2}'})
    path = document_path(NAME, "lineage.json")
    assert await asyncio.to_thread(document_in, store, path) == b'{"v": 2}'
    assert await store.list_files(NAME, 0) == []


async def test_a_deleted_topic_leaves_its_name_free_and_a_late_deletion_spares_the_next(store: SegmentStore) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))})
    await write_log(store, 0, [b"old"])
    await store.delete_topic(NAME, 7)
    await store.delete_topic(NAME, 7)
    assert await store.list_files(NAME, 0) == []
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=8))})
    await write_log(store, 0, [b"new"], uid=8)
    await store.delete_topic(NAME, 7)
    assert len(await store.list_files(NAME, 0)) == 1


async def test_anybody_makes_durable_what_a_dead_writer_left(store: SegmentStore) -> None:
    log = await begin_log(store, 0)
    await log.append([b"left behind"])
    files = await store.list_files(NAME, 0)
    await store.sync_files(files)
    if isinstance(store, MemorySegmentStore):
        store.crash()
    assert (await read_all(store, files[0].path)).endswith(b"left behind")
    await store.delete(files)
    await store.sync_files(files)
    await log.close()


async def test_a_fence_is_of_one_segment_and_no_file(store: SegmentStore, caplog: pytest.LogCaptureFixture) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))})
    file = await write_log(store, 0, [b"x"], segment=1)
    assert not await store.is_fenced(NAME, 7, 1)
    await store.fence(NAME, 7, 1)
    await store.fence(NAME, 7, 1)
    assert await store.list_files(NAME, 1) == await store.list_topic_files(NAME) == [file]
    assert not caplog.records
    if isinstance(store, MemorySegmentStore):
        store.crash()
    assert await store.is_fenced(NAME, 7, 1)
    assert not await store.is_fenced(NAME, 7, 0)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=8))})
    assert not await store.is_fenced(NAME, 8, 1)
    assert await store.is_fenced(NAME, 7, 0), "an older topic of the name"
    await store.delete_topic(NAME, 8)
    with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
        await store.is_fenced(NAME, 8, 1)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))})
    assert not await store.is_fenced(NAME, 7, 1), "a fence does not outlive its topic"


async def test_what_the_document_calls_pruned_is_fenced_and_swept_away(store: SegmentStore) -> None:
    table = table_path(NAME, 1, 0, 10)
    await write_log(store, 0, [b"x"])
    with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
        await store.sweep(NAME, 7, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 1, "nothing is swept while the topic has no document"
    kept = await write_log(store, 0, [b"x"], segment=2)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))})
    await put_table(store, table)
    await store.fence(NAME, 7, 1)
    await store.sweep(NAME, 7, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 3, "nothing is pruned yet"
    pruned = replace(make_topic(uid=7), pruned=IdRanges(((0, 2),)))
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(pruned)})
    await store.sweep(NAME, 8, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 3, "these are not of topic 8"
    await store.sweep(NAME, 7, kept_s=0.0)
    await store.sweep(NAME, 7, kept_s=0.0)
    assert await store.list_topic_files(NAME) == [kept]
    assert await store.is_fenced(NAME, 7, 0)
    assert await store.is_fenced(NAME, 7, 1), "without the fence it had"
    assert not await store.is_fenced(NAME, 7, 2)


async def test_what_was_written_before_a_look_that_found_no_fence_is_read_after_the_fence(store: SegmentStore) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))})
    await store.fence(NAME, 7, 0)  # the folder was listed before
    assert await store.list_files(NAME, 0) == []
    log = await begin_log(store, 0, segment=1)
    await log.append([b"acknowledged"])
    await log.sync()
    assert not await store.is_fenced(NAME, 7, 1)
    await store.fence(NAME, 7, 1)
    (file,) = await store.list_files(NAME, 1)
    reader = await store.open(file)
    assert bytes(await reader.read(0, 10**6)).endswith(b"acknowledged")
    await reader.close()
    await log.close()


async def test_documents_that_are_not_durable_yet_are_seen_by_everybody(store: SegmentStore) -> None:
    documents = {TOPIC_DOCUMENT: topic_document(make_topic(uid=7)), LINEAGE_DOCUMENT: b"{}"}
    await store.put_documents(NAME, documents, is_durable=False)
    assert not await store.is_fenced(NAME, 7, 0)
    if isinstance(store, MemorySegmentStore):
        store.crash()
        with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
            await store.is_fenced(NAME, 7, 0)
    await store.put_documents(NAME, documents)
    if isinstance(store, MemorySegmentStore):
        store.crash()
    assert not await store.is_fenced(NAME, 7, 0)
    assert await asyncio.to_thread(document_in, store, document_path(NAME, LINEAGE_DOCUMENT)) == b"{}"


def _marker(cluster_id: str = "one", revision: int = 1) -> StorageMarker:
    return StorageMarker(cluster_id=cluster_id, format=STORAGE_FORMAT, generation=0, etcd_revision=revision)


def _unmount(store: SegmentStore, aside: Path) -> dict[str, MemoryFile]:
    """Leave an empty folder in the place of the storage, as a failed mount does."""
    if isinstance(store, MemorySegmentStore):
        mounted = dict(store.files)
        store.files.clear()
        return mounted
    assert isinstance(store, FileSegmentStore)
    store.place.root.rename(aside)
    store.place.root.mkdir()
    return {}


def _mount(store: SegmentStore, aside: Path, mounted: dict[str, MemoryFile]) -> None:
    if isinstance(store, MemorySegmentStore):
        assert not store.files, "files beneath the mount"
        store.files.update(mounted)
        return
    assert isinstance(store, FileSegmentStore)
    assert not list(store.place.root.iterdir()), "files beneath the mount"
    store.place.root.rmdir()
    aside.rename(store.place.root)


async def test_the_marker_is_created_once_and_replaced_and_one_of_others_rejected(store: SegmentStore) -> None:
    assert await store.read_marker() is None
    with pytest.raises(StorageFailed, match=r"has no cluster\.json"):
        await store.replace_marker(_marker())
    assert await store.create_marker(_marker()) == _marker()
    assert await store.create_marker(_marker("two")) == _marker(), "the first one counts"
    await store.replace_marker(_marker(revision=7))
    assert await store.read_marker() == _marker(revision=7)
    with pytest.raises(StorageFailed, match="belongs to cluster one, not to two"):
        await store.replace_marker(_marker("two"))
    store.bind("two")
    with pytest.raises(StorageFailed, match="belongs to cluster one, not to two"):
        await begin_log(store, 0)
    store.bind("one")
    await (await begin_log(store, 0)).close()


async def test_without_its_marker_a_bound_storage_does_nothing(store: SegmentStore, tmp_path: Path) -> None:
    await store.create_marker(_marker())
    store.bind("one")
    topic = make_topic()
    assert not await store.has_topics()
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(topic)})
    assert await store.has_topics()
    log = await begin_log(store, 0)
    await log.append([b"before"], sync=True)
    (file,) = await store.list_files(NAME, 0)
    mounted = _unmount(store, tmp_path / "aside")
    refused: list[Callable[[], Awaitable[object]]] = [
        store.check,
        store.now_us,
        lambda: begin_log(store, 100),
        lambda: store.list_files(NAME, 0),
        lambda: store.list_topic_files(NAME),
        lambda: store.open(file),
        lambda: store.open_input(file),
        lambda: store.sync_files([file]),
        lambda: store.delete([file]),
        lambda: store.fence(NAME, topic.uid, 0),
        lambda: store.is_fenced(NAME, topic.uid, 0),
        lambda: store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(topic)}),
        lambda: store.put_log(NAME, 1, 0, "w", b"preamble"),
        lambda: store.record_removed(NAME, topic.uid, {0: 1}),
        lambda: store.removed(NAME, topic.uid),
        store.list_topics,
        lambda: store.list_documents(NAME),
        lambda: store.read_document(NAME, TOPIC_DOCUMENT),
        lambda: store.create_journal(journal_name(0, 1, 1)),
        store.list_journals,
        lambda: store.read_journal(journal_name(0, 1, 1)),
        lambda: store.delete_journals([journal_name(0, 1, 1)]),
        lambda: store.sweep(NAME, topic.uid, kept_s=0),
        lambda: store.delete_topic(NAME, topic.uid),
        lambda: log.append([b"to a file that no listing has"]),
    ]
    for call in refused:
        with pytest.raises(StorageFailed, match=r"has no cluster\.json, so it is not mounted or is another folder"):
            await call()
    _mount(store, tmp_path / "aside", mounted)
    assert await store.list_files(NAME, 0)
    await store.check()
    await log.close()


async def test_a_fsync_of_a_file_below_a_lost_mount_fails(store: SegmentStore, tmp_path: Path) -> None:
    await store.create_marker(_marker())
    store.bind("one")
    log = await begin_log(store, 0)
    await log.append([b"before"])
    _unmount(store, tmp_path / "aside")
    with pytest.raises(StorageFailed, match=r"has no cluster\.json|file or directory"):
        await log.sync()
    await log.close()
