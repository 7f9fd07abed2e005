"""Log files become Parquet tables: every record once, despite overlaps, torn tails and damage."""

import contextlib
import errno
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.paths import LOCK_NAME, log_dir, table_dir
from seaweedmq.codec.payload.batch import schema_to_bytes
from seaweedmq.errors import Corrupt, NotFound, Unavailable
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import DirectoryTarget, convert_files
from seaweedmq.storage.tables.opener import open_table
from tests.support.segments import (
    NAME,
    T0,
    logs_of,
    make_frame,
    make_preamble,
    make_topic,
    tables_of,
    value_of,
    write_log,
)

TYPED = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.float64())])


def convert(
    store: FileSegmentStore,
    logs: list[SegmentFile],
    end_offset: int | None = None,
    topic: Topic | None = None,
    row_group_bytes: int = 500,
) -> list[tuple[int, int | None]]:
    made = convert_files(store.place, topic or make_topic(), logs, end_offset, row_group_bytes)
    return [(t.base_offset, t.end_offset) for t in made]


def offsets(store: FileSegmentStore) -> list[int]:
    """Return all rows that a reader of the table folder finds."""
    folder = store.place.root / table_dir(NAME)
    return sorted(o for p in folder.glob("*.parquet") for o in pq.read_table(p)["_offset"].to_pylist())


async def test_a_log_becomes_a_table_of_its_records(store: FileSegmentStore) -> None:
    log = await write_log(
        store, 0, [make_frame(0, 3, keys=True), make_frame(3, 40), make_frame(43, 2, stamps=True, headers=True)]
    )
    assert convert(store, [log]) == [(0, 45)]
    (table,) = await tables_of(store)
    file = pq.ParquetFile(store.place.root / table.path)
    assert file.schema_arrow.names == ["_segment", "_offset", "_timestamp", "_key", "_headers", "_value"]
    assert file.num_row_groups > 1
    rows = file.read().to_pylist()
    assert [r["_offset"] for r in rows] == list(range(45))
    assert [r["_value"] for r in rows] == [value_of(o) for o in range(45)]
    assert ({r["_segment"] for r in rows}, [r["_key"] for r in rows[1:4]]) == ({0}, [b"key-1", b"key-2", None])
    assert (rows[44]["_headers"], rows[43]["_headers"]) == ([("h", b"44")], [("h", b"43")])
    stamps = pq.read_table(store.place.root / table.path)["_timestamp"].cast(pa.int64()).to_pylist()
    assert (stamps[:4], stamps[44]) == ([T0, T0, T0, T0 + 3_000_000], T0 + 44_000_000)


