"""Stores of every kind for tests, and files in them."""

import random
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from seaweedmq.codec.object_keys import TableObject, TopicKey
from seaweedmq.codec.paths import table_path
from seaweedmq.model.cluster import STORAGE_FORMAT, StorageMarker
from seaweedmq.model.files import SegmentFile
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from seaweedmq.storage.objects.blocking import BlockingObjects
from seaweedmq.storage.store.files import FileSegmentStore
from tests.doubles.memory_objects import Carrier, MemoryBucket, MemoryObjects
from tests.doubles.memory_store import MemorySegmentStore
from tests.support.segments import NAME, make_preamble, write_log

TABLE = b"PAR1xyz"
DATED_MS = 1_700_000_000_000


def bucket(wall_us: Callable[[], int] = lambda: time.time_ns() // 1_000) -> MemoryBucket:
    return MemoryBucket(wall_us)


def object_store(
    stored: MemoryBucket, carry: Carrier | None = None, *, verify_interval_s: float = 0.0
) -> ObjectSegmentStore:
    """Return a store on a bucket in memory, whose requests ``carry`` carries."""
    place = ObjectPlace(BlockingObjects(MemoryObjects(stored)))
    objects = MemoryObjects(stored, "store", carry)
    return ObjectSegmentStore(objects, place, random.Random(1), verify_interval_s=verify_interval_s)


def new_folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def marker(cluster_id: str = "one", revision: int = 1) -> StorageMarker:
    return StorageMarker(cluster_id=cluster_id, format=STORAGE_FORMAT, generation=0, etcd_revision=revision)


def unmount(store: SegmentStore, aside: Path) -> dict[str, Any]:
    """Leave an empty folder in the place of the storage, as a failed mount does."""
    if isinstance(store, FileSegmentStore):
        store.place.root.rename(aside)
        store.place.root.mkdir()
        return {}
    stored = _in_memory(store)
    mounted = dict(stored)
    stored.clear()
    return mounted


def mount(store: SegmentStore, aside: Path, mounted: dict[str, Any]) -> None:
    """Undo :func:`unmount`; nothing may have been written meanwhile."""
    if isinstance(store, FileSegmentStore):
        assert not list(store.place.root.iterdir()), "files beneath the mount"
        store.place.root.rmdir()
        aside.rename(store.place.root)
        return
    stored = _in_memory(store)
    assert not stored, "files beneath the mount"
    stored.update(mounted)


def _in_memory(store: SegmentStore) -> MutableMapping[str, Any]:
    if isinstance(store, MemorySegmentStore):
        return store.files
    assert isinstance(store, ObjectSegmentStore)
    assert isinstance(store.objects, MemoryObjects)
    return store.objects.bucket.stored


async def put_log(
    store: SegmentStore, base: int, content: bytes, *, writer: str = "b-1", segment: int = 0, uid: int = 7
) -> SegmentFile:
    """Put a log of ten offsets, of a preamble and some bytes."""
    if not isinstance(store, ObjectSegmentStore):
        assert isinstance(store, (FileSegmentStore, MemorySegmentStore))
        return await write_log(store, base, [content], writer=writer, segment=segment, uid=uid)
    preamble = make_preamble(base, writer, uid, (), segment)
    return await store.create_log_object(
        NAME, uid, segment, base_offset=base, end_offset=base + 10, writer=writer, content=[preamble, content]
    )


async def put_table(
    store: SegmentStore, base: int, end: int, content: bytes = TABLE, *, segment: int = 0, uid: int = 7
) -> str:
    """Put a table as a converter does, and return its path."""
    path = table_path(NAME, segment, base, end)
    if isinstance(store, MemorySegmentStore):
        await store.put_file(path, content)
    elif isinstance(store, ObjectSegmentStore):
        path = TableObject(TopicKey(NAME, uid), segment, base, end, DATED_MS).key
        await store.objects.put(path, [content])
    else:
        assert isinstance(store, FileSegmentStore)
        table = store.place.root / path
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_bytes(content)
    return path
