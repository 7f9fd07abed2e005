"""A storage whose root disappears right after a call has verified it."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seaweedmq.codec.paths import CLUSTER_DOCUMENT, TOPIC_DOCUMENT, journal_name
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.cluster import STORAGE_FORMAT, StorageMarker
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.staging import StagedSink
from seaweedmq.storage.store import marker as markers
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.store.marker import RootGuard
from seaweedmq.storage.tables.protocol import CONVERT, RECONCILE, decode_answer, encode_request, file_fields
from seaweedmq.storage.tables.worker import Worker
from tests.support.segments import NAME, make_frame, make_topic, write_log

CLUSTER = "c-1"
MARKER = StorageMarker(cluster_id=CLUSTER, format=STORAGE_FORMAT, generation=0, etcd_revision=1)
OTHER = replace(make_topic(), name=replace(NAME, name="other"), uid=8)

Call = Callable[[FileSegmentStore], Awaitable[object]]
CALLS: dict[str, Call] = {
    "create_log": lambda store: store.create_log(OTHER.name, 0, 0, "w", b"preamble"),
    "put_log": lambda store: store.put_log(OTHER.name, 0, 0, "w", b"preamble"),
    "put_documents": lambda store: store.put_documents(
        OTHER.name, {TOPIC_DOCUMENT: topic_document(OTHER)}, uid=7, revision=1
    ),
    "fence": lambda store: store.fence(OTHER.name, 8, 0),
    "record_removed": lambda store: store.record_removed(OTHER.name, 8, {0: 1}),
    "create_journal": lambda store: store.create_journal(journal_name(0, 1, 1)),
}


class Mount:
    """A root that can be removed, leaving an empty folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.aside = root.with_name("aside")

    def fall_away(self) -> None:
        self.root.rename(self.aside)
        self.root.mkdir()

    def beneath(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    root = tmp_path / "root"
    root.mkdir()
    markers.create_marker(DirectoryPlace(root), MARKER)
    return Mount(root)


def fall_away_after(patch: pytest.MonkeyPatch, mount: Mount, checks: int) -> None:
    """Remove the root right after so many checks of its marker have passed."""
    verify, left = RootGuard.verify, checks

    def verified(guard: RootGuard) -> None:
        nonlocal left
        verify(guard)
        left -= 1
        if not left:
            mount.fall_away()

    patch.setattr(RootGuard, "verify", verified)


@pytest.mark.parametrize("has_topics", [False, True])
@pytest.mark.parametrize("name", CALLS)
async def test_no_call_creates_anything_beneath_a_mount_that_falls_away_after_a_check(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, name: str, has_topics: bool
) -> None:
    store = FileSegmentStore(mount.root)
    store.bind(CLUSTER)
    if has_topics:
        await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    fall_away_after(monkeypatch, mount, 1)
    with pytest.raises((SeaweedMQError, FileNotFoundError)):
        await CALLS[name](store)
    assert mount.beneath() == []
    await store.close()


async def test_a_new_cluster_gets_its_first_folders(mount: Mount) -> None:
    store = FileSegmentStore(mount.root)
    store.bind(CLUSTER)
    for name in ("put_documents", "create_journal"):
        await CALLS[name](store)
    assert sorted(path.name for path in mount.root.iterdir()) == [CLUSTER_DOCUMENT, "groups", "topics"]
    await store.close()


def test_writes_to_an_open_file_verify_the_marker_at_times(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    stats: list[object] = []
    stat = os.stat

    def counted(path: object, *args: object, **kwargs: object) -> os.stat_result:
        stats.append(path)
        return stat(path, *args, **kwargs)  # type: ignore[arg-type]

    guard = RootGuard(DirectoryPlace(mount.root), CLUSTER)
    monkeypatch.setattr(os, "stat", counted)
    monkeypatch.setattr(markers.time, "monotonic", lambda: now_s)
    now_s = 100.0
    for _ in range(1_000):
        guard.verify_often()
    once = len(stats)
    assert once < 5
    now_s += 2 * markers.VERIFY_INTERVAL_S
    guard.verify_often()
    assert len(stats) > once
    monkeypatch.undo()
    mount.fall_away()
    with pytest.raises(StorageFailed, match=r"has no cluster\.json"):
        guard.verify()
    with pytest.raises(StorageFailed, match=r"has no cluster\.json"):
        guard.verify_often()


@pytest.mark.parametrize("kind", ["convert", "reconcile"])
@pytest.mark.parametrize("is_lost_meanwhile", [False, True])
async def test_the_table_worker_does_nothing_without_the_marker(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, kind: str, is_lost_meanwhile: bool
) -> None:
    store = FileSegmentStore(mount.root)
    log = await write_log(store, 0, [make_frame(0, 10)])
    await store.close()
    if is_lost_meanwhile:
        fall_away_after(monkeypatch, mount, 1)
    else:
        mount.fall_away()
    common = DirectoryPlace(mount.root), CLUSTER, make_topic()
    if kind == "convert":
        logs: dict[str, Any] = {"logs": [file_fields(log)], "end_offset": None, "row_group_bytes": 1_000}
        line = encode_request(CONVERT, *common, **logs, table_grace_s=1.0, confirmed_us=0)
        with pytest.raises(StorageFailed, match=r"has no cluster\.json"):
            decode_answer(Worker().answer(line))
    else:
        line = encode_request(RECONCILE, *common, table_grace_s=1.0, confirmed_us=0)
        warning = decode_answer(Worker().answer(line)).warning
        assert warning is not None
        assert "has no cluster.json" in warning
    assert mount.beneath() == []
    assert (mount.aside / log.path).exists()


def test_a_sink_stages_nothing_beneath_a_lost_mount(mount: Mount) -> None:
    (mount.root / "topics").mkdir()
    sink = StagedSink(DirectoryPlace(mount.root), NAME, "q-1")
    with pytest.raises(NotFound, match="it was deleted"):
        sink.bind_topic(7)
    mount.fall_away()
    for stage in (lambda: sink.bind_topic(7), lambda: sink.batch(0).staging("0").__enter__()):
        with pytest.raises(StorageFailed, match="holds no topics, so it is not mounted"):
            stage()
    assert mount.beneath() == []
