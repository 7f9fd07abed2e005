"""Records by reference in tables: converted, merged, verified, rebuilt, listed for Delta and Iceberg, and read back."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, closing
from itertools import pairwise
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from seaweedmq.codec.frame import FLAG_REFERENCE, split_frames
from seaweedmq.codec.paths import table_dir
from seaweedmq.codec.payload.batch import decode_frame, full_batch, validate_payload
from seaweedmq.codec.references import reference_of
from seaweedmq.core.files.compaction import TableMerge
from seaweedmq.errors import Corrupt
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.reference import PayloadReference
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.iceberg import export_iceberg
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.jobs.rebuilding import rebuild_topic
from seaweedmq.storage.jobs.verifying import verify_topic
from seaweedmq.storage.plan.partitions import plan_partitions
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables import compact, part_sink
from seaweedmq.storage.tables.compact import merge_tables, publish_merge
from seaweedmq.storage.tables.delta.updater import reconcile
from seaweedmq.storage.tables.files import convert_files
from tests.support.object_places import memory_place, put_topic
from tests.support.open_tables import by_delta_rs, by_duckdb, by_polars, by_pyarrow, folder_of
from tests.support.referenced_files import ReferencedFiles
from tests.support.scans import scan_of

COLUMNS = ("_offset", "_value", "_reference")
PLAIN_COLUMNS = ["_segment", "_offset", "_timestamp", "_key", "_headers", "_value"]


@pytest.fixture
def films(tmp_path: Path) -> ReferencedFiles:
    """Return a topic in which offsets 15, 17 and 42 are by reference."""
    return ReferencedFiles(tmp_path / "root", referring=(15, 17, 42))


def tables_of(files: ReferencedFiles) -> list[SegmentFile]:
    return sorted((f for f in files.files() if f.kind is FileKind.TABLE), key=lambda f: f.base_offset)


def names_of(files: ReferencedFiles) -> list[list[str]]:
    return [pq.read_schema(files.root / table.path).names for table in tables_of(files)]


def expected(files: ReferencedFiles, end: int) -> list[tuple[int, bytes | None, PayloadReference | None]]:
    return [(n, None, files.reference(n)) if n in files.referring else (n, b"s0v%d" % n, None) for n in range(end)]


def rows_of(table: pa.Table) -> list[tuple[int, bytes | None, PayloadReference | None]]:
    found = zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)
    return sorted((number, value, reference_of(reference)) for number, value, reference in found)


async def caught_up(files: ReferencedFiles, end: int) -> AsyncIterator[tuple[int, bytes | None, object]]:
    """Yield what a subscriber that catches up finds, as the broker's reader serves it."""
    store = FileSegmentStore(files.root)
    reading = read_segment(store, files.topic, 0, 0, end, chunk_bytes=1_000)
    async with aclosing(reading) as chunks:
        async for chunk in chunks:
            for frame in split_frames(chunk.data):
                validate_payload(frame.header, frame.payload, None)
                rows = full_batch(decode_frame(frame, None), frame.header, None, has_references=True)
                references = rows.column("_reference").to_pylist()
                has_one = any(reference is not None for reference in references)
                assert bool(frame.header.flags & FLAG_REFERENCE) == has_one
                for i, (value, reference) in enumerate(zip(rows.column("_value").to_pylist(), references, strict=True)):
                    yield frame.header.base_offset + i, value, reference_of(reference)
    await store.close()


async def test_catch_up_from_logs_and_from_tables_finds_the_same_records(films: ReferencedFiles) -> None:
    films.log(0, 50)
    from_logs = [record async for record in caught_up(films, 50)]
    films.convert()
    for log in (f for f in films.files() if f.kind is FileKind.LOG):
        (films.root / log.path).unlink()
    from_tables = [record async for record in caught_up(films, 50)]
    assert from_logs == from_tables == expected(films, 50)


