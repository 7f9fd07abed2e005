"""The contract of every DirectoryStore: its logs and fences."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import AlreadyExists, Closed, StorageFailed
from seaweedmq.model.files import FileKind
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.ports import DirectoryStore
from seaweedmq.storage.store.files import FileSegmentStore
from tests.doubles.memory_store import MemorySegmentStore
from tests.support.segments import NAME, begin_log, make_preamble, make_topic, write_log
from tests.support.stores import marker, new_folder, put_table, unmount


@pytest.fixture(params=["files", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    made = FileSegmentStore(new_folder(tmp_path)) if request.param == "files" else MemorySegmentStore(lambda: 1_000)
    yield made
    await made.close()


async def read_all(store: DirectoryStore, path: str) -> bytes:
    file = next(f for f in await store.list_files(NAME, 0) if f.path == path)
    reader = await store.open(file)
    data = bytes(await reader.read(0, 10**6))
    await reader.close()
    return data


async def test_a_log_that_is_put_holds_its_preamble_and_is_put_once(store: DirectoryStore) -> None:
    await store.put_log(NAME, 0, 10, "b-1.synced", make_preamble(10))
    (file,) = await store.list_files(NAME, 0)
    assert (file.kind, file.base_offset, file.writer) == (FileKind.LOG, 10, "b-1.synced")
    assert await read_all(store, file.path) == make_preamble(10)
    with pytest.raises(AlreadyExists):
        await store.put_log(NAME, 0, 10, "b-1.synced", b"others")
    assert await read_all(store, file.path) == make_preamble(10)
    assert len(await store.list_files(NAME, 0)) == 1


async def test_a_log_is_created_once_and_holds_its_preamble_and_what_was_appended(store: DirectoryStore) -> None:
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


async def test_arrow_reads_a_table_as_it_was_when_it_was_opened(store: DirectoryStore) -> None:
    """A reader that has it open reads it to its end, though retention removes it. (NFS may answer ESTALE.)"""
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(range(1_000))}), sink)
    await put_table(store, 0, 10, sink.getvalue())
    (file,) = await store.list_files(NAME, 0)
    source = await store.open_input(file)
    await store.delete([file])

    def read() -> int:
        with contextlib.closing(source), pq.ParquetFile(source) as table:
            return sum(table.read().column("n").to_pylist())

    assert await asyncio.to_thread(read) == sum(range(1_000))


async def test_anybody_makes_durable_what_a_dead_writer_left(store: DirectoryStore) -> None:
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


async def test_a_fence_is_of_one_segment_and_no_file(store: DirectoryStore, caplog: pytest.LogCaptureFixture) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))}, uid=7, revision=1)
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
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=8))}, uid=8, revision=1)
    assert not await store.is_fenced(NAME, 8, 1)
    assert await store.is_fenced(NAME, 7, 0), "an older topic of the name"
    await store.delete_topic(NAME, 8, revision=9)
    with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
        await store.is_fenced(NAME, 8, 1)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))}, uid=7, revision=1)
    assert not await store.is_fenced(NAME, 7, 1), "a fence does not outlive its topic"


async def test_what_the_document_calls_pruned_is_fenced_and_swept_away(store: DirectoryStore) -> None:
    await write_log(store, 0, [b"x"])
    with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
        await store.sweep(NAME, 7, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 1, "nothing is swept while the topic has no document"
    kept = await write_log(store, 0, [b"x"], segment=2)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))}, uid=7, revision=1)
    await put_table(store, 0, 10, segment=1)
    await store.fence(NAME, 7, 1)
    await store.sweep(NAME, 7, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 3, "nothing is pruned yet"
    pruned = replace(make_topic(uid=7), pruned=IdRanges(((0, 2),)))
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(pruned)}, uid=7, revision=1)
    await store.sweep(NAME, 8, kept_s=0.0)
    assert len(await store.list_topic_files(NAME)) == 3, "these are not of topic 8"
    await store.sweep(NAME, 7, kept_s=0.0)
    await store.sweep(NAME, 7, kept_s=0.0)
    assert await store.list_topic_files(NAME) == [kept]
    assert await store.is_fenced(NAME, 7, 0)
    assert await store.is_fenced(NAME, 7, 1), "without the fence it had"
    assert not await store.is_fenced(NAME, 7, 2)


async def test_what_was_written_before_a_look_that_found_no_fence_is_read_after_the_fence(
    store: DirectoryStore,
) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic(uid=7))}, uid=7, revision=1)
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


async def test_documents_that_are_not_durable_yet_are_seen_by_everybody(store: DirectoryStore) -> None:
    documents = {TOPIC_DOCUMENT: topic_document(make_topic(uid=7)), LINEAGE_DOCUMENT: b"{}"}
    await store.put_documents(NAME, documents, uid=7, revision=1, is_durable=False)
    assert not await store.is_fenced(NAME, 7, 0)
    if isinstance(store, MemorySegmentStore):
        store.crash()
        with pytest.raises(StorageFailed, match=r"the topic was deleted, or is being created"):
            await store.is_fenced(NAME, 7, 0)
    await store.put_documents(NAME, documents, uid=7, revision=1)
    if isinstance(store, MemorySegmentStore):
        store.crash()
    assert not await store.is_fenced(NAME, 7, 0)
    assert await store.read_document(NAME, LINEAGE_DOCUMENT) == b"{}"


async def test_a_fsync_of_a_file_below_a_lost_mount_fails(store: DirectoryStore, tmp_path: Path) -> None:
    await store.create_marker(marker())
    store.bind("one")
    log = await begin_log(store, 0)
    await log.append([b"before"])
    unmount(store, tmp_path / "aside")
    with pytest.raises(StorageFailed, match=r"has no cluster\.json|file or directory"):
        await log.sync()
    await log.close()
