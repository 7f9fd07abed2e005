"""CSV as other programs write it: every value arrives, or the line, the column and the remedy are named."""

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.cli.records.reading import InputFormat, check, tables
from seaweedmq.cli.records.source import open_source
from seaweedmq.codec.imports import csv_rows
from seaweedmq.codec.imports.csv_rows import RowCutter
from seaweedmq.codec.imports.csv_text import separator_of
from seaweedmq.errors import InvalidArgument
from tests.cli.pipes import piped
from tests.cli.records import published as published_file

pytestmark = pytest.mark.examples

KIB = 1024
EXAMPLES = settings.default.max_examples if settings.default.max_examples > 100 else 25
"""Number of files to write and read; in the profile "deep", its number of examples."""


def in_pieces(text: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        yield text[begin:end]


def cut(text: bytes, cuts: Sequence[int] = ()) -> list[bytes]:
    cutter = RowCutter("t.csv")
    given_back = [cutter.feed(piece) for piece in in_pieces(text, cuts)]
    return [block for block in (*given_back, cutter.end()) if block]


def published(path: Path, text: bytes | str, schema: pa.Schema | None = None, separator: str | None = None) -> pa.Table:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return published_file(path, InputFormat.CSV, schema, separator)


# --- rows -----------------------------------------------------------------------------------------------------------

cells = st.text(st.sampled_from('ab",;\n\r \\ü'), max_size=6)
grids = st.integers(2, 4).flatmap(lambda width: st.lists(st.tuples(*[cells] * width), min_size=1, max_size=12))


@given(grids, st.lists(st.integers(0, 1_000), max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_rows_are_cut_as_by_csv(rows: list[tuple[str, ...]], cuts: list[int], end: str, is_all_quoted: bool) -> None:
    text = io.StringIO()
    breaks = {"\n": "\r", "\r": "\n"}.get(end)  # the csv module leaves these bare
    is_all_quoted = is_all_quoted or any(breaks is not None and breaks in value for row in rows for value in row)
    quoting = csv.QUOTE_ALL if is_all_quoted else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(rows)
    whole = text.getvalue().encode()
    blocks = cut(whole, cuts)
    assert b"".join(blocks).rstrip(b"\r\n") == whole.rstrip(b"\r\n")
    read = [row for block in blocks for row in csv.reader(io.StringIO(block.decode(), newline=""))]
    assert [tuple(row) for row in read if row] == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'a,b\n1,"open\n2,3\n', r"line 2: a quotation mark .* is not closed"),
        (b'a,b\n1,2\n"x\ny","say \\"hi\\""\n', "line 4, column 2: text follows the closing quotation mark"),
        (b'a\n"x" \n', "line 2, column 1: text follows"),
        (b"a\n1\nx\ry\n", "line 3: it ends unlike those before it"),
        (b"a\r1\rx\n", "line 3: it ends unlike those before it"),
    ],
)
def test_a_mark_that_ends_no_text_is_refused_with_its_line(text: bytes, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        cut(text)


def test_marks_in_the_middle_of_a_text_are_part_of_it(tmp_path: Path) -> None:
    table = published(tmp_path / "t", 'id,size\n1,5" pipe\n2,"6"" pipe"\n3,"two\nlines"\n')
    assert table["size"].to_pylist() == ['5" pipe', '6" pipe', "two\nlines"]


def test_a_row_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "ROW_BYTES_MAX", 64 * KIB)
    cutter = RowCutter("t.csv")
    cutter.feed(b'a\n1\n"')
    with pytest.raises(InvalidArgument, match="the row at line 3 is longer than 0 MiB"):
        cutter.feed(b"x" * 65 * KIB)


# --- tables ---------------------------------------------------------------------------------------------------------


def test_rows_of_any_length_and_with_line_breaks_arrive(tmp_path: Path) -> None:
    rows = [(1, "first"), (2, "x" * (3 << 20)), *((n, "some lines\n" * 50) for n in range(3, 5_000))]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("id", "text"), *rows])
    expected = {"id": [row[0] for row in rows], "text": [row[1] for row in rows]}
    assert published(tmp_path / "t", text.getvalue()).to_pydict() == expected
    with piped(text.getvalue().encode()) as source:
        assert pa.concat_tables(tables(InputFormat.CSV, source, None, None)).to_pydict() == expected