async def test_doing_it_again_changes_nothing(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    convert(store, [log])
    before = await tables_of(store)
    assert convert(store, [log]) == [(0, 10)]
    assert await tables_of(store) == before


TENS = [make_frame(base, 10) for base in range(0, 60, 10)]
BROKEN = TENS[2][:200] + bytes((TENS[2][200] ^ 1,)) + TENS[2][201:]
Log = tuple[int, list[bytes], str]


OTHERS = [(10, TENS[1:5], "b-2"), (20, TENS[2:6], "b-3"), (20, TENS[2:4], "b-4")]


@pytest.mark.parametrize(
    ("logs", "end_offset", "end"),
    [
        ([(0, TENS[:1], "b-1"), (10, [make_frame(10, 5)], "b-1")], None, 15),
        ([(0, [*TENS[:3], TENS[3][:50]], "b-1"), *OTHERS], None, 60),
        ([(0, TENS[:2], "b-1")], 14, 14),
        ([(0, [TENS[0], TENS[1][:-1]], "b-1")], None, 10),
        ([(0, [], "b-1")], None, 0),
        ([(0, [*TENS[:2], BROKEN, *TENS[3:5]], "b-1"), (10, TENS[1:5], "b-1.1")], None, 50),
        ([(0, [*TENS[:2], BROKEN, TENS[3]], "b-1"), (40, [BROKEN, TENS[3]], "zombie")], 20, 20),
        ([(0, [make_frame(0, 4)], "b-1"), (0, TENS[:1], "of an earlier topic")], None, 4),
    ],
    ids=[
        *("one after another", "several writers", "beyond the end of the segment", "torn tail", "no records"),
        "damage that another log makes good",
        "damage behind the end is not even read",
        "of an earlier topic of the name",
    ],
)
async def test_logs_become_one_table_of_every_record_once(
    store: FileSegmentStore, logs: list[Log], end_offset: int | None, end: int
) -> None:
    for base, frames, writer in logs:
        is_earlier = writer == "of an earlier topic"
        await write_log(store, base, frames, writer="zombie" if is_earlier else writer, uid=6 if is_earlier else 7)
    assert convert(store, await logs_of(store), end_offset) == ([(0, end)] if end else [])
    assert offsets(store) == list(range(end))


async def test_what_a_table_holds_already_is_left_out(store: FileSegmentStore) -> None:
    early = await write_log(store, 0, TENS[:2], writer="b-1")
    assert convert(store, [early]) == [(0, 20)]
    longer = await write_log(store, 10, TENS[1:], writer="b-2")
    assert (convert(store, [longer]), offsets(store)) == ([(0, 20), (20, 60)], list(range(60)))


async def test_plain_and_typed_records_go_into_tables_of_their_own(store: FileSegmentStore) -> None:
    topic = make_topic(schema_to_bytes(TYPED))
    log = await write_log(store, 0, [make_frame(0, 5), make_frame(5, 5, schema=TYPED), make_frame(10, 5)])
    assert convert(store, [log], topic=topic) == [(0, 5), (5, 10), (10, 15)]
    typed = pq.read_table(store.place.root / (await tables_of(store))[1].path)
    assert typed.column_names == ["_segment", "_offset", "_timestamp", "_key", "_headers", "id", "price"]
    assert typed["id"].to_pylist() == [5, 6, 7, 8, 9]


async def test_damage_in_the_middle_names_the_place_and_leaves_everything_as_it_was(store: FileSegmentStore) -> None:
    broken = bytearray(make_frame(10, 10))
    broken[200] ^= 1
    log = await write_log(store, 0, [make_frame(0, 10), bytes(broken), make_frame(20, 10)])
    at = len(make_preamble(0)) + len(make_frame(0, 10))
    with pytest.raises(Corrupt, match=rf"{log.path} is damaged at byte {at}, offset 10"):
        convert(store, [log])
    assert list((store.place.root / table_dir(NAME)).iterdir()) == []
    assert await logs_of(store) == [log]


async def test_a_log_cut_short_is_noticed_by_the_next_one(store: FileSegmentStore) -> None:
    cut = await write_log(store, 0, [make_frame(0, 10)])
    await write_log(store, 20, [make_frame(20, 10)])
    with pytest.raises(Corrupt, match="ends with offset 10, but records up to 20 were stored"):
        convert(store, [cut])
    with pytest.raises(Corrupt, match="ends with offset 10"):
        convert(store, await logs_of(store))


async def test_a_log_cut_short_is_noticed_by_the_end_of_the_segment(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10)[:-1]])
    with pytest.raises(Corrupt, match="records up to 20 were stored"):
        convert(store, [log], end_offset=20)


