"""Payloads by reference in a store: parts, and the sweep in a process of its own."""

import asyncio
import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

from seaweedmq.codec.paths import BlobName, blob_name
from seaweedmq.errors import Closed, NotFound, StorageFailed, Unavailable
from seaweedmq.storage import blobs, file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.store.files import FileSegmentStore
from tests.support.referenced_files import ReferencedFiles, payload_of, put_payload

NOW_US = 4_000_000_000_000_000


@pytest.fixture
def films(store: FileSegmentStore) -> ReferencedFiles:
    files = ReferencedFiles(store.place.root, referring=(3,))
    files.log(0, 5)
    return files


async def test_the_sweep_runs_in_a_process_of_its_own(store: FileSegmentStore, films: ReferencedFiles) -> None:
    named, unnamed = films.reference(3).uri, put_payload(store.place, films, 900, b"x").uri
    for uri in (named, unnamed):
        os.utime(store.place.path(uri), (1_000_000_000, 1_000_000_000))
    assert await store.sweep_blobs(films.name, films.uid, 0) == 0
    assert await store.sweep_blobs(films.name, films.uid, NOW_US) == 1
    assert not store.place.path(unnamed).exists()
    assert store.place.path(named).exists()
    assert await store.sweep_blobs(films.name, 99, NOW_US) == 0


async def test_a_sweep_that_fails_names_the_reason(store: FileSegmentStore, films: ReferencedFiles) -> None:
    films.reference(3)
    store.place.path("topics/shop/orders/lineage.json").unlink()
    with pytest.raises(StorageFailed, match=r"was not swept: .*lineage.json"):
        await store.sweep_blobs(films.name, films.uid, NOW_US)


async def test_a_part_ends_with_its_upload(store: FileSegmentStore, films: ReferencedFiles) -> None:
    name = blob_name(films.name, films.uid, "2026-11-28", "a" * 32)
    part = await store.create_part(name.uri, 0)
    other = await store.create_part(name.uri, 0)
    await part.append(b"x")
    await part.keep()
    await part.close()
    with pytest.raises(Closed):
        await part.append(b"y")
    await store.complete_blob(name.uri, 1, 1)
    with pytest.raises(Unavailable, match="completed or deleted meanwhile; retry"):
        await other.keep()
    await other.close()
    with pytest.raises(Unavailable, match="is gone"):
        await store.complete_blob(name.uri.replace("aa", "bb"), 1, 1)
    assert await store.read_blob(name.uri, 0, 9) == b"x"
    assert not [*store.place.root.rglob(".tmp-*")]


async def test_a_part_of_a_cancelled_upload_is_closed(
    store: FileSegmentStore, films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = blob_name(films.name, films.uid, "2026-11-28", "c" * 32)
    began, may_end = threading.Event(), threading.Event()

    class SlowPart(blobs.PartWriter):
        def __init__(self, place: DirectoryPlace, folder: Path, number: int) -> None:
            super().__init__(place, folder, number)
            began.set()
            may_end.wait(10)

    monkeypatch.setattr(blobs, "PartWriter", SlowPart)
    creating = asyncio.create_task(store.create_part(name.uri, 0))
    assert await asyncio.to_thread(began.wait, 10)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    may_end.set()
    await store.find_blob(films.name, films.uid, name.id, (name.day,))
    await store.close()
    assert not [*store.place.path(name.staged).iterdir()]
    assert not [target for target in _open_files() if name.id in target]


def _open_files() -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return found


async def test_a_sweep_that_cannot_start_is_one_error(
    store: FileSegmentStore, films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    films.reference(3)

    async def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    with pytest.raises(Unavailable, match=r"sweep cannot be started .*raise the limit of open files"):
        await store.sweep_blobs(films.name, films.uid, NOW_US)


async def test_a_payload_that_another_broker_has_just_stored_is_not_lost(
    store: FileSegmentStore, films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = films.reference(3).uri
    refreshed: list[Path] = []
    read = blobs.read_blob

    def cached(place: DirectoryPlace, name: BlobName, position: int, length: int) -> bytes:
        if store.place.path(uri).parent not in refreshed:
            raise NotFound("a network file system does not show it yet")
        return read(place, name, position, length)

    monkeypatch.setattr(blobs, "read_blob", cached)
    monkeypatch.setattr(file_io, "refresh_cache", refreshed.append)
    assert await store.read_blob(uri, 0, 9_999) == payload_of(3)
    assert refreshed == [store.place.path(uri).parent.parent, store.place.path(uri).parent]
    monkeypatch.undo()
    with pytest.raises(NotFound, match="is missing"):
        await store.read_blob(f"{uri[:-1]}{'f' if uri[-1] != 'f' else 'e'}", 0, 1)
