"""Files that pandas, polars, DuckDB and Python's modules write: equal values arrive, or the file is rejected."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.cli.records.reading import InputFormat
from seaweedmq.errors import InvalidArgument
from tests.cli.records import published
from tests.support.typed_rows import drawn, plain

pytestmark = pytest.mark.examples

COUNT = 6
EXAMPLES = settings.default.max_examples if settings.default.max_examples > 100 else 20
"""Number of files to write and read; in the profile "deep", its number of examples."""
Write = Callable[[pa.Table, Path], None]


# --- Parquet and Arrow ----------------------------------------------------------------------------------------------

FLAT = [
    *(pa.bool_(), pa.int8(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.date32()),
    *(pa.binary(), pa.string()),
    *(pa.timestamp("us", zone) for zone in (None, "UTC", "Europe/Berlin")),
    *(pa.timestamp("ns"), pa.decimal128(38, 10)),
]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.tuples(inner, inner).map(lambda kinds: pa.struct(list(zip("ab", kinds, strict=True))))
    return inner.map(pa.list_) | structs


KINDS = st.recursive(st.sampled_from(FLAT), nested, max_leaves=3)
COLUMNS = st.dictionaries(st.sampled_from(["one", "Two words", "ä.b"]), KINDS, min_size=1, max_size=3)


def pandas_parquet(rows: pa.Table, path: Path) -> None:
    rows.to_pandas(types_mapper=pandas.ArrowDtype).to_parquet(path)


def polars_parquet(rows: pa.Table, path: Path) -> None:
    polars.DataFrame(rows).write_parquet(path)


def polars_ipc(rows: pa.Table, path: Path) -> None:
    polars.DataFrame(rows).write_ipc(path, compat_level=polars.CompatLevel.oldest())


def duckdb_parquet(rows: pa.Table, path: Path) -> None:
    duckdb.sql("select * from rows").write_parquet(str(path))


@settings(max_examples=EXAMPLES)
@given(COLUMNS, st.integers(0, 1_000), st.sampled_from([0, 1, COUNT]))
@pytest.mark.parametrize("write", [pandas_parquet, polars_parquet, polars_ipc, duckdb_parquet])
def test_values_of_any_type_are_read_equal(
    tmp_path_factory: pytest.TempPathFactory, write: Write, columns: dict[str, pa.DataType], seed: int, count: int
) -> None:
    rng = random.Random(seed)
    rows = pa.table({"id": pa.array(range(count)), **{name: drawn(kind, count, rng) for name, kind in columns.items()}})
    path = tmp_path_factory.getbasetemp() / "rows"
    write(rows, path)
    read = published(path, InputFormat.ARROW if write is polars_ipc else InputFormat.PARQUET)
    assert read.num_rows == count
    for name in rows.column_names if count else ():
        assert plain(read[name].to_pylist()) == plain(rows[name].to_pylist()), name


@pytest.mark.parametrize("zone", ["Mars/Phobos", "CEST+25", "../etc/passwd"])
def test_times_of_an_unknown_zone_are_refused_by_column_and_zone(tmp_path: Path, zone: str) -> None:
    for kind in (pa.timestamp("us", zone), pa.list_(pa.timestamp("us", zone))):
        rows = pa.table({"id": [1], "at": pa.array([None], kind)})
        pq.write_table(rows, tmp_path / "rows")
        with pytest.raises(InvalidArgument, match=rf"column 'at' has the time zone '{zone.replace('+', '.')}'"):
            published(tmp_path / "rows", InputFormat.PARQUET)


def test_files_without_rows_have_their_columns_checked(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "rows")
    assert published(tmp_path / "rows", InputFormat.PARQUET).num_rows == 0
    for kind in (InputFormat.PARQUET, InputFormat.CSV):
        (tmp_path / "rows").write_bytes(b"")
        with pytest.raises(InvalidArgument, match=f"cannot be read as {kind}"):
            published(tmp_path / "rows", kind)


# --- JSON lines -----------------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("part", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WHOLE = st.integers(-(2**52), 2**52)
ROWS = st.fixed_dictionaries(
    {
        "note": st.none() | TEXTS,
        "n": st.none() | WHOLE,
        "x": st.none() | st.integers(-(2**30), 2**30).map(lambda number: number / 4),
        "tags": st.none() | st.lists(TEXTS, max_size=2),
        "part": st.none() | st.fixed_dictionaries({"a": WHOLE, "b": TEXTS}),
    }
)


def json_module(rows: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))


def pandas_json(rows: pa.Table, path: Path) -> None:
    frame = pandas.DataFrame(rows.to_pylist(), dtype=object)
    frame.to_json(path, orient="records", lines=True)


def polars_json(rows: pa.Table, path: Path) -> None:
    polars.DataFrame(rows).write_ndjson(path)


def duckdb_json(rows: pa.Table, path: Path) -> None:
    duckdb.sql(f"copy (select * from rows) to '{path}' (format json)")


@settings(max_examples=EXAMPLES)
@given(st.lists(ROWS, min_size=1, max_size=6))
@pytest.mark.parametrize("write", [json_module, pandas_json, polars_json, duckdb_json])
def test_json_is_read_equal(tmp_path_factory: pytest.TempPathFactory, write: Write, rows: list[dict[str, Any]]) -> None:
    given_rows = pa.Table.from_pylist([{"id": at, **row} for at, row in enumerate(rows)], schema=SCHEMA)
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    write(given_rows, path)
    assert published(path, InputFormat.JSONL, SCHEMA).select(SCHEMA.names).to_pylist() == given_rows.to_pylist()


# --- encodings and compressions -------------------------------------------------------------------------------------


@given(
    st.lists(st.text(st.sampled_from('aü€",;\n '), max_size=4), min_size=1, max_size=5),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252", "cp437", "iso8859-15"]),
)
@pytest.mark.parametrize("kind", [InputFormat.CSV, InputFormat.JSONL])
def test_texts_of_another_encoding_are_read_equal_or_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: InputFormat, notes: list[str], encoding: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "rows"
    if kind is InputFormat.CSV:
        quoted = (note.replace('"', '""') for note in notes)
        text = "id,note\n" + "".join(f'{at},"{note}"\n' for at, note in enumerate(quoted))
    else:
        text = "".join(f"{json.dumps({'id': at, 'note': note}, ensure_ascii=False)}\n" for at, note in enumerate(notes))
    path.write_bytes(text.encode(encoding, errors="replace"))
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    try:
        read = published(path, kind, schema)
    except InvalidArgument:
        assert not encoding.startswith("utf-8")
    else:
        assert read["note"].to_pylist() == [note.encode(encoding, errors="replace").decode(encoding) for note in notes]


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd"])
@pytest.mark.parametrize("kind", [InputFormat.CSV, InputFormat.JSONL])
def test_a_compressed_text_is_refused_by_its_compression(tmp_path: Path, codec: str, kind: InputFormat) -> None:
    with pa.CompressedOutputStream(str(tmp_path / "rows"), codec.replace("bzip2", "bz2")) as file:
        file.write(b'{"id": 1}\n' * 100)
    with pytest.raises(InvalidArgument, match=f"is compressed with {codec}"):
        published(tmp_path / "rows", kind, pa.schema([("id", pa.int64())]))