async def test_a_table_keeps_its_limit_at_new_logs(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seaweedmq.storage.tables.convert.TABLE_BYTES_MAX", 3_000)
    for base in range(0, 40, 10):
        await write_log(store, base, [make_frame(base, 10, size=100)])
    assert convert(store, await logs_of(store)) == [(0, 10), (10, 20), (20, 30), (30, 40)] or offsets(store) == list(
        range(40)
    )
    assert len(await tables_of(store)) > 1


async def test_tables_of_a_topic_lie_in_one_folder_that_plain_readers_understand(store: FileSegmentStore) -> None:
    convert(store, [await write_log(store, 0, [make_frame(0, 10)])], row_group_bytes=10**6)
    convert(store, [await write_log(store, 0, [make_frame(0, 30)], segment=1)], row_group_bytes=10**6)
    folder = store.place.root / table_dir(NAME)
    (folder / ".tmp-1-1").write_bytes(b"PAR1, half written")
    read: tuple[Callable[[Path], pa.Table], ...] = (
        pq.read_table,
        lambda path: ds.dataset(path, format="parquet").to_table(),
        lambda path: pa.Table.from_pandas(pd.read_parquet(path)),
    )
    for reader in read:
        found = reader(folder)
        assert sorted(zip(found["_segment"].to_pylist(), found["_offset"].to_pylist(), strict=True)) == [
            *((0, offset) for offset in range(10)),
            *((1, offset) for offset in range(30)),
        ]
    for segment in (0, 1):
        (table,) = await tables_of(store, segment)
        statistics = pq.read_metadata(store.place.root / table.path).row_group(0).column(0).statistics
        assert (statistics.min, statistics.max) == (segment, segment)
        assert [f.segment for f in await store.list_files(NAME, segment)] == [segment] * 2


async def test_no_damage_of_a_footer_is_overlooked(store: FileSegmentStore) -> None:
    """Undetected, it would hide records from searches by time, or crash the process that reads it."""
    log = await write_log(store, 0, [make_frame(0, 30, keys=True, stamps=True)])
    (table,) = convert_files(store.place, make_topic(), [log], None, 10**6)
    path = store.place.root / table.path

    def opened() -> None:
        with contextlib.closing(store.place.open_input(table)) as source:
            open_table(source, table, make_topic()).close()

    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert content[footer - 16 : footer - 8] == b"SWMQFOOT"
    assert xxh3_64_intdigest(content[footer:]) == int.from_bytes(content[footer - 8 : footer], "little")
    for at in range(footer - 16, len(content)):
        path.write_bytes(content[:at] + bytes((content[at] ^ 1 << at % 8,)) + content[at + 1 :])
        with pytest.raises(Corrupt, match=f"{table.path} is damaged: its footer"):
            opened()
    for size in (0, 7, 8, 100, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(Corrupt, match=f"{table.path} is damaged"):
            opened()
    path.write_bytes(content)
    opened()


class Racing(DirectoryTarget):
    """Another converter publishes the same records just before this one does."""

    def publish(self, sink: IO[bytes], base: int, end: int) -> SegmentFile:
        faster = DirectoryTarget(self._place, NAME, 0)
        other = faster.create()
        other.write(b"of the other one")
        faster.publish(other, base, end - 1)
        return super().publish(sink, base, end)


async def test_two_converters_make_no_overlap(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    monkeypatch.setattr("seaweedmq.storage.tables.files.DirectoryTarget", Racing)
    with pytest.raises(Unavailable, match=r"offsets \[0, 10\) were converted by another process meanwhile"):
        convert(store, [log])
    assert [(t.base_offset, t.end_offset) for t in await tables_of(store)] == [(0, 9)]
    monkeypatch.undo()
    assert convert(store, [log]) == [(0, 9), (9, 10)]


async def test_only_one_process_converts_a_segment_at_a_time(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    with (store.place.root / log_dir(NAME, 0) / LOCK_NAME).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="shop/orders#0 is being converted by another process"):
            convert(store, [log])
    assert convert(store, [log]) == [(0, 10)]
    assert [path.name for path in (store.place.root / log_dir(NAME, 0)).iterdir()] == [Path(log.path).name]


async def test_a_lock_whose_file_was_removed_is_none(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    lock = store.place.root / log_dir(NAME, 0) / LOCK_NAME
    take = fcntl.flock

    def late(fd: int, operation: int) -> None:
        lock.unlink()  # by the one that was faster
        take(fd, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        with pytest.raises(Unavailable, match="was just converted by another process"):
            convert(store, [log])
    assert convert(store, [log]) == [(0, 10)]


@pytest.mark.parametrize("converter", ["done", "killed", "at it"])
async def test_the_folder_of_a_segment_goes_with_its_last_log(store: FileSegmentStore, converter: str) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    later = await write_log(store, 10, [make_frame(10, 10)])
    folder = store.place.root / log_dir(NAME, 0)
    assert convert(store, [log, later]) == [(0, 20)]
    with contextlib.ExitStack() as held:
        if converter != "done":
            other = held.enter_context((folder / LOCK_NAME).open("wb"))
            if converter == "at it":
                fcntl.flock(other, fcntl.LOCK_EX)
        await store.delete([log])
        assert folder.exists()
        await store.delete([later])
        assert not folder.exists()


async def test_the_folder_of_a_fenced_segment_stays(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    await store.fence(NAME, 7, 0)
    convert(store, [log])
    await store.delete([log])
    assert await store.is_fenced(NAME, 7, 0)


async def test_a_file_system_without_locks_will_do(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])

    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert convert(store, [log]) == [(0, 10)]


async def test_the_logs_of_a_deleted_topic_make_no_folder_anew(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    shutil.rmtree(store.place.root / "topics")
    with pytest.raises(NotFound, match="the topic was deleted"):
        convert(store, [log])
    assert list(store.place.root.iterdir()) == []


async def test_a_table_is_not_left_to_the_next_topic(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same broker may have begun a log of the same name there."""
    log = await write_log(store, 0, [make_frame(0, 10)])
    path = store.place.root / log.path

    class Late(DirectoryTarget):
        def create(self) -> IO[bytes]:
            content = path.read_bytes()
            path.rename(store.place.root / "deleted")
            path.write_bytes(content)
            return super().create()

    monkeypatch.setattr("seaweedmq.storage.tables.files.DirectoryTarget", Late)
    with pytest.raises(NotFound, match="its topic was deleted"):
        convert(store, [log])
    assert not [f for f in await store.list_files(NAME, 0) if f.kind is FileKind.TABLE]
