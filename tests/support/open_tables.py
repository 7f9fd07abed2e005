"""A topic's content as read by other programs from its Delta log, and by SeaweedMQ from its files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from seaweedmq.codec.paths import kept_path, parse_segment_file, table_dir, table_path
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.plan.partitions import plan_partitions
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.delta.directory_log import DirectoryLog
from seaweedmq.storage.tables.delta.log_folder import Listing
from seaweedmq.storage.tables.delta.log_state import read_state
from tests.support.scans import scan_of
from tests.support.topic_files import TopicFiles

COLUMNS = ("_segment", "_offset", "_timestamp", "_key", "_value")


class Content(NamedTuple):
    """The content of some rows, in any order."""

    count: int
    offsets: int
    """Sum of the offsets."""
    checksum: str
    """Checksum of the sorted rows."""


def content(rows: pa.Table) -> Content:
    lines = sorted(
        (r["_segment"], r["_offset"], r["_timestamp"].timestamp(), bytes(r["_key"]), bytes(r["_value"]))
        for r in rows.select(COLUMNS).to_pylist()
    )
    return Content(len(lines), sum(line[1] for line in lines), xxh3_64_hexdigest(repr(lines).encode()))


def by_delta_rs(folder: Path, version: int | None = None, columns: Sequence[str] = COLUMNS) -> pa.Table:
    table = deltalake.DeltaTable(str(folder), version=version)
    found = deltalake.QueryBuilder().register("t", table).execute(f"select {', '.join(columns)} from t")
    return pa.table(found.read_all())


def by_pyarrow(folder: Path, version: int | None = None, columns: Sequence[str] = COLUMNS) -> pa.Table:
    return deltalake.DeltaTable(str(folder), version=version).to_pyarrow_table(columns=list(columns))


def by_polars(folder: Path, version: int | None = None, columns: Sequence[str] = COLUMNS) -> pa.Table:
    return pl.scan_delta(str(folder), version=version).select(columns).collect().to_arrow()


def by_duckdb(folder: Path, version: int | None = None, columns: Sequence[str] = COLUMNS) -> pa.Table:
    rows = deltalake.DeltaTable(str(folder), version=version).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.sql(f"select {', '.join(columns)} from rows").to_arrow_table()


READERS = (by_delta_rs, by_pyarrow, by_polars, by_duckdb)


def by_seaweedmq(root: Path, name: TopicName) -> pa.Table:
    """Read through the Python source of Spark, without Spark."""
    snapshot = read_snapshot(DirectoryPlace(root), name)
    scan = scan_of(root, snapshot.topic)
    parts = plan_partitions(TopicSource(place=DirectoryPlace(root), snapshot=snapshot), ReadWindow(), 1)
    rows = pa.Table.from_batches([batch for part in parts for batch in scan.read(part)])
    return rows.select(["segment", "offset", "timestamp", "key", "value"]).rename_columns(list(COLUMNS))


def folder_of(files: TopicFiles) -> Path:
    return files.root / table_dir(files.name)


def log_of(files: TopicFiles) -> Path:
    return folder_of(files) / "_delta_log"


def commits_of(files: TopicFiles) -> list[str]:
    return sorted(p.name for p in log_of(files).glob("*.json"))


class Listed(NamedTuple):
    """A table that a version lists."""

    segment: int
    base_offset: int
    end_offset: int


def tables_of_version(files: TopicFiles, version: int) -> list[Listed]:
    """Return the tables of one version, which all exist, ordered by segment and offset."""
    with DirectoryLog.opened(log_of(files)) as folder:
        listing = folder.listing()
        until = Listing(*([v for v in versions if v <= version] for versions in listing))
        state = read_state(folder, until)
    assert state.version == version, listing
    tables = []
    for path in state.active:
        found = parse_segment_file(f"{table_dir(files.name)}/{path.rpartition('/')[2]}")
        assert found.end_offset is not None
        assert (folder_of(files) / path).is_file(), path
        tables.append(Listed(found.segment, found.base_offset, found.end_offset))
    return sorted(tables)


def actions(files: TopicFiles, version: int, kind: str) -> list[dict[str, Any]]:
    """Return the actions of one version."""
    lines = (log_of(files) / f"{version:020d}.json").read_text().splitlines()
    return [action[kind] for action in map(json.loads, lines) if kind in action]


def merge(files: TopicFiles, start: int, end: int, aside: Path, *, segment: int = 0) -> Path:
    """Publish a table of offsets ``[start, end)`` beside those it replaces, as a compaction does."""
    other = TopicFiles(aside, schema=files.schema, uid=files.uid)
    other.segments = dict(files.segments)
    path = table_path(files.name, segment, start, end)
    other.write_documents()
    other.table(start, end, segment=segment)
    final = files.root / path
    (other.root / path).rename(final)
    kept = files.root / kept_path(path)
    kept.parent.mkdir(exist_ok=True)
    kept.hardlink_to(final)
    return final


def unlink_within(files: TopicFiles, start: int, end: int, *, segment: int = 0) -> None:
    """Remove the names of these tables except those in ``.kept``, as compaction and retention do last."""
    for file in files.files(segment):
        if (
            start <= file.base_offset
            and (file.end_offset or 0) <= end
            and file.path != table_path(files.name, segment, start, end)
        ):
            (files.root / file.path).unlink()
