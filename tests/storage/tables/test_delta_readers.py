"""delta-rs, pyarrow, polars and DuckDB read from a topic's Delta log what SeaweedMQ reads from its files.

DuckDB reads the list of files through delta-rs: its own extension for Delta is not a Python package.
"""

import datetime
import json
import math
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seaweedmq.codec.tables.delta_schema import delta_schema, features_needed, left_out
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables.delta import updater
from seaweedmq.storage.tables.delta.entries import topic_columns
from seaweedmq.storage.tables.delta.updater import DeltaLogs, reconcile
from seaweedmq.storage.tables.delta.versions import history
from tests.support.open_tables import READERS, by_duckdb, by_polars, by_seaweedmq, content, folder_of, log_of, merge
from tests.support.open_tables import unlink_within as unlink
from tests.support.topic_files import TopicFiles
from tests.support.typed_rows import TypedFiles


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    files = TopicFiles(tmp_path / "root")
    files.open_segments(2)
    return files


def test_all_agree_before_during_and_after_a_compaction_and_on_versions(orders: TopicFiles, tmp_path: Path) -> None:
    logs = DeltaLogs()
    for n in range(6):
        for segment in range(2):
            orders.table(20 * n, 20 * n + 20, segment=segment)
    logs.reconcile(DirectoryPlace(orders.root), orders.topic)
    whole = content(by_seaweedmq(orders.root, orders.name))
    assert (whole.count, whole.offsets) == (240, 2 * sum(range(120)))

    def agree(version: int | None = None) -> None:
        for reader in READERS:
            assert content(reader(folder_of(orders), version)) == whole, reader.__name__

    agree()
    merge(orders, 0, 100, tmp_path / "aside")
    agree()
    assert content(by_seaweedmq(orders.root, orders.name)) == whole
    assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) == 1
    agree()
    unlink(orders, 0, 40)
    agree()
    unlink(orders, 0, 100)
    assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) is None
    agree()
    assert content(by_seaweedmq(orders.root, orders.name)) == whole
    agree(0)
    orders.table(120, 140)
    assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) == 2
    agree(0)
    agree(1)
    assert content(by_polars(folder_of(orders))).count == 260