def test_only_a_table_from_the_first_reference_on_has_the_column(films: ReferencedFiles) -> None:
    films.log(0, 50)
    made = films.convert()
    assert [(t.base_offset, t.end_offset) for t in made] == [(0, 10), (10, 50)]
    assert names_of(films) == [PLAIN_COLUMNS, [*PLAIN_COLUMNS, "_reference"]]
    whole = pa.concat_tables([pq.read_table(films.root / t.path) for t in made], promote_options="default")
    assert rows_of(whole) == expected(films, 50)


def test_a_topic_without_references_has_tables_as_before(tmp_path: Path) -> None:
    files = ReferencedFiles(tmp_path / "root")
    files.log(0, 50)
    files.convert()
    assert names_of(files) == [PLAIN_COLUMNS]


@pytest.mark.parametrize("row_group_bytes", [500, 1 << 24])
@pytest.mark.parametrize("order", [(0, 10, 20, 30, 40, 50), (10, 20, 40, 50)], ids=["plain first", "referring first"])
def test_tables_with_and_without_become_one(
    films: ReferencedFiles, order: tuple[int, ...], row_group_bytes: int
) -> None:
    tables = [films.table(start, end) for start, end in pairwise(order)]
    merge = TableMerge(tables=tuple(tables))
    place = DirectoryPlace(films.root)
    written = merge_tables(place, films.topic, merge, row_group_bytes=row_group_bytes)
    made = publish_merge(place, films.topic, merge, written)
    assert names_of(films) == [[*PLAIN_COLUMNS, "_reference"]]
    found = pq.read_table(place.path(made.path))
    assert rows_of(found) == expected(films, 50)[order[0] :]
    compact.check_table(place, films.topic, made)


def test_a_merge_in_a_bucket_begins_again_with_the_column(
    films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_sink, "TAIL_BYTES", 8_192)
    monkeypatch.setattr(part_sink, "PART_BYTES", 128)
    for start in range(0, 50, 10):
        films.log(start, start + 10)
    place = memory_place()
    put_topic(place, films)
    for log in place.logs(films.name, 0):
        convert_files(place, films.topic, [log], None, 1 << 24)
    assert compact_topic(place, films.name).problems == []
    made = max(place.tables(films.name, [0]), key=lambda table: table.end_offset - table.base_offset)
    with closing(place.open_input(made)) as source:
        assert rows_of(pq.read_table(source)) == expected(films, 50)


def test_a_merge_without_references_makes_a_table_as_before(tmp_path: Path) -> None:
    files = ReferencedFiles(tmp_path / "root")
    for start in range(0, 50, 10):
        files.table(start, start + 10)
    compact_topic(DirectoryPlace(files.root), files.name)
    assert names_of(files) == [PLAIN_COLUMNS]


def test_verify_compares_references_with_the_logs(films: ReferencedFiles) -> None:
    films.log(0, 50)
    _, referring = films.convert()
    assert not verify_topic(DirectoryPlace(films.root), films.name).differences
    stored = pq.read_table(films.root / referring.path)["_reference"][5].as_py()
    films.write_again(referring, "_reference", 5, {**stored, "size": stored["size"] + 1})
    (difference,) = verify_topic(DirectoryPlace(films.root), films.name).differences
    assert (difference.path, difference.offset, difference.column) == (referring.path, 15, "_reference")


def test_verify_finds_a_reference_that_no_log_has(films: ReferencedFiles) -> None:
    films.log(0, 50)
    _, referring = films.convert()
    stored = pq.read_table(films.root / referring.path)["_reference"][5].as_py()
    films.write_again(referring, "_reference", 10, stored)
    (difference,) = verify_topic(DirectoryPlace(films.root), films.name).differences
    assert (difference.offset, difference.column) == (20, "_reference")


def test_a_damaged_table_is_rebuilt_from_the_logs(films: ReferencedFiles) -> None:
    films.log(0, 50)
    _, referring = films.convert()
    path = films.root / referring.path
    path.write_bytes(path.read_bytes()[:-40])
    rebuilt = rebuild_topic(DirectoryPlace(films.root), films.name)
    assert (rebuilt.problems, rebuilt.replaced) == ([], [referring.path])
    whole = pa.concat_tables([pq.read_table(films.root / t.path) for t in tables_of(films)], promote_options="default")
    assert rows_of(whole) == expected(films, 50)


