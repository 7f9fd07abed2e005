"""Other programs read the written values, of any type, or the column is omitted by name."""

import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from seaweedmq.codec.tables.delta_schema import left_out
from seaweedmq.codec.tables.iceberg_schema import iceberg_columns
from seaweedmq.errors import Unsupported
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.iceberg import export_iceberg
from seaweedmq.storage.tables.delta.updater import reconcile
from tests.support.typed_rows import TypedFiles, drawn, plain

pytestmark = pytest.mark.examples

COUNT = 6
EXAMPLES = settings.default.max_examples if settings.default.max_examples > 100 else 25
"""All of the profile "deep"; each costs some files and a catalog."""
FLAT = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.time32("s"), pa.time64("us"), pa.time64("ns"), pa.duration("ms")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "Asia/Tokyo")),
    *(pa.decimal32(7, 2), pa.decimal64(12, 2), pa.decimal128(38, 10), pa.decimal256(60, 2)),
    *(pa.binary(), pa.large_binary(), pa.binary(3), pa.string(), pa.large_string()),
]
NAMES = st.lists(st.sampled_from(["a", "A", "b", "a.b", "x y", "ä"]), min_size=1, max_size=3, unique=True)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = NAMES.flatmap(lambda names: st.tuples(*(st.tuples(st.just(name), inner) for name in names)))
    lists = inner.map(pa.list_) | inner.map(pa.large_list) | inner.map(lambda kind: pa.list_(kind, 2))
    return lists | inner.map(lambda kind: pa.map_(pa.string(), kind)) | fields.map(lambda each: pa.struct(list(each)))


KINDS = st.recursive(st.sampled_from(FLAT), nested, max_leaves=3)
COLUMNS = st.dictionaries(
    st.sampled_from(["one", "two", "one.a", "Two words", "drei"]), KINDS, min_size=1, max_size=3
).filter(lambda columns: len({name.casefold() for name in columns}) == len(columns))


def as_pyiceberg_reads(value: Any, kind: pa.DataType) -> Any:
    """pyiceberg 0.12 reads a null list or map of structs as an empty one, in its workaround for
    https://github.com/apache/arrow/issues/38809."""
    if pa.types.is_struct(kind) and value is not None:
        return {
            kind.field(i).name: as_pyiceberg_reads(value[kind.field(i).name], kind.field(i).type)
            for i in range(kind.num_fields)
        }
    if pa.types.is_map(kind):
        value = [] if value is None and pa.types.is_struct(kind.item_type) else value
        return value and [(key, as_pyiceberg_reads(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        value = [] if value is None and pa.types.is_struct(kind.value_type) else value
        return value and [as_pyiceberg_reads(item, kind.value_type) for item in value]
    return value


def polars_reads(kind: pa.DataType) -> bool:
    """Whether polars reads a type: if not, it rejects the column by name, as the files differ from Delta's schema."""
    if pa.types.is_uint64(kind) or pa.types.is_fixed_size_list(kind):
        return False
    if pa.types.is_map(kind):
        return polars_reads(kind.item_type)
    return all(polars_reads(kind.field(i).type) for i in range(kind.num_fields))


def written(root: Path, columns: dict[str, pa.DataType], seed: int) -> TypedFiles:
    rng = random.Random(seed)
    rows = pa.table({"id": pa.array(range(COUNT)), **{name: drawn(kind, COUNT, rng) for name, kind in columns.items()}})
    files = TypedFiles(root, schema=rows.schema, content=rows)
    files.table(0, COUNT)
    return files


def as_it_is(value: Any, kind: pa.DataType) -> Any:
    return value


def assert_read(
    read: pa.Table, files: TypedFiles, absent: set[str], expected: Callable[[Any, pa.DataType], Any] = as_it_is
) -> None:
    assert set(read.column_names).isdisjoint(absent)
    read = read.sort_by("id")
    for name in files.content.column_names:
        if name not in absent:
            kind = files.content.schema.field(name).type
            values = [expected(value, kind) for value in files.content[name].to_pylist()]
            assert plain(read[name].to_pylist()) == plain(values), name


@settings(max_examples=EXAMPLES)
@given(COLUMNS, st.integers(0, 1_000))
def test_delta_readers_read_what_was_written_or_it_is_left_out(columns: dict[str, pa.DataType], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), columns, seed)
        reconcile(DirectoryPlace(files.root), files.topic)
        table = str(files.root / "topics/shop/orders/table")
        absent = {*left_out(files.content.schema)}
        opened = deltalake.DeltaTable(table)
        assert_read(opened.to_pyarrow_table(), files, absent)
        kinds = {field.name: field.type for field in files.content.schema if field.name not in absent}
        wanted = [name for name, kind in kinds.items() if polars_reads(kind)]
        read = polars.scan_delta(table).select(wanted).collect().to_arrow()
        assert_read(read, files, {*files.content.column_names} - {*wanted})
        for name in kinds.keys() - {*wanted}:
            with pytest.raises(polars.exceptions.SchemaError, match="data type mismatch for column"):
                polars.scan_delta(table).select(name).collect()
        names = ", ".join(f'"{name}"' for name in kinds)
        uris = [Path(uri.removeprefix("file://")) for uri in opened.file_uris()]
        rows = duckdb.read_parquet([str(path) for path in uris]).select(names)
        assert_read(rows.to_arrow_table(), files, absent)


@settings(max_examples=EXAMPLES)
@given(COLUMNS, st.integers(0, 1_000))
@example({"one": pa.list_(pa.struct([("a", pa.bool_())]), 2)}, 0)
def test_pyiceberg_reads_what_was_written_or_it_is_left_or_refused(columns: dict[str, pa.DataType], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = written(Path(folder), columns, seed)
        found = iceberg_columns(files.content.schema)
        catalog = f"sqlite:///{files.root}/iceberg.db"
        if found.unreadable:
            with pytest.raises(Unsupported) as refused:
                export_iceberg(DirectoryPlace(files.root), files.name, catalog)
            assert all(name in str(refused.value) for name in found.unreadable)
            return
        assert {*export_iceberg(DirectoryPlace(files.root), files.name, catalog).left_out} == {*found.left_out}
        opened = load_catalog("seaweedmq", type="sql", uri=catalog, warehouse=(files.root / "iceberg").as_uri())
        read = opened.load_table((files.name.namespace, files.name.name)).scan()
        assert_read(read.to_arrow(), files, {*found.left_out}, as_pyiceberg_reads)