def test_all_agree_after_a_checkpoint(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(updater, "is_checkpoint_due", lambda commits, *_: commits >= 3)
    logs = DeltaLogs()
    for n in range(7):
        orders.table(10 * n, 10 * n + 10)
        if n == 4:
            merge(orders, 0, 30, tmp_path / "aside")
        logs.reconcile(DirectoryPlace(orders.root), orders.topic, grace_s=0, confirmed_us=2**60)
    names = sorted(p.name for p in log_of(orders).iterdir())
    assert [n for n in names if n.endswith(".checkpoint.parquet")] == [f"{5:020d}.checkpoint.parquet"]
    assert f"{4:020d}.json" not in names
    whole = content(by_seaweedmq(orders.root, orders.name))
    for reader in READERS:
        for version in (None, 5, 6):
            found = content(reader(folder_of(orders), version))
            assert (found == whole) == (version != 5), reader.__name__
    table = deltalake.DeltaTable(str(folder_of(orders)))
    assert (table.metadata().name, [h["operation"] for h in table.history()][:1]) == ("shop/orders", ["WRITE"])


def test_readers_leave_out_tables_by_their_statistics(orders: TopicFiles) -> None:
    for n in range(5):
        orders.table(100 * n, 100 * n + 100)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    table = deltalake.DeltaTable(str(folder_of(orders)))
    added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    found = sorted((a["min._offset"], a["max._offset"], a["num_records"]) for a in added)
    assert found == [(100 * n, 100 * n + 99, 100) for n in range(5)]
    fragments = list(table.to_pyarrow_dataset().get_fragments(filter=pa.compute.field("_offset") >= 400))
    assert len(fragments) == 1
    late = datetime.datetime.fromtimestamp(1_600_000_000 + 450, datetime.UTC)
    fragments = list(table.to_pyarrow_dataset().get_fragments(filter=pa.compute.field("_timestamp") >= late))
    assert len(fragments) == 1
    found = deltalake.QueryBuilder().register("t", table).execute("select count(*) c from t where _offset >= 450")
    assert pa.table(found.read_all())["c"].to_pylist() == [50]
    found = pl.scan_delta(str(folder_of(orders))).filter(pl.col("_timestamp") >= late).select(pl.len()).collect()
    assert found.item() == 50


FILTERS = (
    ("n", "n >= 15", pc.field("n") >= 15, pl.col("n") >= 15, 5),
    ("not n", "not n >= 15", ~(pc.field("n") >= 15), ~(pl.col("n") >= 15), 15),
    ("text", "text = 's11'", pc.field("text") == "s11", pl.col("text") == "s11", 1),
    ("flag", "flag", pc.field("flag"), pl.col("flag"), 10),
    ("ratio", "ratio = 7.0", pc.field("ratio") == 7.0, pl.col("ratio") == 7.0, 1),
    ("null", "half is null", pc.field("half").is_null(), pl.col("half").is_null(), 10),
    ("no null", "half is not null", pc.field("half").is_valid(), pl.col("half").is_not_null(), 10),
    ("or", "n >= 15 or _offset < 2", *((of("n") >= 15) | (of("_offset") < 2) for of in (pc.field, pl.col)), 7),
    ("offset", "_offset >= 19", pc.field("_offset") >= 19, pl.col("_offset") >= 19, 1),
)
"""Filters of the rows 0 to 19 in SQL, for pyarrow and for polars, and how many rows pass."""


@pytest.mark.parametrize("is_checkpoint_due", [False, True], ids=["commit", "checkpoint"])
@pytest.mark.parametrize("is_upgraded", [False, True], ids=["new", "upgraded"])
def test_filters_on_columns_of_the_topic_find_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checkpoint_due: bool, is_upgraded: bool
) -> None:
    """The log has statistics of other columns, and delta-rs would treat missing ones as NULL bounds."""
    numbers = range(20)
    rows = pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "text": pa.array([f"s{n:02}" for n in numbers]),
            "flag": pa.array([n % 2 == 0 for n in numbers]),
            "ratio": pa.array([math.nan if n % 3 == 0 else float(n) for n in numbers]),
            "half": pa.array([None if n < 10 else n for n in numbers], pa.int64()),
        }
    )
    files = TypedFiles(tmp_path, schema=rows.schema, content=rows)
    files.table(0, 10)
    files.table(10, 20)
    monkeypatch.setattr(updater, "is_checkpoint_due", lambda *_: is_checkpoint_due)
    assert reconcile(DirectoryPlace(tmp_path), files.topic) == 0
    if is_upgraded:
        _without_stats_columns(files)
        assert reconcile(DirectoryPlace(tmp_path), files.topic) == 1
        assert history(DirectoryPlace(tmp_path), files.name)[-1].operation == "SET TBLPROPERTIES"
    assert reconcile(DirectoryPlace(tmp_path), files.topic) is None
    table = deltalake.DeltaTable(str(folder_of(files)))
    dataset, query = table.to_pyarrow_dataset(), deltalake.QueryBuilder().register("t", table)
    scan = pl.scan_delta(str(folder_of(files)))
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        for name, sql, for_arrow, for_polars, count in FILTERS:
            found = {
                "pyarrow": dataset.to_table(filter=for_arrow).num_rows,
                "pandas": len(table.to_pandas(filters=for_arrow)),
                "delta-rs": pa.table(query.execute(f"select n from t where {sql}").read_all()).num_rows,
                "duckdb": len(connection.sql(f"select n from t where {sql}").fetchall()),
                "polars": scan.filter(for_polars).select("n").collect().height,
            }
            assert found == dict.fromkeys(found, count), name
    assert len(list(dataset.get_fragments(filter=pc.field("_offset") >= 19))) == 1


