"""The file store where directories fail: read-only, full, vanished, foreign files, torn appends."""

import errno
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seaweedmq.codec.paths import GROUPS, TOPIC_DOCUMENT, journal_name, log_dir, table_dir, table_path, topic_dir
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import InvalidArgument, StorageFailed, StorageFull
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.store.files import FileSegmentStore, open_directory_store
from tests.support.segments import NAME, begin_log, make_topic, write_log


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: int, after_bytes: int | None = None) -> None:
    """Make one call of ``file_io`` fail; ``write_all`` writes a part before."""
    original = getattr(file_io, name)

    def fail(fd: int, *args: Sequence[bytes]) -> None:
        if after_bytes is not None:
            original(fd, [b"".join(args[0])[:after_bytes]])
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(file_io, name, fail)


def noted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, calls: list[str]) -> None:
    """Record every call of a function of the owner."""
    original = getattr(owner, name)

    def note(*args: Any) -> None:
        calls.append(name)
        original(*args)

    monkeypatch.setattr(owner, name, note)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "raise the quota"),
        (errno.EIO, "I/O error"),
        (errno.EROFS, "mounted read-only"),
        (errno.ESTALE, "mount it again"),
    ],
)
async def test_a_failed_append_names_the_file_and_the_remedy(
    store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch, error: int, remedy: str
) -> None:
    log = await begin_log(store, 0)
    failing(monkeypatch, "write_all", error)
    with pytest.raises(StorageFailed, match=remedy) as caught:
        await log.append([b"x"])
    assert log.path in str(caught.value)
    assert isinstance(caught.value, StorageFull) == (error in (errno.ENOSPC, errno.EDQUOT))
    await log.close()


