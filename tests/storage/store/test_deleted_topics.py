"""A topic of any permitted name is deleted with all its files, also on a full disk, and its name is free again."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT, blob_days, deleted_topic_path, sink_mark, sink_marks_dir
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.model.topic import NAME_LENGTH_MAX, TOPIC_NAME_LENGTH_MAX, TopicName
from seaweedmq.storage.staged_sweep import sweep
from seaweedmq.storage.staging import StagedSink
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.delta.updater import rebuild_log
from tests.support.full_disk import full_disk, tree
from tests.support.segments import NAME, begin_log, make_topic, write_log
from tests.support.topic_files import TopicFiles


async def use(store: FileSegmentStore, name: TopicName, uid: int) -> None:
    """Create each kind of file: documents, logs, a fence, tables with both names, a Delta log, a batch, a mark."""
    topic = replace(make_topic(), name=name, uid=uid)
    files = TopicFiles(store.place.root, name=name, uid=uid)
    files.table(0, 10)
    files.log(10, 20)
    rebuild_log(store.place, files.topic)
    await store.put_documents(name, {TOPIC_DOCUMENT: topic_document(topic)}, uid=7, revision=1)
    await store.fence(name, uid, 0)
    assert await store.is_fenced(name, uid, 0)
    sink = StagedSink(store.place, name, "s" * NAME_LENGTH_MAX)
    sink.bind_topic(uid)
    with sink.batch(0).staging("0-0") as frames:
        frames.write([b"rows"], 1)
    sweep(store.place, name)
    await store.sweep(name, uid, kept_s=0)
    assert len(await store.list_topic_files(name)) == 2


@pytest.mark.parametrize("length", [1, 226, 227, TOPIC_NAME_LENGTH_MAX])
async def test_a_name_of_any_length_is_used_deleted_and_used_again(store: FileSegmentStore, length: int) -> None:
    name = TopicName("n" * NAME_LENGTH_MAX, "t" * length)
    for uid in (2**63 - 1, 2**63 - 2):
        await use(store, name, uid)
        await store.delete_topic(name, uid, revision=9)
        assert set(tree(store.place.root)) == {
            deleted_topic_path(uid),
            f"{sink_marks_dir(name)}/{sink_mark('s' * NAME_LENGTH_MAX, uid)}",
        }, "marks outlive topics, and so does the record of the deletion"
        (store.place.root / deleted_topic_path(uid)).unlink()
        for mark in (store.place.root / sink_marks_dir(name)).iterdir():
            mark.unlink()


async def test_what_an_interrupted_deletion_of_an_earlier_release_left_goes(store: FileSegmentStore) -> None:
    await write_log(store, 0, [])
    left = store.place.root / "topics/shop/.deleted-orders-7-0"
    (left / "log").mkdir(parents=True)
    (left / "log/records").touch()
    others = store.place.root / "topics/shop/.deleted-orders-70-0"
    others.mkdir()
    await store.delete_topic(NAME, 7, revision=9)
    assert (left.exists(), others.exists()) == (False, True)


async def test_a_full_disk_takes_names_if_records_go(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    await write_log(store, 0, [bytes(1_000)])
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if any(path.rglob("*.log")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    with full_disk(0):
        await store.delete_topic(NAME, 7, revision=9)
    assert tree(store.place.root) == {deleted_topic_path(7): 0}
    writer = await begin_log(store, 0)
    await writer.close()


async def test_leftovers_of_deletions_are_no_topics_and_are_swept_of_any_topic(store: FileSegmentStore) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    before = tree(store.place.root)
    for parent in ("topics/shop", "topics/gone", "blobs/shop/orders"):
        left = store.place.root / parent / ".deleted-9-0"
        (left / "log").mkdir(parents=True)
        (left / "log/records").touch()
    assert await store.list_topics() == [NAME]
    await store.sweep_deleted()
    assert tree(store.place.root) == before


async def test_payloads_go_with_their_topic_and_those_of_its_namesake_stay(store: FileSegmentStore) -> None:
    await store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())})
    of_both = {uid: f"{blob_days(NAME, uid)}/2026-11-28/{'a' * 32}" for uid in (7, 8)}
    for path in of_both.values():
        await _payload(store, path)
    await store.delete_topic(NAME, 7)
    assert tree(store.place.root) == {deleted_topic_path(7): 0, of_both[8]: 1}
    await _payload(store, of_both[7])  # An upload that ended after the deletion.
    await store.sweep_deleted()
    assert tree(store.place.root) == {deleted_topic_path(7): 0, of_both[8]: 1}


async def _payload(store: FileSegmentStore, uri: str) -> None:
    part = await store.create_part(uri, 0)
    await part.append(b"x")
    await part.keep()
    await part.close()
    await store.complete_blob(uri, 1, 1)
