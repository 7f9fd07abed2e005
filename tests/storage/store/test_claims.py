"""Evidence that ids are taken: claims, files of segments, records of deleted topics. The same in both stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq.codec.paths import (
    CLUSTER_DOCUMENT,
    KEPT,
    claim_path,
    fence_path,
    log_dir,
    log_path,
    table_dir,
    table_path,
    topic_dir,
)
from seaweedmq.errors import AlreadyExists, StorageFailed
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import STORAGE_FORMAT, StorageMarker
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store import claims
from seaweedmq.storage.store.files import FileSegmentStore
from tests.doubles.memory_store import MemoryFile, MemorySegmentStore

NAME = TopicName("test", "orders")
BLOCKS = ClaimKind.PRODUCER_IDS
MARKER = StorageMarker(cluster_id="c-1", format=STORAGE_FORMAT, generation=0, etcd_revision=1)
Store = FileSegmentStore | MemorySegmentStore


@pytest.fixture(params=["files", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = FileSegmentStore(tmp_path) if request.param == "files" else MemorySegmentStore(lambda: 0)
    await made.create_marker(MARKER)
    made.bind(MARKER.cluster_id)
    yield made
    await made.close()


def put(store: Store, path: str) -> None:
    """Put a file there as another process would."""
    if isinstance(store, MemorySegmentStore):
        store.files[path] = MemoryFile(bytearray(b"x"), 0, "", 1, named=True)
    else:
        (store.place.root / path).parent.mkdir(parents=True, exist_ok=True)
        (store.place.root / path).write_bytes(b"x")


def remove(store: Store, path: str) -> None:
    if isinstance(store, MemorySegmentStore):
        del store.files[path]
    else:
        (store.place.root / path).unlink()


async def test_a_number_is_claimed_once(store: Store) -> None:
    assert await store.read_claims(BLOCKS) == {}
    await store.create_claim(BLOCKS, 5, b"one")
    with pytest.raises(AlreadyExists, match="number 5 is taken"):
        await store.create_claim(BLOCKS, 5, b"another")
    await store.create_claim(ClaimKind.NODE_IDS, 5, b"")
    await store.create_claim(BLOCKS, 7, b"")
    assert await store.read_claims(BLOCKS) == {5: b"one", 7: b""}
    await store.delete_claims(BLOCKS, [5, 6])
    assert await store.read_claims(BLOCKS) == {7: b""}


async def test_claims_need_the_marker(store: Store) -> None:
    await store.create_claim(BLOCKS, 5, b"")
    remove(store, CLUSTER_DOCUMENT)
    with pytest.raises(StorageFailed, match="not mounted"):
        await store.create_claim(BLOCKS, 6, b"")
    for call in (store.read_claims(BLOCKS), store.delete_claims(BLOCKS, [5])):
        with pytest.raises(StorageFailed):
            await call
    for other in (store.used_segments(NAME), store.with_folder([NAME]), store.deleted_topics()):
        with pytest.raises(StorageFailed):
            await other
    await store.create_marker(MARKER)
    assert list(await store.read_claims(BLOCKS)) == [5]


async def test_each_kind_of_file_takes_the_id_of_its_segment(store: Store) -> None:
    assert await store.used_segments(NAME) == frozenset()
    table = table_path(NAME, 2, 0, 10)
    folder, _, name = table.rpartition("/")
    for path in (
        log_path(NAME, 1, 0, "b-1"),
        table,
        f"{folder}/{KEPT}/{name.replace('00000002', '00000003')}",
        fence_path(NAME, 7, 4),
        f"{topic_dir(NAME)}/producers-00000005.json",
        f"{topic_dir(NAME)}/.removed/00000006-00000000000000000009-7",
    ):
        put(store, path)
    assert await store.used_segments(NAME) == {1, 2, 3, 4, 5, 6}


async def test_other_files_take_no_id(store: Store) -> None:
    for path in (
        log_path(TopicName("test", "orders2"), 1, 0, "b-1"),
        f"{log_dir(NAME, 1)}x/notes",
        f"{topic_dir(NAME)}/log/7/notes",
        f"{topic_dir(NAME)}/topic.json",
        f"{table_dir(NAME)}/_delta_log/00000000000000000001.json",
        f"{table_dir(NAME)}/notes.parquet",
        f"{topic_dir(NAME)}/.staged/sink/00000000000000000001/manifest.json",
    ):
        put(store, path)
    assert await store.used_segments(NAME) == frozenset()


async def test_topics_whose_folder_holds_anything_are_found(store: Store) -> None:
    empty, other = TopicName("test", "empty"), TopicName("test", "orders2")
    assert await store.with_folder([NAME, empty]) == frozenset()
    put(store, f"{topic_dir(NAME)}/notes")
    put(store, log_path(other, 1, 0, "b-1"))
    assert await store.with_folder([NAME, empty, other]) == {NAME, other}
    assert await store.with_folder([]) == frozenset()


async def test_a_deleted_topic_is_on_record(store: Store) -> None:
    put(store, log_path(NAME, 1, 0, "b-1"))
    assert await store.deleted_topics() == frozenset()
    await store.delete_topic(NAME, 7, revision=9)
    assert await store.deleted_topics() == {7}
    assert await store.list_topics() == []
    assert not await store.has_topics()


async def test_the_oldest_records_of_deleted_topics_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "DELETED_TOPICS_MAX", 5)
    monkeypatch.setattr(claims, "DELETED_TOPICS_SPARE", 2)
    store = FileSegmentStore(tmp_path)
    for uid in range(20):
        await store.delete_topic(NAME, uid, revision=9)
        assert uid in await store.deleted_topics()
        assert len(await store.deleted_topics()) <= 7
    assert {19, 18, 17, 16, 15} <= await store.deleted_topics()
    await store.close()


async def test_files_that_are_no_claims_are_passed_over(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path)
    await store.create_claim(BLOCKS, 5, b"")
    for name in ("notes", "6", ".tmp-1"):
        (tmp_path / claim_path(BLOCKS, 5)).with_name(name).touch()
    assert await store.read_claims(BLOCKS) == {5: b""}
    await store.close()