def test_an_earlier_release_rejects_such_a_table(films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compares the columns with those that it knows, so it never passes over a reference in silence."""
    films.log(0, 50)
    _, referring = films.convert()
    monkeypatch.setattr("seaweedmq.storage.tables.opener.has_references", lambda table: False)
    with pytest.raises(Corrupt, match="does not have the columns of topic shop/orders"):
        compact.check_table(DirectoryPlace(films.root), films.topic, referring)


@pytest.mark.parametrize("read", [by_delta_rs, by_pyarrow, by_polars, by_duckdb])
def test_readers_of_the_delta_log_find_references(films: ReferencedFiles, read: Callable[..., pa.Table]) -> None:
    films.table(0, 10)
    reconcile(DirectoryPlace(films.root), films.topic)
    before = deltalake.DeltaTable(str(folder_of(films)))
    assert [f.name for f in before.schema().fields] == PLAIN_COLUMNS
    films.table(10, 20)
    films.table(20, 30)
    assert reconcile(DirectoryPlace(films.root), films.topic) == 1
    found = read(folder_of(films), columns=COLUMNS)
    assert rows_of(found) == expected(films, 30)
    assert read(folder_of(films), version=0, columns=COLUMNS[:2]).num_rows == 10


def test_the_column_stays_in_the_delta_log_while_tables_without_it_come(films: ReferencedFiles) -> None:
    for start in (10, 20):
        films.table(start, start + 10)
        reconcile(DirectoryPlace(films.root), films.topic)
    names = [f.name for f in deltalake.DeltaTable(str(folder_of(films))).schema().fields]
    assert names == [*PLAIN_COLUMNS, "_reference"]


def test_a_plain_glob_reads_them(films: ReferencedFiles) -> None:
    for start in (0, 10, 20):
        films.table(start, start + 10)
    glob = str(films.root / table_dir(films.name) / "*.parquet")
    with duckdb.connect() as connection:
        columns = ", ".join(COLUMNS)
        found = connection.sql(f"select {columns} from read_parquet('{glob}', union_by_name=true)").to_arrow_table()
    assert rows_of(found) == expected(films, 30)


@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table_has_them(films: ReferencedFiles) -> None:
    def export() -> object:
        return export_iceberg(DirectoryPlace(films.root), films.name, f"sqlite:///{films.root / 'catalog.db'}")

    films.table(0, 10)
    export()
    films.table(10, 20)
    assert export().left_out == {}
    catalog = load_catalog(
        "seaweedmq", type="sql", uri=f"sqlite:///{films.root / 'catalog.db'}", warehouse=films.root.as_uri()
    )
    table = catalog.load_table("shop.orders")
    assert rows_of(table.scan(selected_fields=COLUMNS).to_arrow()) == expected(films, 20)
    assert rows_of(pl.scan_iceberg(table).select(COLUMNS).collect().to_arrow()) == expected(films, 20)


@pytest.mark.parametrize("is_converted", [False, True])
def test_a_scan_shows_references_on_request(films: ReferencedFiles, is_converted: bool) -> None:
    films.log(0, 50)
    if is_converted:
        films.convert()
        for log in (f for f in films.files() if f.kind is FileKind.LOG):
            (films.root / log.path).unlink()
    snapshot = read_snapshot(DirectoryPlace(films.root), films.name)
    parts = plan_partitions(TopicSource(place=DirectoryPlace(films.root), snapshot=snapshot), ReadWindow(), 1)

    def scanned(include_references: bool) -> Iterable[pa.RecordBatch]:
        scan = scan_of(films.root, snapshot.topic, include_references=include_references)
        return [batch for part in parts for batch in scan.read(part)]

    without = pa.Table.from_batches(scanned(False))
    assert "reference" not in without.column_names
    assert without["value"].to_pylist() == [value for _, value, _ in expected(films, 50)]
    found = pa.Table.from_batches(scanned(True))
    found = found.select(["offset", "value", "reference"]).rename_columns(list(COLUMNS))
    assert rows_of(found) == expected(films, 50)
