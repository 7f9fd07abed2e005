"""A topic's tables as an Iceberg table, in a catalog of SQLite: registered, not copied, and reconciled."""

import datetime
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from seaweedmq.codec.tables.iceberg_schema import iceberg_columns
from seaweedmq.errors import AlreadyExists, DataLoss, InvalidArgument, NotFound, Unavailable, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import iceberg
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.iceberg import Exported, export_iceberg
from seaweedmq.storage.tables.delta.updater import reconcile
from tests.support.open_tables import COLUMNS, by_polars, by_seaweedmq, content, folder_of, merge, unlink_within
from tests.support.topic_files import TopicFiles
from tests.support.typed_rows import TypedFiles


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Polars prefers to plan with a separate package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    return TopicFiles(tmp_path / "root")


def export(files: TopicFiles) -> Exported:
    return export_iceberg(DirectoryPlace(files.root), files.name, f"sqlite:///{files.root / 'catalog.db'}")


def opened(files: TopicFiles) -> Table:
    root = files.root.as_uri()
    catalog = load_catalog("seaweedmq", type="sql", uri=f"sqlite:///{files.root / 'catalog.db'}", warehouse=root)
    return catalog.load_table("shop.orders")


def test_the_same_files_are_read_by_pyiceberg_polars_and_duckdb(orders: TopicFiles) -> None:
    for n in range(3):
        orders.table(10 * n, 10 * n + 10)
    done = export(orders)
    assert (done.table, done.added, done.removed, done.files, done.left_out) == ("shop.orders", 3, 0, 3, {})
    table = opened(orders)
    whole = content(by_seaweedmq(orders.root, orders.name))
    assert content(table.scan().to_arrow()) == whole
    assert content(pl.scan_iceberg(table).collect().to_arrow()) == whole
    with duckdb.connect() as connection:
        connection.register("t", table.scan().to_arrow())
        assert content(connection.sql(f"select {', '.join(COLUMNS)} from t").to_arrow_table()) == whole
    copied = [p for p in orders.root.rglob("*.parquet") if folder_of(orders) not in p.parents]
    assert copied == []


def test_files_are_left_out_by_their_bounds(orders: TopicFiles) -> None:
    for n in range(3):
        orders.table(10 * n, 10 * n + 10)
    export(orders)
    table = opened(orders)
    assert len(list(table.scan(row_filter="_offset >= 25").plan_files())) == 1
    late = datetime.datetime.fromtimestamp(1_600_000_025, datetime.UTC).isoformat()
    assert len(list(table.scan(row_filter=f"_timestamp >= '{late}'").plan_files())) == 1
    assert table.scan(row_filter="_offset >= 25").to_arrow().num_rows == 5
    assert table.scan(row_filter="_segment = 1").to_arrow().num_rows == 0


def test_a_second_export_adds_the_new_and_drops_the_old_in_one_snapshot(orders: TopicFiles, tmp_path: Path) -> None:
    for n in range(3):
        orders.table(10 * n, 10 * n + 10)
    first = export(orders)
    again = export(orders)
    assert (again.added, again.removed, again.snapshot) == (0, 0, first.snapshot)
    merge(orders, 0, 30, tmp_path / "aside")
    orders.table(30, 40)
    third = export(orders)
    assert (third.added, third.removed, third.files) == (2, 3, 2)
    unlink_within(orders, 0, 30)
    table = opened(orders)
    assert content(table.scan().to_arrow()) == content(by_seaweedmq(orders.root, orders.name))
    assert len(table.history()) == 2
    assert table.scan(snapshot_id=first.snapshot).to_arrow().num_rows == 30, "and time travel works"
    unlink_within(orders, 0, 50)
    assert (export(orders).removed, opened(orders).scan().to_arrow().num_rows) == (2, 0)


def test_lost_records_are_errors_with_offsets_or_skipped(orders: TopicFiles, caplog: pytest.LogCaptureFixture) -> None:
    orders.table(0, 10)
    lost = orders.table(10, 20)
    orders.table(20, 30)
    (orders.root / lost.path).unlink()
    with pytest.raises(DataLoss, match=r"shop/orders#0: records of offsets \[10, 20\) are missing"):
        export(orders)
    done = export_iceberg(
        DirectoryPlace(orders.root), orders.name, f"sqlite:///{orders.root}/catalog.db", skip_missing=True
    )
    assert done.files == 2
    assert "offsets [10, 20) are missing" in caplog.text


def test_a_topic_without_tables_makes_none(orders: TopicFiles) -> None:
    assert export(orders) == Exported(table="shop.orders", snapshot=None, added=0, removed=0, files=0, left_out={})
    orders.table(0, 10)
    assert export(orders).added == 1


