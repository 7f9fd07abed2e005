"""Every input format becomes tables, in pieces, from files and from pipes."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from seaweedmq.cli.records import source as source_module
from seaweedmq.cli.records.reading import InputFormat, check, tables
from seaweedmq.cli.records.source import line_blocks, open_source, pieces
from seaweedmq.errors import InvalidArgument
from tests.cli.pipes import piped

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})


def all_rows(kind: InputFormat, path: Path, schema: pa.Schema | None = None) -> pa.Table:
    with open_source(str(path)) as source:
        return pa.concat_tables(tables(kind, source, schema, None))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\nb \n", [b"a\r", b"b "]),
        (b"\xff\x00\nb", [b"\xff\x00", b"b"]),
    ],
)
def test_lines_are_kept_byte_for_byte(tmp_path: Path, text: bytes, lines: list[bytes]) -> None:
    (tmp_path / "text").write_bytes(text)
    with open_source(str(tmp_path / "text")) as source:
        read = [
            value for table in tables(InputFormat.LINES, source, None, None) for value in table["_value"].to_pylist()
        ]
    assert read == lines


def test_lines_cross_the_pieces_they_are_read_in() -> None:
    text = b"".join(b"%d\n" % i for i in range(400_000))
    with piped(text[:1_500_001], text[1_500_001:]) as source:
        read = [line for block in line_blocks(source) for line in block]
    assert read == text.split(b"\n")[:-1]


def test_a_slow_writer_is_not_held_back() -> None:
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as file, os.fdopen(write_fd, "wb", buffering=0) as writer:
        got = pieces(file)
        writer.write(b"first\n")
        assert next(got) == b"first\n"
        writer.write(b"second\n")
        assert next(got) == b"second\n"


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "LINE_BYTES_MAX", 1 << 20)
    with piped(b"x" * (3 << 20)) as source:
        with pytest.raises(InvalidArgument, match="a line of stdin is longer than 1 MiB"):
            list(line_blocks(source))
        source.file.read()  # lets the writer end


def test_parquet_from_a_file_and_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(ROWS, path)
    assert all_rows(InputFormat.PARQUET, path).equals(ROWS)
    with piped(path.read_bytes()) as source:
        assert pa.concat_tables(tables(InputFormat.PARQUET, source, None, None)).equals(ROWS)


def test_arrow_files_and_streams_are_told_apart(tmp_path: Path) -> None:
    with pa.OSFile(str(tmp_path / "file"), "wb") as out, pa.ipc.new_file(out, ROWS.schema) as writer:
        writer.write_table(ROWS)
    with pa.OSFile(str(tmp_path / "stream"), "wb") as out, pa.ipc.new_stream(out, ROWS.schema) as writer:
        writer.write_table(ROWS)
    for name in ("file", "stream"):
        assert all_rows(InputFormat.ARROW, tmp_path / name).equals(ROWS)
        with piped((tmp_path / name).read_bytes()) as source:
            assert pa.concat_tables(tables(InputFormat.ARROW, source, None, None)).equals(ROWS)


@pytest.mark.parametrize("kind", [InputFormat.PARQUET, InputFormat.ARROW])
def test_a_file_of_another_format_is_refused(tmp_path: Path, kind: InputFormat) -> None:
    (tmp_path / "t").write_text("not a table of any kind\n")
    with pytest.raises(InvalidArgument, match=f"cannot be read as {kind}"):
        all_rows(kind, tmp_path / "t")


def test_lines_can_not_fill_a_schema(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("1\n")
    with pytest.raises(InvalidArgument, match="the topic has a schema"):
        all_rows(InputFormat.LINES, tmp_path / "t", ROWS.schema)


def test_a_folder_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Is a directory"), open_source(str(tmp_path)):
        pass


@pytest.mark.parametrize(
    ("kind", "text", "is_typed", "named"),
    [
        (InputFormat.LINES, "a\n{}\nb\n", False, "line 2"),
        (InputFormat.JSONL, '{{"value": "a"}}\n{{"value": "{}"}}\n', False, "record 2"),
        (InputFormat.JSONL, '{{"id": 1}}\n\n{{"id": 2, "name": "{}"}}\n', True, "record 2"),
        (InputFormat.CSV, "id,name\n1,a\n2,{}\n3,b\n", True, "record 2"),
        (InputFormat.CSV, "id,name\n1,a\n2,{}\n3,b\n", False, "record 2"),
    ],
)
def test_a_record_larger_than_brokers_take_is_found_before_anything_is_sent(
    tmp_path: Path, kind: InputFormat, text: str, is_typed: bool, named: str
) -> None:
    schema = ROWS.schema if is_typed else None
    (tmp_path / "t").write_text(text.format("x" * 29_000))
    with open_source(str(tmp_path / "t")) as source:
        check(kind, source, schema, None, frame_bytes_max=32_000)
    (tmp_path / "t").write_text(text.format("x" * 40_000))
    message = rf"^{named} of .*t: a record that takes a frame of 4\d{{4}} bytes is over"
    with open_source(str(tmp_path / "t")) as source, pytest.raises(InvalidArgument, match=message):
        check(kind, source, schema, None, frame_bytes_max=32_000)


def test_a_parquet_row_larger_than_brokers_take_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    names = ["a"] * 70_000 + ["x" * 40_000, "b"]
    pa.parquet.write_table(pa.table({"id": range(len(names)), "name": names}), tmp_path / "t")
    message = r"^record 70001 of .*t: a record that takes a frame of"
    with open_source(str(tmp_path / "t")) as source, pytest.raises(InvalidArgument, match=message):
        check(InputFormat.PARQUET, source, None, None, frame_bytes_max=32_000)