LATE = 150_000


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("7", "A17", pa.string()),
        ("7", "1.5", pa.float64()),
        ("", "A17", pa.string()),
        ("7", str(1 << 70), pa.string()),
        (str(2**53 + 1), "1.5", pa.string()),
        (str(2**53 + 1), "7", pa.int64()),
        ("2026-01-31", "2026-01-31 12:00:00", pa.timestamp("s")),
        ("1500-01-31", "2026-01-31 12:00:00.5", pa.string()),
    ],
)
def test_the_type_of_a_column_holds_for_all_rows(tmp_path: Path, before: str, after: str, kind: pa.DataType) -> None:
    lines = ["id,amount", *(f"{number:08},{before}" for number in range(LATE)), f"{LATE:08},{after}", ""]
    table = published(tmp_path / "t", "\n".join(lines))
    assert (table.num_rows, table.schema.field("amount").type) == (LATE + 1, kind)
    assert table["amount"].cast(pa.string()).to_pylist()[-1].startswith(after)


@pytest.mark.parametrize(("late", "said"), [("A17", "A17"), ("07", "'07' as a number would lose its zeros")])
def test_a_pipe_whose_column_changes_its_type_late_is_told_line_column_and_remedy(late: str, said: str) -> None:
    lines = ["id,code", *(f"{number:08},7" for number in range(2 * LATE)), f"{2 * LATE:08},{late}", ""]
    message = rf"line {2 * LATE + 2}, column 'code' \(int64\).*{said}.*topic create --schema"
    got: list[int] = []
    with piped("\n".join(lines).encode()) as source, pytest.raises(InvalidArgument, match=message):
        got.extend(table.num_rows for table in tables(InputFormat.CSV, source, None, None))
    assert 0 < sum(got) < 2 * LATE


@pytest.mark.parametrize(
    ("before", "after"), [("7", "01234"), ("01234", "7"), ("7", "+49151234567"), ("7.5", "007.25"), ("1.5", "+1.5")]
)
def test_codes_and_telephone_numbers_stay_as_they_are(tmp_path: Path, before: str, after: str) -> None:
    lines = ["id,code", *(f"{number},{before}" for number in range(LATE)), f"{LATE},{after}", ""]
    table = published(tmp_path / "t", "\n".join(lines))
    assert (table.schema.types, table["code"].to_pylist()[-2:]) == ([pa.int64(), pa.string()], [before, after])