async def test_nothing_is_written_behind_a_torn_tail(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await begin_log(store, 0)
    with monkeypatch.context() as patch:
        failing(patch, "write_all", errno.ENOSPC, after_bytes=3)
        with pytest.raises(StorageFailed):
            await log.append([b"half-written"])
    with pytest.raises(StorageFailed, match="continue in another file"):
        await log.append([b"more"])
    assert (store.place.root / log.path).read_bytes().endswith(b"hal")
    await log.close()


async def test_fsync_is_never_retried_after_it_failed(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await begin_log(store, 0)
    await log.append([b"x"])
    with monkeypatch.context() as patch:
        failing(patch, "sync_file", errno.EIO)
        with pytest.raises(StorageFailed, match="I/O error"):
            await log.sync()
    with pytest.raises(StorageFailed, match="continue in another file"):
        await log.sync()
    with pytest.raises(StorageFailed, match="continue in another file"):
        await log.append([b"y"])
    await log.close()


async def test_an_append_with_its_fsync_flushes_all(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for owner, name in ((file_io, "write_all"), (file_io, "sync_file"), (DirectoryPlace, "sync_names")):
        noted(monkeypatch, owner, name, calls)
    log = await begin_log(store, 0)
    calls.clear()
    assert not await log.append([b"x"])
    assert await log.append([b"y"], sync=True)
    assert await log.append([b"z"], sync=True)
    assert calls == ["write_all", "write_all", "sync_file", "sync_names", "write_all", "sync_file"]
    assert (store.place.root / log.path).read_bytes().endswith(b"xyz")
    await log.close()
    other = await begin_log(store, 1)
    calls.clear()
    await other.sync()
    await other.sync()
    assert calls == ["sync_file", "sync_names", "sync_file"]
    await other.close()


async def test_an_append_whose_fsync_failed_is_told(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await begin_log(store, 0)
    with monkeypatch.context() as patch:
        failing(patch, "sync_file", errno.EIO)
        assert not await log.append([b"x"], sync=True)
    assert (store.place.root / log.path).read_bytes().endswith(b"x")
    with pytest.raises(StorageFailed, match="I/O error"):
        await log.sync()
    with pytest.raises(StorageFailed, match="continue in another file"):
        await log.append([b"y"], sync=True)
    await log.close()


async def test_a_reader_that_goes_back_reads_the_rest(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(100_000)
    file = await write_log(store, 0, [content])
    base = file.size_bytes - len(content)
    read: list[tuple[int, int]] = []
    preadv = os.preadv

    def note(fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        read.append((position - base, len(buffers[0])))
        return preadv(fd, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", note)
    reader = await store.open(file)
    wanted = [(0, 40_000), (35_000, 45_000), (35_000, 50_000), (10, 20), (90_000, 20_000), (95_000, 10)]
    for position, length in wanted:
        assert bytes(await reader.read(base + position, length)) == content[position : position + length]
    await reader.close()
    assert read == [(0, 40_000), (40_000, 40_000), (80_000, 5_000), (10, 20), (90_000, 20_000), (100_000, 10_000)]


async def test_documents_put_together_sync_names_once(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(DirectoryPlace, "sync_names", lambda _, directory: synced.append(directory))
    documents = {"topic.json": b"{}", "lineage.json": b"{}"}
    await store.put_documents(NAME, documents, uid=7, revision=1, is_durable=False)
    assert synced == []
    await store.put_documents(NAME, documents, uid=7, revision=1)
    assert synced == [store.place.root / topic_dir(NAME)]
    assert {path.name for path in synced[0].iterdir()} == documents.keys()


async def test_a_vanished_root_is_said_and_not_made_anew(store: FileSegmentStore) -> None:
    await write_log(store, 0, [b"x"])
    shutil.rmtree(store.place.root)
    with pytest.raises(StorageFailed, match="the directory is missing"):
        await begin_log(store, 1)
    with pytest.raises(StorageFailed, match="the directory is missing"):
        await store.put_documents(NAME, {"topic.json": b"{}"}, uid=7, revision=1)
    with pytest.raises(StorageFailed, match="no such directory"):
        await store.check()
    assert await store.list_files(NAME, 0) == []
    assert not store.place.root.exists()


async def test_a_file_in_the_place_of_a_folder(store: FileSegmentStore) -> None:
    (store.place.root / "topics").write_text("not a folder")
    with pytest.raises(StorageFailed, match="move it away"):
        await begin_log(store, 0)


async def test_foreign_files_are_reported_and_left(store: FileSegmentStore, caplog: pytest.LogCaptureFixture) -> None:
    await write_log(store, 0, [b"x"])
    folder = store.place.root / log_dir(NAME, 0)
    for name in ("notes.txt", "1-b.log", "00000000000000000005.log", ".tmp-1-1"):
        (folder / name).write_text("mine")
    (folder / "00000000000000000009-b-9.log").mkdir()
    with caplog.at_level(logging.WARNING):
        first = await store.list_files(NAME, 0)
        assert await store.list_files(NAME, 0) == first
    assert ([f.base_offset for f in first], len(caplog.records)) == ([0], 4)
    assert (folder / "notes.txt").exists()


async def test_foreign_files_of_tables_are_reported(store: FileSegmentStore, caplog: pytest.LogCaptureFixture) -> None:
    folder = store.place.root / table_dir(NAME)
    folder.mkdir(parents=True)
    own, others = table_path(NAME, 0, 0, 5), table_path(NAME, 1, 0, 5)
    for path in (
        store.place.root / own,
        store.place.root / others,
        folder / "part-0.parquet",
        folder / "00000000-9.parquet",
    ):
        path.write_text("mine")
    (folder / ".tmp-1-1").write_text("half")
    with caplog.at_level(logging.WARNING):
        assert [f.path for f in await store.list_files(NAME, 0)] == [own]
        assert [f.path for f in await store.list_files(NAME, 1)] == [others]
    assert sorted(Path(r.args[0]).name for r in caplog.records if r.args) == ["00000000-9.parquet", "part-0.parquet"]


async def test_foreign_files_are_no_journals(store: FileSegmentStore) -> None:
    names = [journal_name(generation, 1, 2) for generation in (1, 2)]
    for name in reversed(names):
        await (await store.create_journal(name)).close()
    (store.place.root / GROUPS / "notes.journal").write_text("mine")
    assert await store.list_journals() == names


async def test_only_a_day_old_temporary_files_are_removed(store: FileSegmentStore) -> None:
    old, new, other = (store.place.root / n for n in (".tmp-1-0", ".tmp-1-1", "data"))
    for path in (old, new, other):
        path.write_text("x")
        os.utime(path, (0, 0))
    os.utime(new)
    file_io.remove_stale_temporaries(store.place.root, new.stat().st_mtime + 10)
    assert [old.exists(), new.exists(), other.exists()] == [False, True, True]


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: original(fd, [b"".join(parts)[:7]]))
    with (tmp_path / "f").open("wb") as file:
        file_io.write_all(file.fileno(), [b"0123", b"", b"456789abc", memoryview(b"def"), b"g" * 20])
    assert (tmp_path / "f").read_bytes() == b"0123456789abcdef" + b"g" * 20


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/mnt/mq", "/mnt/mq"),
        ("file:///mnt/a%20b", "/mnt/a b"),
        ("file://localhost/mnt", "/mnt"),
        ("file:/mnt", "/mnt"),
    ],
)
def test_uris_of_directories(uri: str, root: str) -> None:
    store = open_directory_store(uri)
    assert (str(store.place), str(open_directory_store(store.uri).place)) == (root, root)


@pytest.mark.parametrize("uri", ["", "s3://bucket/x", "file://host/x", "http://x"])
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(InvalidArgument):
        open_directory_store(uri)


def remember_missing_names(patch: pytest.MonkeyPatch) -> set[Path]:
    """Simulate a mount whose client caches missing names until it changes the folder itself; return those names."""
    missing: set[Path] = set()
    real_stat, real_touch = Path.stat, Path.touch

    def stat(path: Path, **options: Any) -> os.stat_result:
        if path in missing:
            raise FileNotFoundError(errno.ENOENT, "remembered", str(path))
        try:
            return real_stat(path, **options)
        except FileNotFoundError:
            missing.add(path)
            raise

    def touch(path: Path, **options: Any) -> None:
        real_touch(path, **options)
        missing.difference_update([p for p in missing if p.parent == path.parent])

    patch.setattr(Path, "stat", stat)
    patch.setattr(Path, "touch", touch)
    return missing


async def test_a_fence_is_seen_by_a_mount_that_caches_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = FileSegmentStore(tmp_path), FileSegmentStore(tmp_path)
    await ours.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    await write_log(ours, 0, [b"x"])
    missing = remember_missing_names(monkeypatch)
    assert not await ours.is_fenced(NAME, 7, 0)
    known = set(missing)
    assert known
    await theirs.fence(NAME, 7, 0)
    missing |= known  # another machine did that
    assert await ours.is_fenced(NAME, 7, 0)
    await ours.close()
    await theirs.close()


async def test_the_free_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    store = open_directory_store(str(tmp_path))
    try:
        space = await store.space()
    finally:
        await store.close()
    assert space is not None
    usage = shutil.disk_usage(tmp_path)
    assert (space.free_bytes, space.total_bytes) == pytest.approx((usage.free, usage.total), rel=0.1)
