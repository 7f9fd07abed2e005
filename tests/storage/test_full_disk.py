"""A write that fails for lack of space leaves no file of any kind, and can be repeated."""

import errno
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT, table_dir
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import StorageFailed
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.staged import BatchProgress, CompletedBatch, Manifest
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.staged_sweep import sweep
from seaweedmq.storage.staging import StagedSink
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.delta.directory_log import DirectoryLog
from seaweedmq.storage.tables.files import DirectoryTarget, convert_files
from tests.support.full_disk import full_disk, tree
from tests.support.segments import NAME, logs_of, make_frame, make_preamble, make_topic, tables_of, write_log
from tests.support.topic_files import TopicFiles

SINK = "sink"


async def a_log(store: FileSegmentStore) -> None:
    await store.create_log(NAME, 1, 0, "b-1", make_preamble(0))


async def documents(store: FileSegmentStore) -> None:
    await store.put_documents(NAME, {"topic.json": b"{}" * 1_000, "lineage.json": b"{}"}, uid=7, revision=1)


async def tables(store: FileSegmentStore) -> None:
    convert_files(store.place, make_topic(), await logs_of(store), None, 5_000)


async def a_manifest(store: FileSegmentStore) -> None:
    manifest = Manifest(topic_uid=7, batch=0, producer_id=1 << 62, ring=WHOLE_RING, files=(), roots=())
    StagedSink(store.place, NAME, SINK).batch(0).put_manifest(manifest)


async def progress(store: FileSegmentStore) -> None:
    StagedSink(store.place, NAME, SINK).batch(0).note(BatchProgress())


async def frames(store: FileSegmentStore) -> None:
    with StagedSink(store.place, NAME, SINK).batch(0).staging("0") as file:
        file.write([bytes(10_000)], 1)
        file.finish()


async def a_batch_that_is_done(store: FileSegmentStore) -> None:
    StagedSink(store.place, NAME, SINK).finish(CompletedBatch(batch=0, ranges=()))


@pytest.mark.parametrize("room_bytes", [0, 10])
@pytest.mark.parametrize("write", [a_log, documents, tables, a_manifest, progress, frames, a_batch_that_is_done])
async def test_a_write_that_fails_leaves_nothing_and_is_repeated(
    tmp_path: Path, write: Callable[[FileSegmentStore], Awaitable[None]], room_bytes: int
) -> None:
    store = FileSegmentStore(tmp_path)
    await write_log(store, 0, [make_frame(base, 100, size=300) for base in range(0, 1_000, 100)])
    with StagedSink(DirectoryPlace(tmp_path), NAME, SINK).batch(0).staging("first"):
        pass
    (tmp_path / table_dir(NAME)).mkdir()
    before = tree(tmp_path)
    for _ in range(3):
        with full_disk(room_bytes), pytest.raises(StorageFailed):
            await write(store)
        assert tree(tmp_path) == before
    await write(store)
    assert tree(tmp_path) != before
    await store.close()


@pytest.mark.parametrize("room_bytes", [0, 1_000, 4_000])
def test_a_merge_that_fails_leaves_nothing_and_is_repeated(tmp_path: Path, room_bytes: int) -> None:
    orders = TopicFiles(tmp_path / "root")
    for base in range(0, 2_000, 200):
        orders.table(base, base + 200)
    before = tree(orders.root)
    with full_disk(room_bytes):
        assert compact_topic(DirectoryPlace(orders.root), orders.name).problems
    assert tree(orders.root) == before
    assert not compact_topic(DirectoryPlace(orders.root), orders.name).problems


async def test_a_table_whose_fsync_fails_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileSegmentStore(tmp_path)
    await write_log(store, 0, [make_frame(0, 10)])
    with monkeypatch.context() as full:
        full.setattr(DirectoryPlace, "publish", _full)
        with pytest.raises(StorageFailed, match="free space"):
            convert_files(DirectoryPlace(tmp_path), make_topic(), await logs_of(store), None, 5_000)
    folder = tmp_path / table_dir(NAME)
    assert tree(folder) == {}, "a retained link alone would hold the space"
    convert_files(DirectoryPlace(tmp_path), make_topic(), await logs_of(store), None, 5_000)
    assert len(await tables_of(store)) == 1
    await store.close()


def test_where_files_have_one_name_half_a_commit_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    (tmp_path / "log").mkdir()
    data = b"x" * 100
    with DirectoryLog.opened(tmp_path / "log") as folder:
        with full_disk(100):
            monkeypatch.setattr(os, "fsync", _full_after_two(os.fsync))
            with pytest.raises(OSError, match="No space"):
                folder.put_commit(0, data)
        assert tree(tmp_path) == {}
    monkeypatch.undo()


def test_what_could_not_be_flushed_is_discarded(tmp_path: Path) -> None:
    (tmp_path / table_dir(NAME)).mkdir(parents=True)
    target = DirectoryTarget(DirectoryPlace(tmp_path), NAME, 0)
    sink = target.create()
    with full_disk(0):
        sink.write(b"waits in a buffer")
        target.discard(sink)
    assert tree(tmp_path) == {}


async def test_a_fence_takes_only_its_name_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileSegmentStore(tmp_path)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    monkeypatch.setattr(Path, "write_bytes", lambda path, _: (path.touch(), _full()))
    assert not await store.is_fenced(NAME, 7, 0)
    await store.fence(NAME, 7, 0)
    assert await store.is_fenced(NAME, 7, 0)
    assert [size for path, size in tree(tmp_path).items() if "fence" in path] == [0]
    await store.close()


async def test_clocks_are_read_and_names_swept_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileSegmentStore(tmp_path)
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    await write_log(store, 0, [make_frame(0, 10)])
    convert_files(DirectoryPlace(tmp_path), make_topic(), await logs_of(store), None, 5_000)
    monkeypatch.setattr(Path, "touch", _full)
    before_us = time.time_ns() // 1_000
    assert before_us - 1_000_000 < await store.now_us() < before_us + 60_000_000
    await store.delete(await tables_of(store))
    await store.sweep(NAME, 7, kept_s=0)
    assert not [path for path in tree(tmp_path) if path.endswith(".parquet")]
    sweep(DirectoryPlace(tmp_path), NAME)
    await store.close()


def _full(*args: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _full_after_two(fsync: Callable[[int], None]) -> Callable[[int], None]:
    """The temporary file is fsynced, the rename is not."""
    left = [1]

    def call(fd: int) -> None:
        if not left[0]:
            _full()
        left[0] -= 1
        fsync(fd)

    return call