def test_numbers_without_such_digits_stay_numbers(tmp_path: Path) -> None:
    table = published(tmp_path / "t", "a,b,c\n0,0.5,10\n-0,-0.25,-3\n,1e-05,\n")
    assert table.schema.types == [pa.int64(), pa.float64(), pa.int64()]


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("id\n1\n2\nx\n", pa.schema([("id", pa.int32())]), "line 4, column 'id' .int32.: .*'x': correct it"),
        ("id,note\n1,a\n2,b,c\n", None, "line 3 has 3 columns, and the header 2"),
        ('id,note\n1,"a\nb"\n2\n', None, "line 4 has 1 columns, and the header 2"),
        (b"id,note\n1,a\n2,gr\xfc\xdfe\n", None, "line 3, column 'note' is not UTF-8: .*iconv"),
        (b"gr\xf6\xdfe\n1\n", None, "line 1 is not UTF-8"),
        (b"\xff\xfei\0d\0\n\0", None, "is UTF-16, and text is read as UTF-8"),
        (b"\x1f\x8b\x08\0", None, "is compressed with gzip: unpack it first, as `gzip -dc"),
        ("", None, "it is empty: name the columns in its first line"),
        ("id;note\n1;a\n", None, "one column, 'id;note': give --separator ';'"),
        ("id\tnote\n1\ta\n", None, "give --separator tab"),
        ("id,id\n1,2\n", None, "line 1 names column 'id' twice"),
        ("id\n1\n", pa.schema([("id", pa.list_(pa.int8()))]), "column 'id' of the topic is list.*--format jsonl"),
        ("id\n1\n\n", pa.schema([pa.field("id", pa.int8()), ("at", pa.int8())]), "column 'at' .* is not in the table"),
        ("at\n2026-01-31 12:00\n", pa.schema([("at", pa.timestamp("us", "UTC"))]), "line 2, column 'at'.*zone offset"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_is_sent(
    tmp_path: Path, text: str | bytes, schema: pa.Schema | None, said: str
) -> None:
    (tmp_path / "t").write_bytes(text if isinstance(text, bytes) else text.encode())
    with open_source(str(tmp_path / "t")) as source, pytest.raises(InvalidArgument, match=said):
        check(InputFormat.CSV, source, schema, None)


def test_what_is_null_depends_on_the_column(tmp_path: Path) -> None:
    text = 'n,x,text,none\n1,NaN,NA,\n,,"",\nNA,-inf,,\n'
    table = published(tmp_path / "t", text)
    nan, inf = float("nan"), float("inf")
    expected = {"n": [1, None, None], "x": [nan, None, -inf], "text": ["NA", "", None], "none": [None, None, None]}
    assert str(table.to_pydict()) == str(expected)
    assert table.schema.field("none").type == pa.string()
    required = pa.schema([pa.field("text", pa.string(), nullable=False)])
    assert published(tmp_path / "t", 'text\nNA\n""\n', required)["text"].to_pylist() == ["NA", ""]


def test_marks_separators_and_line_ends_of_other_systems(tmp_path: Path) -> None:
    expected = {"id": [1, 2], "note": ["a", "b;c"]}
    for text in ("id,note\r\n1,a\r\n2,b;c\r\n", "id,note\r1,a\r2,b;c\r", "\ufeffid,note\n1,a\n2,b;c"):
        assert published(tmp_path / "t", text).to_pydict() == expected
    assert published(tmp_path / "t", 'id;note\n1;a\n2;"b;c"\n', separator=";").to_pydict() == expected
    assert published(tmp_path / "t", "id|note\n1\n", separator=",").to_pydict() == {"id|note": [1]}
    assert published(tmp_path / "t", "id,note\n").num_rows == 0
    for end in ("\n", "\r\n", "\r"):
        table = published(tmp_path / "t", "\nid\n1\n\n\n3\n\n".replace("\n", end))
        assert table.to_pydict() == {"id": [1, None, None, 3]}
        with pytest.raises(InvalidArgument, match="line 3, column 'id'"):
            published(tmp_path / "t", "id\n1\nx\n".replace("\n", end), pa.schema([("id", pa.int8())]))
    assert [separator_of(text) for text in (";", "\\t", "tab", "\t")] == [";", "\t", "\t", "\t"]
    for text in ("", ";;", "ü", '"', "\n"):
        with pytest.raises(InvalidArgument, match="is not one ASCII character"):
            separator_of(text)


# --- files of other programs ----------------------------------------------------------------------------------------

Write = Callable[[pa.Table, Path], None]


def with_csv(rows: pa.Table, path: Path) -> None:
    """Write null as an empty text, as any program does that uses the module."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows.column_names)
        writer.writerows(row.values() for row in rows.to_pylist())


def with_pandas(rows: pa.Table, path: Path) -> None:
    """Write with pandas: its default line end leaves a return in a text bare, which the command rejects."""
    rows.to_pandas(types_mapper=pandas.ArrowDtype).to_csv(path, index=False, lineterminator="\r\n")


def with_polars(rows: pa.Table, path: Path) -> None:
    polars.DataFrame(rows).write_csv(path)


def with_duckdb(rows: pa.Table, path: Path) -> None:
    duckdb.sql("select * from rows").write_csv(str(path))


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
floats = st.none() | st.floats(allow_nan=False, allow_infinity=False)
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(texts, numbers, floats), min_size=1, max_size=8), st.data())
@pytest.mark.parametrize("write", [with_csv, with_pandas, with_polars, with_duckdb])
def test_what_other_programs_write_is_read_equal(
    tmp_path_factory: pytest.TempPathFactory,
    write: Write,
    rows: list[tuple[str | None, int | None, float | None]],
    data: st.DataObject,
) -> None:
    dicts = [dict(zip(SCHEMA.names, (at, *row), strict=True)) for at, row in enumerate(rows)]
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    write(pa.Table.from_pylist(dicts, schema=SCHEMA), path)
    read = published(path, path.read_bytes(), SCHEMA if data.draw(st.booleans()) else None)
    assert read["id"].to_pylist() == list(range(len(rows)))
    empty = (None, "") if write in (with_csv, with_pandas) else ()  # these do not distinguish null and empty
    for at, (note, n, x) in enumerate(rows):
        row = {name: read[name][at].as_py() for name in SCHEMA.names}
        shown = [None if value is None else str(value) for value in (row["note"], row["n"])]
        is_empty = note in empty and shown[0] in empty
        assert shown[0] == note or is_empty or read.schema.field("note").type != pa.string()
        assert shown[1] == (None if n is None else str(n))
        assert row["x"] is None if x is None else float(row["x"]) == x
