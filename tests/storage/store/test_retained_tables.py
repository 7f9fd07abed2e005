"""A deleted table stays for a while under its retained link, for readers that have begun with it."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.paths import KEPT, TOPIC_DOCUMENT, kept_path, table_dir, table_path
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.model.files import SegmentFile
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import DirectoryTarget, convert_files
from tests.support.segments import NAME, logs_of, make_frame, make_topic, tables_of, write_log

HOUR_S = 3_600.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileSegmentStore]:
    made = FileSegmentStore(tmp_path)
    await made.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(make_topic())}, uid=7, revision=1)
    yield made
    await made.close()


async def make_table(store: FileSegmentStore) -> SegmentFile:
    await write_log(store, 0, [make_frame(0, 10)])
    convert_files(store.place, make_topic(), await logs_of(store), None, 10_000)
    (table,) = await tables_of(store)
    return table


def kept(store: FileSegmentStore) -> list[str]:
    folder = store.place.root / table_dir(NAME) / KEPT
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def test_a_table_has_two_names_and_takes_its_space_once(store: FileSegmentStore) -> None:
    table = await make_table(store)
    first, second = store.place.root / table.path, store.place.root / kept_path(table.path)
    assert first.samefile(second)
    assert first.stat().st_nlink == 2
    assert [f.path for f in await store.list_topic_files(NAME)].count(table.path) == 1
    assert pq.read_table(first.parent).num_rows == 10, "readers of the folder skip names that begin with a dot"


async def test_what_was_deleted_is_read_by_its_second_name_until_the_grace_is_over(store: FileSegmentStore) -> None:
    table = await make_table(store)
    await store.delete([table])
    assert await tables_of(store) == []
    await store.sweep(NAME, 7, kept_s=HOUR_S)
    assert pq.read_table(store.place.root / kept_path(table.path)).num_rows == 10
    await store.sweep(NAME, 8, kept_s=0.0)
    assert kept(store), "that sweep was for another topic of that name"
    await store.sweep(NAME, 7, kept_s=0.0)
    assert kept(store) == []


async def test_the_grace_is_over_by_the_storages_clock_and_by_the_callers(store: FileSegmentStore) -> None:
    table = await make_table(store)
    await store.delete([table])
    deleted_us = await store.now_us()
    await asyncio.sleep(0.2)
    await store.sweep(NAME, 7, kept_s=0.1, now_us=0)
    await store.sweep(NAME, 7, kept_s=0.1, now_us=deleted_us + 10_000)
    assert kept(store), "the caller has not confirmed that age"
    await store.sweep(NAME, 7, kept_s=HOUR_S, now_us=deleted_us + 2**50)
    assert kept(store), "the storage's clock is behind"
    await store.sweep(NAME, 7, kept_s=0.1, now_us=deleted_us + 2**50)
    assert kept(store) == []


async def test_the_grace_begins_when_the_first_name_goes_not_when_the_table_was_made(store: FileSegmentStore) -> None:
    table = await make_table(store)
    os.utime(store.place.root / table.path, (0, 0))
    await asyncio.sleep(0.3)
    await store.sweep(NAME, 7, kept_s=0.2)
    assert kept(store), "its first name still exists"
    await store.delete([table])
    await store.sweep(NAME, 7, kept_s=0.2)
    assert kept(store)
    await asyncio.sleep(0.3)
    await store.sweep(NAME, 7, kept_s=0.2)
    assert kept(store) == []


async def test_a_second_name_that_a_killed_converter_left_gives_way(store: FileSegmentStore) -> None:
    name = store.place.root / kept_path(table_path(NAME, 0, 0, 10))
    name.parent.mkdir(parents=True)
    name.write_bytes(b"half of a table")
    table = await make_table(store)
    assert name.samefile(store.place.root / table.path)


async def test_names_that_nobody_made_first_are_swept_and_foreign_ones_stay(store: FileSegmentStore) -> None:
    folder = store.place.root / table_dir(NAME) / KEPT
    folder.mkdir(parents=True)
    for name in (Path(table_path(NAME, 0, 0, 10)).name, ".tmp-1-1", "notes.txt", "00000001-5.parquet"):
        (folder / name).touch()
    await store.sweep(NAME, 7, kept_s=HOUR_S)
    assert len(kept(store)) == 4
    await store.sweep(NAME, 7, kept_s=0.0)
    assert kept(store) == ["00000001-5.parquet", "notes.txt"]


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
async def test_without_hard_links_there_is_one_name_and_it_is_said_once(
    store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    table = await make_table(store)
    assert (kept(store), pq.read_table(store.place.root / table.path).num_rows) == ([], 10)
    target = DirectoryTarget(store.place, NAME, 1)
    target.publish(target.create(), 0, 5)
    assert [r.getMessage() for r in caplog.records if "hard links" in r.getMessage()] == [
        f"hard links unsupported: {store.place.root}: {os.strerror(error)}; running queries fail if their tables are "
        "replaced or expire, restart them"
    ]


async def test_a_deleted_topic_takes_the_second_names_with_it(store: FileSegmentStore) -> None:
    await make_table(store)
    await store.delete_topic(NAME, 7, revision=9)
    assert not (store.place.root / table_dir(NAME)).exists()


async def test_a_topic_that_is_deleted_meanwhile_is_not_brought_back_by_a_second_name(store: FileSegmentStore) -> None:
    (store.place.root / table_dir(NAME)).mkdir()
    target = DirectoryTarget(store.place, NAME, 0)
    sink = target.create()
    await store.delete_topic(NAME, 7, revision=9)
    with pytest.raises(FileNotFoundError):
        target.publish(sink, 0, 5)
    assert not (store.place.root / table_dir(NAME)).exists()