def _without_stats_columns(files: TopicFiles) -> None:
    """Rewrite the first commit as earlier builds wrote it, and drop its checkpoint."""
    commit = log_of(files) / f"{0:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            del line["metaData"]["configuration"]["delta.dataSkippingStatsColumns"]
    commit.write_text("\n".join(map(json.dumps, lines)))
    for name in ("_last_checkpoint", f"{0:020d}.checkpoint.parquet"):
        (log_of(files) / name).unlink(missing_ok=True)


def test_no_other_program_can_write_to_the_log_or_take_tables_for_orphans(orders: TopicFiles) -> None:
    orders.table(0, 10)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    table = deltalake.DeltaTable(str(folder_of(orders)))
    before = sorted(str(p) for p in folder_of(orders).rglob("*"))
    for write in (
        lambda: table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True),
        table.delete,
        table.optimize.compact,
        lambda: deltalake.write_deltalake(table, pa.table({"_offset": [1]}), mode="append", schema_mode="merge"),
    ):
        with pytest.raises(deltalake.exceptions.DeltaError, match="seaweedmq"):
            write()
    assert sorted(str(p) for p in folder_of(orders).rglob("*")) == before


def test_plain_records_lack_columns(tmp_path: Path) -> None:
    plain = TopicFiles(tmp_path)
    plain.table(0, 10)
    typed = TopicFiles(tmp_path, schema=pa.schema([pa.field("number", pa.int64(), nullable=False)]))
    typed.table(10, 20)
    assert reconcile(DirectoryPlace(tmp_path), typed.topic) == 0
    rows = pl.scan_delta(str(folder_of(typed))).sort("_offset").select("number", "_value").collect()
    assert (rows["number"].to_list(), rows["_value"].null_count()) == ([None] * 10 + list(range(10, 20)), 10)
    for reader in (by_duckdb,):
        assert reader(folder_of(typed)).num_rows == 20
    dataset = deltalake.DeltaTable(str(folder_of(typed))).to_pyarrow_dataset()
    assert dataset.to_table().sort_by("_offset")["number"].to_pylist() == rows["number"].to_list()
    assert dataset.to_table(filter=pc.field("number").is_null())["_offset"].to_pylist() == list(range(10))
    assert dataset.to_table(filter=pc.field("_value").is_null())["_offset"].to_pylist() == list(range(10, 20))