TYPES = {
    "uint8": (pa.uint8(), [255, 1]),
    "uint16": (pa.uint16(), [65_535, 1]),
    "uint32": (pa.uint32(), [2**32 - 1, 1]),
    "int8": (pa.int8(), [-128, 1]),
    "ms": (pa.timestamp("ms", "UTC"), [datetime.datetime(2020, 1, 1, 12, 0, 0, 5_000, datetime.UTC), None]),
    "local": (pa.timestamp("us"), [datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC).replace(tzinfo=None), None]),
    "time": (pa.time64("us"), [datetime.time(12, 0, 0, 5), None]),
    "text": (pa.large_string(), ["a", None]),
    "list": (pa.list_(pa.uint16()), [[65_535], None]),
    "struct": (pa.struct([("a", pa.int16())]), [{"a": 5}, None]),
}
LEFT_OUT = {
    "uint64": pa.uint64(),
    "half": pa.float16(),
    "ns": pa.timestamp("ns"),
    "within": pa.struct([("x", pa.uint64()), ("y", pa.list_(pa.int32()))]),
}


def test_types_are_read_right_and_what_iceberg_has_not_is_left_out(tmp_path: Path) -> None:
    own = {name: pa.array(values, kind) for name, (kind, values) in TYPES.items()}
    own |= {name: pa.nulls(2, kind) for name, kind in LEFT_OUT.items()}
    rows = pa.table({"n": pa.array([1, 2]), **own})
    files = TypedFiles(tmp_path, schema=rows.schema, content=rows)
    files.table(0, 2)
    assert export(files).left_out == {
        "uint64": "uint64: Iceberg has no such type",
        "half": "halffloat: Iceberg has no such type",
        "ns": "timestamp[ns]: times in the tables of Iceberg have microseconds",
        "within": "uint64: Iceberg has no such type",
    }
    found = opened(files).scan().to_arrow().sort_by("n")
    for name, (_, values) in TYPES.items():
        assert found[name].to_pylist() == values, name


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.duration("s"), pa.time32("s"), pa.time64("ns"), pa.decimal64(16, 3), pa.decimal256(30, 2)),
        *(pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns", "Asia/Tokyo")),
    ],
)
def test_a_topic_whose_files_pyiceberg_can_not_read_is_refused_in_words(tmp_path: Path, kind: pa.DataType) -> None:
    assert "odd" in iceberg_columns(pa.schema([("odd", pa.list_(kind))])).unreadable
    files = TopicFiles(tmp_path, schema=pa.schema([("odd", kind)]))
    with pytest.raises(Unsupported, match=r"shop/orders cannot be exported to Iceberg, .*odd, "):
        export(files)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("s.x", pa.struct([("x", pa.int64())])),
        ("s.element", pa.list_(pa.int64())),
        ("s.value", pa.map_("int8", "int8")),
    ],
)
def test_a_column_is_refused_whose_name_iceberg_gives_to_a_part_of_another(name: str, kind: pa.DataType) -> None:
    found = iceberg_columns(pa.schema([("s", kind), (name, pa.int64()), ("t.x", pa.int64())]))
    assert found.unreadable == {name: "Iceberg gives a part of column 's' this name"}
    assert found.schema.names == ["s", "t.x"]


def test_a_topic_that_gets_a_schema_gets_its_columns(tmp_path: Path) -> None:
    plain = TopicFiles(tmp_path)
    plain.table(0, 10)
    export(plain)
    typed = TopicFiles(tmp_path, schema=pa.schema([pa.field("number", pa.int64(), nullable=False)]))
    typed.table(10, 20)
    assert export(typed).added == 1
    found = opened(typed).scan().to_arrow().sort_by("_offset")
    assert (found["number"].to_pylist(), found["_value"].null_count) == ([None] * 10 + list(range(10, 20)), 10)


def test_what_is_in_the_way_is_named(orders: TopicFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.table(0, 10)
    with pytest.raises(NotFound, match="no topic shop/returns"):
        export_iceberg(DirectoryPlace(orders.root), TopicName("shop", "returns"), "sqlite:///x.db")
    with pytest.raises(InvalidArgument, match=r"catalog nowhere cannot be opened .*\.pyiceberg\.yaml"):
        export_iceberg(DirectoryPlace(orders.root), orders.name, "nowhere")
    with pytest.raises(InvalidArgument, match=r"catalog sqlite:////nonexistent/x[.]db cannot be opened"):
        export_iceberg(DirectoryPlace(orders.root), orders.name, "sqlite:////nonexistent/x.db")
    export(orders)
    opened(orders).transaction().set_properties({iceberg.UID_KEY: "8"}).commit_transaction()
    with pytest.raises(AlreadyExists, match=r"table shop.orders that is of another topic"):
        export(orders)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyiceberg.catalog", None)
        with pytest.raises(Unsupported, match=r'pip install "seaweedmq\[iceberg\]"'):
            export(orders)


def test_an_export_that_another_one_overtook_says_so(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.table(0, 10)
    export(orders)
    stale = opened(orders)
    orders.table(10, 20)
    export(orders)
    monkeypatch.setattr(iceberg, "_table", lambda *args: stale)
    orders.table(20, 30)
    with pytest.raises(Unavailable, match=r"another process changed shop.orders meanwhile: export again"):
        export(orders)
    monkeypatch.undo()
    export(orders)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    rows = opened(orders).scan().to_arrow()
    assert content(rows) == content(by_polars(folder_of(orders)))
