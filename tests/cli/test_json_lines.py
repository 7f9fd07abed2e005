"""The output of `subscribe --format jsonl` is valid input of `publish --format jsonl`, unchanged."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.cli.records import json_in, json_out
from seaweedmq.cli.records.source import open_source
from seaweedmq.codec.imports.foreign_text import MARK
from seaweedmq.codec.references import REFERENCE, column_of, reference_json
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.reference import PayloadReference

pytestmark = pytest.mark.examples

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
ENVELOPE = [
    *(pa.field("_segment", pa.int32()), pa.field("_offset", pa.int64()), pa.field("_timestamp", json_in.TIMESTAMP)),
    *(pa.field("_key", pa.binary()), pa.field("_headers", json_in.HEADERS)),
]
PLAIN = pa.schema([*ENVELOPE, pa.field("_value", pa.binary())])

Headers = dict[str, bytes | None] | list[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers]


def pairs_of(headers: Headers) -> list[tuple[str, bytes | None]]:
    return list(headers.items()) if isinstance(headers, dict) else headers


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    keys, values, headers = zip(*records, strict=True)
    columns = [
        pa.array([3] * len(records), pa.int32()),
        pa.array(range(7, 7 + len(records)), pa.int64()),
        pa.array([MOMENT] * len(records), json_in.TIMESTAMP),
        pa.array(keys, pa.binary()),
        pa.array([pairs_of(h) or None for h in headers], json_in.HEADERS),
        pa.array(values, pa.binary()),
    ]
    return pa.record_batch(columns, schema=PLAIN)


def read(path: Path, text: bytes, schema: pa.Schema | None = None, key: str | None = None) -> pa.Table:
    path.write_bytes(text)
    with open_source(str(path)) as source:
        return pa.concat_tables(json_in.read(source, schema, key))


def test_a_text_record_prints_as_text() -> None:
    line = json_out.lines(batch_of([(b"k", 'grüße "x"\n'.encode(), {"h": b"v"})]))
    assert line.count(b"\n") == 1
    assert "grüße".encode() in line
    place = {"segment": 3, "offset": 7, "timestamp": "2026-01-31T12:00:00.250000Z"}
    assert json.loads(line) == {**place, "key": "k", "value": 'grüße "x"\n', "headers": {"h": "v"}}


def test_the_partition_follows_the_segment() -> None:
    """`publish` ignores the field."""
    batch = batch_of([(b"k", None, {"h": None})]).append_column("_partition", pa.array([5], pa.int32()))
    line = json_out.lines(batch)
    assert line.startswith(b'{"segment":3,"partition":5,"offset":7,')
    assert (json.loads(line)["value"], json.loads(line)["headers"]) == (None, {"h": None})


def test_bytes_that_are_no_text_are_base64_and_say_so() -> None:
    record = json.loads(json_out.lines(batch_of([(b"\xff", b"\xfe", {"h": b"\xfd", "t": b"text"})])))
    assert (record["key"], record["key_encoding"]) == ("/w==", "base64")
    assert (record["value"], record["value_encoding"]) == ("/g==", "base64")
    assert (record["headers"], record["headers_encoding"]) == ({"h": "/Q==", "t": "text"}, {"h": "base64"})


def test_repeated_headers_print_as_pairs_in_their_order() -> None:
    """Tracing and retry topics have them: an object would keep only the last one of a name."""
    repeated: Headers = [("hop", b"1"), ("id", b"\xfd"), ("hop", None)]
    record = json.loads(json_out.lines(batch_of([(None, b"v", repeated)])))
    assert record["headers"] == [["hop", "1"], ["id", "/Q==", "base64"], ["hop", None]]
    assert "headers_encoding" not in record


headers = st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=5)), max_size=3)
records = st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=20), headers)


@given(st.lists(records, min_size=1, max_size=20))
def test_any_record_survives_the_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[Record]) -> None:
    printed = batch_of(rows)
    printed_partitions = printed.append_column("_partition", pa.array([1] * len(rows), pa.int32()))
    lines = json_out.lines(printed_partitions if len(rows) % 2 else printed)
    table = read(tmp_path_factory.mktemp("lines") / "records", lines)
    for name in ("_key", "_value", "_timestamp"):
        assert table.column(name).to_pylist() == printed.column(name).to_pylist()
    if "_headers" in table.column_names:
        assert [items or [] for items in table.column("_headers").to_pylist()] == [record[2] for record in rows]
    else:
        assert not any(record[2] for record in rows)


def test_hand_written_records_need_only_a_value(tmp_path: Path) -> None:
    table = read(tmp_path / "r", b'{"value": "a"}\n\n{"value": {"x": [1, 2]}, "key": 5}\n{"value": null}\n')
    assert table.column("_value").to_pylist() == [b"a", b'{"x":[1,2]}', None]
    assert table.column("_key").to_pylist() == [None, b"5", None]
    assert "_timestamp" not in table.column_names


def test_key_publishes_whole_objects(tmp_path: Path) -> None:
    table = read(tmp_path / "r", b'{"id": "x", "n": 1}\n{"id": 2}\n', key="id")
    assert table.to_pydict() == {"_key": [b"x", b"2"], "_value": [b'{"id": "x", "n": 1}', b'{"id": 2}']}


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (b'{"value": "a"}\n{"value": ', None, "line 2 is not JSON"),
        (b'{"value": "a"}\n\n[1]\n', None, "line 3 is not a JSON object"),
        (b'{"value": "a"},{"value": "b"}\n', None, "line 1 is not JSON"),
        (b'{"value": "a"}\n{"valeu": "a"}\n', None, "line 2 has a field 'valeu'"),
        (b'{"key": "a"}\n', None, 'line 1 has no "value"'),
        (b'{"value": "/", "value_encoding": "base64"}', None, "line 1: value is marked as base64"),
        (b'{"value": "/", "value_encoding": "hex"}', None, "value_encoding 'hex' is unknown"),
        (b'{"value": "a", "timestamp": "noon"}', None, "line 1: timestamp 'noon'"),
        (b'{"value": "a", "headers": ["x"]}', None, "line 1: header 'x' is not"),
        (b'{"value": "a", "headers": [["x", "y", "hex"]]}', None, "line 1: header 'x'_encoding 'hex' is unknown"),
        (b'{"value": "a", "headers": "x"}', None, "line 1: headers is neither an object nor a list"),
        (b'{"id": 1}\n{"n": 1}\n', "id", "line 2 has no field 'id'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: bytes, key: str | None, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(tmp_path / "r", text, key=key)


# --- topics with a schema -------------------------------------------------------------------------------------------

COLUMNS = pa.schema(
    [
        *(("id", pa.int64()), ("name", pa.string()), ("raw", pa.binary()), ("price", pa.decimal128(10, 2))),
        *(("day", pa.date32()), ("hour", pa.time64("us")), ("at", pa.timestamp("us", tz="UTC"))),
        *(("share", pa.float64()), ("tags", pa.list_(pa.string()))),
    ]
)
TIMES = {"day": date(2026, 1, 31), "hour": time(23, 5, 1, 2), "at": MOMENT}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "raw": b"\xff\x00", "price": Decimal("1.50"), **TIMES, "share": 0.25, "tags": ["x", "y"]},
    dict.fromkeys(COLUMNS.names),
    dict.fromkeys(COLUMNS.names) | {"id": 3, "raw": b"text"},
]


def test_typed_rows_survive_the_round_trip(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, schema=COLUMNS)
    envelope = batch_of([(b"k", None, {}), (None, None, {}), (b"\xff", None, {"h": b"v"})]).drop_columns(["_value"])
    batch = pa.record_batch([*envelope.columns, *rows.columns], schema=pa.schema([*ENVELOPE, *COLUMNS]))
    text = json_out.lines(batch)
    first = json.loads(text.splitlines()[0])
    assert (first["value"]["raw"], first["value_encoding"]) == ("/wA=", {"raw": "base64"})
    table = read(tmp_path / "r", text, COLUMNS)
    assert table.select(COLUMNS.names).to_pylist() == ROWS
    assert table.column("_key").to_pylist() == [b"k", None, b"\xff"]
    assert table.column("_headers").to_pylist()[2] == [("h", b"v")]


def test_a_bare_row_a_line_fills_the_columns(tmp_path: Path) -> None:
    table = read(tmp_path / "r", b'{"id": 1, "day": "2026-01-31"}\n{"name": "b"}\n', COLUMNS)
    assert table.column("id").to_pylist() == [1, None]
    assert (table.column("day").to_pylist(), table.schema) == ([date(2026, 1, 31), None], COLUMNS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"id": 1}\n{"id": "x"}\n', "line 2 does not fit the topic's schema.*id"),
        (b'{"id": 1}\n{"size": 2}\n', "line 2 does not fit the topic's schema: it has no column 'size'"),
        (b'{"day": "someday"}\n', "line 1 does not fit the topic's schema.*someday"),
        (b'{"value": {"id": 1}}\n{"id": 2}\n', "line 2 is not a record"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(tmp_path / "r", text, COLUMNS)


NUMBERS = [1.5, math.nan, math.inf, -math.inf, None]
FLOATS = pa.schema(
    [
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("list", pa.list_(pa.float64())),
        ("struct", pa.struct([("x", pa.float64()), ("name", pa.string())])),
        ("text", pa.string()),
    ]
)


def test_numbers_that_json_lacks_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [{"double": x, "float": x, "list": [x], "struct": {"x": x, "name": "NaN"}, "text": "NaN"} for x in NUMBERS]
    columns = pa.RecordBatch.from_pylist(rows, schema=FLOATS)
    envelope = batch_of([(None, None, {})] * len(rows)).drop_columns(["_value"])
    batch = pa.record_batch([*envelope.columns, *columns.columns], schema=pa.schema([*ENVELOPE, *FLOATS]))
    text = json_out.lines(batch)
    printed = [json.loads(line, parse_constant=pytest.fail)["value"]["double"] for line in text.splitlines()]
    assert printed == [1.5, "NaN", "Infinity", "-Infinity", None]
    assert str(read(tmp_path / "r", text, FLOATS).select(FLOATS.names).to_pylist()) == str(rows)
    bare = read(tmp_path / "r", b'{"double": NaN}\n{"double": -Infinity, "float": 2}\n', FLOATS)
    assert (str(bare["double"].to_pylist()), bare["float"].to_pylist()) == ("[nan, -inf]", [None, 2.0])
    with pytest.raises(InvalidArgument, match="line 2 does not fit the topic's schema"):
        read(tmp_path / "r", b'{"double": "NaN"}\n{"double": "nothing"}\n', FLOATS)


CRLF = b"\r\n"
OBJECTS = [b'{"id": "a", "count": 1}', b'{"id": "b", "count": 2}']


@pytest.mark.parametrize(
    "parts", [(MARK, b"\n", b"\n"), (b"", CRLF, CRLF), (MARK, b" \r\n\t", b""), (MARK + CRLF, CRLF, b"")]
)
def test_marks_and_returns_of_windows_are_no_part_of_objects(tmp_path: Path, parts: tuple[bytes, bytes, bytes]) -> None:
    text = parts[0] + parts[1].join(OBJECTS) + parts[2]
    table = read(tmp_path / "r", text, key="id")
    assert table.to_pydict() == {"_key": [b"a", b"b"], "_value": OBJECTS}
    schema = pa.schema([("id", pa.string()), ("count", pa.int64())])
    assert read(tmp_path / "r", text, schema)["count"].to_pylist() == [1, 2]


def test_what_no_text_or_column_can_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="line 2: value has a lone surrogate"):
        read(tmp_path / "r", b'{"value": "a"}\n{"value": "\\ud800"}\n')
    with pytest.raises(InvalidArgument, match=r"'for' is duration.us.*--format parquet or arrow"):
        read(tmp_path / "r", b'{"for": 1}\n', pa.schema([("id", pa.int64()), ("for", pa.duration("us"))]))


@pytest.mark.parametrize("blank", [b"", b"   ", b"\r", b"\t\r"])
def test_a_line_of_blanks_is_passed_over_and_counted(tmp_path: Path, blank: bytes) -> None:
    lines = [b'{"value": "1"}', blank, b'{"value": "2"}']
    table = read(tmp_path / "lines", b"\n".join(lines))
    assert table.column("_value").to_pylist() == [b"1", b"2"]
    with pytest.raises(InvalidArgument, match="line 4 has no"):
        read(tmp_path / "lines", b"\n".join([*lines, b"{}"]))


def test_a_payload_by_reference_is_described_and_is_no_input(tmp_path: Path) -> None:
    """Its line has a null value: published again, it would delete the key."""
    reference = PayloadReference(
        uri="blobs/shop/films/7/2020-09-13/" + "0" * 32, size_bytes=5, content_type="", sha256=bytes(32)
    )
    batch = batch_of([(b"film", None, {}), (b"note", b"small", {})])
    lines = json_out.lines(batch.append_column(REFERENCE, column_of([reference, None])))
    film, note = map(json.loads, lines.splitlines())
    assert (film["value"], film["reference"]) == (None, json.loads(reference_json(reference)))
    assert "reference" not in note
    assert lines.splitlines()[1] == json_out.lines(batch).splitlines()[1]
    with pytest.raises(InvalidArgument, match="line 1 has a field 'reference'"):
        read(tmp_path / "lines", lines)