LONGS = {"type": "array", "elementType": "long", "containsNull": True}
TYPES: dict[str, tuple[pa.DataType, str | dict[str, object]]] = {
    "bool": (pa.bool_(), "boolean"),
    "int8": (pa.int8(), "byte"),
    "int16": (pa.int16(), "short"),
    "int32": (pa.int32(), "integer"),
    "int64": (pa.int64(), "long"),
    "uint8": (pa.uint8(), "short"),
    "uint16": (pa.uint16(), "integer"),
    "uint32": (pa.uint32(), "long"),
    "uint64": (pa.uint64(), "decimal(20,0)"),
    "float32": (pa.float32(), "float"),
    "float64": (pa.float64(), "double"),
    "date": (pa.date32(), "date"),
    "us utc": (pa.timestamp("us", "UTC"), "timestamp"),
    "ms utc": (pa.timestamp("ms", "UTC"), "timestamp"),
    "s utc": (pa.timestamp("s", "UTC"), "timestamp"),
    "paris": (pa.timestamp("us", "Europe/Paris"), "timestamp"),
    "us": (pa.timestamp("us"), "timestamp_ntz"),
    "ms": (pa.timestamp("ms"), "timestamp_ntz"),
    "binary": (pa.binary(), "binary"),
    "large binary": (pa.large_binary(), "binary"),
    "fixed": (pa.binary(3), "binary"),
    "string": (pa.string(), "string"),
    "large string": (pa.large_string(), "string"),
    "decimal": (pa.decimal128(10, 2), "decimal(10,2)"),
    "decimal32": (pa.decimal32(7, 2), "decimal(7,2)"),
    "decimal64": (pa.decimal64(12, 2), "decimal(12,2)"),
    "decimal256": (pa.decimal256(30, 2), "decimal(30,2)"),
    "list": (pa.list_(pa.uint32()), LONGS),
    "large list": (pa.large_list(pa.field("item", pa.int64(), nullable=False)), LONGS | {"containsNull": False}),
    "fixed list": (pa.list_(pa.int64(), 2), LONGS),
    "struct": (
        pa.struct([("a", pa.uint16()), pa.field("b", pa.string(), nullable=False)]),
        {
            "type": "struct",
            "fields": [
                {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
                {"name": "b", "type": "string", "nullable": False, "metadata": {}},
            ],
        },
    ),
}
ALIKE = pa.struct([("id", pa.int64()), ("ID", pa.int64())])
LEFT_OUT = {
    "half": (pa.float16(), "halffloat: Delta has no such type"),
    "time": (pa.time64("us"), "time64[us]: Delta has no such type"),
    "time of seconds": (pa.time32("s"), "time32[s]: Delta has no such type"),
    "duration": (pa.duration("s"), "duration[s]: Delta has no such type"),
    "ns": (pa.timestamp("ns"), "timestamp[ns]: Delta's times have microseconds"),
    "decimal of 76 digits": (pa.decimal256(76, 2), "decimal256(76, 2): Delta's decimals have 38 digits"),
    "list of times": (pa.list_(pa.time64("us")), "time64[us]: Delta has no such type"),
    "struct with one": (pa.struct([("d", pa.duration("us"))]), "duration[us]: Delta has no such type"),
    "names by case": (ALIKE, f"{ALIKE}: Delta treats the fields 'id' and 'ID' as one"),
    "names in a list": (pa.list_(ALIKE), f"{ALIKE}: Delta treats the fields 'id' and 'ID' as one"),
    "names in a map": (pa.map_("string", ALIKE), f"{ALIKE}: Delta treats the fields 'id' and 'ID' as one"),
}


def test_what_delta_has_not_is_left_out_with_the_reason() -> None:
    schema = pa.schema([("number", pa.int64())] + [(name, kind) for name, (kind, _) in LEFT_OUT.items()])
    assert left_out(schema) == {name: reason for name, (_, reason) in LEFT_OUT.items()}
    assert [f["name"] for f in json.loads(delta_schema(schema))["fields"]] == ["number"]


def test_only_times_without_a_zone_ask_more_of_readers() -> None:
    assert features_needed(delta_schema(pa.schema([("t", pa.timestamp("us", "UTC"))]))) == frozenset()
    assert features_needed(delta_schema(pa.schema([("t", pa.timestamp("us"))]))) == frozenset({"timestampNtz"})


def test_every_type_is_declared_as_what_all_read_right() -> None:
    """Among omitted columns. What other programs read is in ``tests/storage/test_outside_readers.py``."""
    fields = [(name, kind) for name, (kind, _) in (*TYPES.items(), *LEFT_OUT.items())]
    declared = {f["name"]: f["type"] for f in json.loads(delta_schema(pa.schema(fields)))["fields"]}
    assert declared == {name: declared_as for name, (_, declared_as) in TYPES.items()}


def test_a_topic_tells_what_its_log_leaves_out(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path, schema=pa.schema([("number", pa.uint64()), ("at", pa.time64("us"))]))
    assert left_out(topic_columns(files.topic)) == {"at": "time64[us]: Delta has no such type"}
    files.table(0, 10)
    assert reconcile(DirectoryPlace(tmp_path), files.topic) == 0
    found = deltalake.DeltaTable(str(folder_of(files))).to_pyarrow_table()
    assert "at" not in found.column_names
    assert found.sort_by("_offset")["number"].to_pylist() == list(range(10))
