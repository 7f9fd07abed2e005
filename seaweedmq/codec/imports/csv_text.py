"""Header of a CSV text, and blocks of the whole rows below it."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.csv

from seaweedmq.codec.imports.csv_rows import RowCutter, line_ends
from seaweedmq.codec.imports.foreign_text import text_of
from seaweedmq.errors import InvalidArgument

_FILL_BYTES: Final = 1 << 20
"""Size in bytes of the rows from which types are inferred if the input can be read only once."""
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_OTHER_SEPARATORS: Final = (";", "\t", "|")


@dataclass(frozen=True, slots=True)
class CsvText:
    """Whole rows below a header."""

    names: tuple[str, ...]
    rows: bytes
    line: int
    """Number of the first line of ``rows``."""


def separator_of(text: str) -> str:
    """Parse the separator that a user gives, or raise InvalidArgument if it cannot stand between columns."""
    mark = "\t" if text in ("\\t", "tab") else text
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0':
        raise InvalidArgument(f"separator {text!r:.40} is not one ASCII character: give one like ';' or 'tab'")
    return mark


def blocks(name: str, pieces: Iterable[bytes], separator: str | None, *, fill: bool) -> Iterator[CsvText]:
    """Yield the rows of a text below its header, many at a time; nothing if there is only a header.

    With ``fill``, the first block has at least a MiB of rows, if there are as many. Raises InvalidArgument if there is
    no header, if the text has another encoding, or as ``RowCutter``.
    """
    cutter = RowCutter(name, separator_or_comma(separator).encode())
    names: tuple[str, ...] | None = None
    held: list[bytes] = []
    line = 1
    behind = b""
    for rows in _whole_rows(name, pieces, cutter):
        held.append(rows)
        if fill and sum(map(len, held)) < _FILL_BYTES:
            continue
        text, held, fill = b"".join(held), [], False
        if names is None:
            names, text, line = _without_header(name, cutter, text, separator, line)
        text, behind = _without_end(behind + text) if len(names) == 1 else (text, b"")
        if text.strip(b"\r\n"):
            yield CsvText(names, text, line)
        line += line_ends(text)
    text = behind + b"".join(held)
    if names is None:
        names, text, line = _without_header(name, cutter, text, separator, line)
    if text.strip(b"\r\n"):
        yield CsvText(names, _without_end(text)[0] if len(names) == 1 else text, line)


def _without_end(text: bytes) -> tuple[bytes, bytes]:
    """Return the rows, and the empty lines behind them, which are nulls in a file of one column if rows follow."""
    body = text.rstrip(b"\r\n")
    end = _LINE_END.match(text, len(body))
    at = end.end() if body and end is not None else 0
    return text[:at], text[at:]


def _whole_rows(name: str, pieces: Iterable[bytes], cutter: RowCutter) -> Iterator[bytes]:
    for number, piece in enumerate(pieces):
        if rows := cutter.feed(piece if number else text_of(name, piece)):
            yield rows
    if rows := cutter.end():
        yield rows


def _without_header(
    name: str, cutter: RowCutter, text: bytes, separator: str | None, line: int
) -> tuple[tuple[str, ...], bytes, int]:
    """Return the names of the columns, and the text below them with the number of its first line."""
    begin = len(text) - len(text.lstrip(b"\r\n"))
    header = next((row for _, row in cutter.rows(text[begin:])), b"")
    if not header:
        raise InvalidArgument(f"{name} cannot be read as csv: it is empty: name the columns in its first line")
    end = begin + len(header)
    line += line_ends(text[:begin])
    try:
        names = pa.csv.read_csv(io.BytesIO(header), *parse_options(header, separator_or_comma(separator))).column_names
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{name} cannot be read as csv: line {line} is not UTF-8: {recode_remedy(name)}"
        ) from error
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"{name} cannot be read as csv: line {line} names column {twice!r} twice: rename one")
    other = next((mark for mark in _OTHER_SEPARATORS if mark in names[0]), None) if len(names) == 1 else None
    if separator is None and other is not None:
        shown = "tab" if other == "\t" else f"'{other}'"
        raise InvalidArgument(
            f"{name} cannot be read as csv: line {line} has one column, {names[0]!r}: give --separator {shown} if "
            "that separates the columns, or --separator , if it is part of the name"
        )
    return tuple(names), text[end:], line + line_ends(text[begin:end])


def parse_options(
    rows: bytes, separator: str, names: Sequence[str] | None = None
) -> tuple[pa.csv.ReadOptions, pa.csv.ParseOptions]:
    """Return Arrow's options for rows with these columns; None takes their names from the first row."""
    # One block, so that a row may be as long as the cutter allows.
    whole = pa.csv.ReadOptions(
        use_threads=False, block_size=len(rows) + 1, column_names=None if names is None else [*names]
    )
    is_narrow = names is not None and len(names) == 1
    return whole, pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True, ignore_empty_lines=not is_narrow)


def separator_or_comma(given: str | None) -> str:
    """Return the given separator; a comma if none is given."""
    return "," if given is None else given


def recode_remedy(name: str) -> str:
    """Return the remedy for text that is not UTF-8."""
    return f"save it as UTF-8, or `iconv -f WINDOWS-1252 -t UTF-8 {name}` if it is from Windows"
