"""Reader of CSV as tables, in blocks of whole rows with types that hold for all of them.

The topic sets the types of columns; otherwise they are inferred: for a file from all rows, for a pipe from the first
MiB. A column is text if a number has more digits than its type holds, if values are of several kinds, or if values are
codes. A code is a number with a zero before another digit or with a plus, like a postal code or a telephone number,
which a numeric type would alter.

A quoted empty text is an empty text, and one without quotes is null. A column that is not nullable reads both as empty
texts.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from seaweedmq.codec.imports.csv_rows import RowCutter, line_ends
from seaweedmq.codec.imports.foreign_text import text_of
from seaweedmq.errors import InvalidArgument

Types = Mapping[str, pa.DataType]

_FILL_BYTES: Final = 1 << 20
"""Size in bytes of the rows from which types are inferred if the input can be read only once."""
_NOT_A_NUMBER: Final = frozenset({"NaN", "nan", "-NaN", "-nan"})
_NULLS: Final = list(pa.csv.ConvertOptions().null_values)
_FLOAT_NULLS: Final = [text for text in _NULLS if text not in _NOT_A_NUMBER]
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_LONG: Final = r"^[+-]?\d{16,}$"
"""Whole numbers that a double may round."""
_CODE: Final = r"^[ \t]*([+-]?0\d|\+)"
"""Texts that a number would not preserve."""
_OTHER_SEPARATORS: Final = (";", "\t", "|")
_EXACT_MAX: Final = 1 << 53
_WIDE: Final = pa.uint64()
"""Internal type of int64 columns with numbers that a double rounds."""
_NUMBERS: Final = (pa.int64(), _WIDE, pa.float64())
_WIDER: Final = ((pa.int64(), _WIDE), (pa.int64(), pa.float64()), (pa.date32(), pa.timestamp("s")))
"""Sequences of types, each of which holds all values of the earlier ones. Nanoseconds do not hold all seconds."""


@dataclass(frozen=True, slots=True)
class CsvText:
    """Whole rows below a header."""

    names: tuple[str, ...]
    rows: bytes
    line: int
    """Number of the first line of ``rows``."""


def separator_of(text: str) -> str:
    """Parse the separator that a user gives.

    Raises:
        InvalidArgument: If it cannot stand between columns.
    """
    mark = "\t" if text in ("\\t", "tab") else text
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0':
        raise InvalidArgument(f"separator {text!r:.40} is not one ASCII character: give one like ';' or 'tab'")
    return mark


def read(
    name: str, pieces: Iterable[bytes], schema: pa.Schema | None, types: Types | None, separator: str | None
) -> Iterator[pa.Table]:
    """Yield tables of the rows of a text.

    Args:
        name: Name of the text, for errors.
        pieces: Pieces of the text, of any size.
        schema: Schema of the topic, or None.
        types: Type of each column if there is no schema, as :func:`infer` finds them; None infers them from the first
            MiB.
        separator: Separator of columns; None is a comma, and rejects a header that seems to have another.

    Raises:
        InvalidArgument: If the input is not CSV, or a value does not fit its type; the message names the line, the
            column and the remedy.
    """
    reader: _Blocks | None = None
    guarded: frozenset[str] = frozenset()
    for text in blocks(name, pieces, separator, fill=schema is None and types is None):
        if reader is None:
            kinds = _topic_types(name, text.names, schema) if schema is not None else types
            optional = None if schema is None else frozenset(field.name for field in schema if field.nullable)
            if kinds is None:
                kinds = settled([_inferred(name, text, _separator(separator))])
                guarded = frozenset(column for column, kind in kinds.items() if kind in _NUMBERS)
            reader = _Blocks(name, _separator(separator), kinds, optional, guarded, has_schema=schema is not None)
        yield reader.table(text)


def infer(
    name: str, pieces: Iterable[bytes], separator: str | None, *, at: Callable[[int], None] = lambda _: None
) -> Types:
    """Return the type of each column, inferred from all rows; ``at`` gets the size of each block in bytes.

    Raises:
        InvalidArgument: If the input is not CSV, as :func:`read`.
    """
    found: list[Types] = []
    for text in blocks(name, pieces, separator, fill=True):
        found.append(_inferred(name, text, _separator(separator)))
        at(len(text.rows))
    return settled(found)


def verify(name: str, pieces: Iterable[bytes], separator: str | None) -> frozenset[str]:
    """Verify that a text is CSV, with columns of any type.

    Returns:
        The columns with codes, which numbers would not preserve.

    Raises:
        InvalidArgument: If the input is not CSV, as :func:`read`.
    """
    codes: set[str] = set()
    for text in blocks(name, pieces, separator, fill=False):
        kinds = dict.fromkeys(text.names, pa.string())
        table = _Blocks(name, _separator(separator), kinds, None, frozenset(), has_schema=True).table(text)
        codes |= {column for column in text.names if column not in codes and _has(table.column(column), _CODE)}
    return frozenset(codes)


def settled(found: Sequence[Types]) -> Types:
    """Return one type per column that holds the values of all blocks; text if no other does."""
    together: dict[str, set[pa.DataType]] = {}
    for types in found:
        for name, kind in types.items():
            together.setdefault(name, set()).add(kind)
    widest = {name: _widest(kinds - {pa.null()}) for name, kinds in together.items()}
    return {name: pa.int64() if kind == _WIDE else kind for name, kind in widest.items()}


def blocks(name: str, pieces: Iterable[bytes], separator: str | None, *, fill: bool) -> Iterator[CsvText]:
    """Yield the rows of a text below its header, many at a time; nothing if there is only a header.

    With ``fill``, the first block has at least a MiB of rows, if there are as many.

    Raises:
        InvalidArgument: If there is no header, if the text has another encoding, or as in ``RowCutter``.
    """
    cutter = RowCutter(name, _separator(separator).encode())
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
        names = pa.csv.read_csv(io.BytesIO(header), *_options(header, _separator(separator))).column_names
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} cannot be read as csv: line {line} is not UTF-8: {_recode(name)}") from error
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


class _Blocks:
    """A converter of rows to tables of the same types."""

    def __init__(
        self,
        name: str,
        separator: str,
        types: Types,
        optional: frozenset[str] | None,
        guarded: frozenset[str],
        *,
        has_schema: bool,
    ) -> None:
        """Create a converter; a code in the numeric columns ``guarded`` is an error."""
        self._name = name
        self._separator = separator
        self._types = types
        self._optional = optional
        self._guarded = guarded
        self._remedy = (
            "correct it"
            if has_schema
            else "correct it, or publish to a topic with a schema (topic create --schema) that sets the column's type"
        )

    def table(self, text: CsvText) -> pa.Table:
        """Convert rows; raises InvalidArgument for the first row that does not fit."""

        def convert(rows: bytes) -> pa.Table:
            if self._guarded:
                self._check_codes(rows, text.names)
            return _converted(rows, text.names, self._types, self._optional, self._separator)

        try:
            return convert(text.rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _refused(self._name, text, self._separator, convert, error, self._remedy, self._types) from error

    def _check_codes(self, rows: bytes, names: Sequence[str]) -> None:
        """Raise pa.ArrowInvalid for a code in a numeric column, as Arrow does for a value that does not fit."""
        texts = _texts(rows, names, self._guarded, self._separator)
        for column in texts.column_names:
            if _has(texts.column(column), _CODE):
                code = next(value for value in texts.column(column).to_pylist() if value and re.match(_CODE, value))
                raise pa.ArrowInvalid(
                    f"In CSV column #{names.index(column)}: {code!r} as a number would lose its zeros or plus"
                )


def _topic_types(name: str, names: Sequence[str], schema: pa.Schema) -> Types:
    """Return the type of each column of a header. A column that the topic lacks is text; publishing rejects it."""
    types = {each: schema.field(each).type if each in schema.names else pa.string() for each in names}
    for column, kind in types.items():
        try:
            pa.csv.read_csv(io.BytesIO(b"1\n"), *_options(b"1\n", ",", [column]), _conversion({column: kind}, []))
        except pa.ArrowNotImplementedError as error:
            raise InvalidArgument(
                f"{name} cannot be read as csv: column {column!r} of the topic is {kind}, which CSV cannot "
                "hold: use --format jsonl, parquet or arrow"
            ) from error
        except pa.ArrowInvalid:
            continue  # 1 is not a value of this type, but other text can be
    return types


def _inferred(name: str, text: CsvText, separator: str) -> Types:
    """Return the inferred types of the columns of some rows; null for an empty column."""

    def convert(rows: bytes) -> pa.Table:
        conversion = pa.csv.ConvertOptions(null_values=_FLOAT_NULLS)
        return pa.csv.read_csv(io.BytesIO(rows), *_options(rows, separator, text.names), conversion)

    def convert_text(rows: bytes) -> pa.Table:
        return _converted(rows, text.names, dict.fromkeys(text.names, pa.string()), None, separator)

    try:
        table = convert(text.rows)
        found = dict(zip(table.column_names, table.schema.types, strict=True))
        if pa.binary() in found.values():
            convert_text(text.rows)
    except pa.ArrowInvalid as error:
        raise _refused(name, text, separator, convert_text, error, "correct it", {}) from error
    for column, kind in found.items():
        if kind == pa.int64():
            bounds = pc.min_max(table.column(column)).as_py()
            if bounds["min"] is not None and max(-bounds["min"], bounds["max"]) > _EXACT_MAX:
                found[column] = _WIDE
    numbers = [column for column, kind in found.items() if kind in _NUMBERS]
    if numbers:
        texts = _texts(text.rows, text.names, numbers, separator)
        for column in numbers:
            altered = f"{_LONG}|{_CODE}" if found[column] == pa.float64() else _CODE
            if _has(texts.column(column), altered):
                found[column] = pa.string()
    return found


def _texts(rows: bytes, names: Sequence[str], columns: Iterable[str], separator: str) -> pa.Table:
    return _converted(rows, names, dict.fromkeys(columns, pa.string()), None, separator)


def _has(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether one of the texts matches."""
    return pc.any(pc.match_substring_regex(column, pattern)).as_py() is True


def _converted(
    rows: bytes, names: Sequence[str], types: Types, optional: frozenset[str] | None, separator: str
) -> pa.Table:
    """Return the columns of ``types``, read in groups, since the texts for null depend on the kind of a column."""
    groups: dict[tuple[str, ...], dict[str, pa.DataType]] = {}
    for name in names:
        if name in types:
            nulls = _nulls(types[name], optional is None or name in optional)
            groups.setdefault(tuple(nulls), {})[name] = types[name]
    columns: dict[str, pa.ChunkedArray] = {}
    for absent, group in groups.items():
        table = pa.csv.read_csv(
            io.BytesIO(rows), *_options(rows, separator, names), _conversion(group, list(absent), list(group))
        )
        columns.update(zip(table.column_names, table.columns, strict=True))
    return pa.table({name: columns[name] for name in names if name in columns})


def _nulls(kind: pa.DataType, is_nullable: bool) -> list[str]:
    if _is_text(kind):
        return [""] if is_nullable else []
    return _FLOAT_NULLS if pa.types.is_floating(kind) else _NULLS


def _conversion(types: Types, nulls: list[str], include: list[str] | None = None) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        column_types=dict(types),
        null_values=nulls,
        include_columns=include,
        strings_can_be_null=True,
        quoted_strings_can_be_null=any(not _is_text(kind) for kind in types.values()),
    )


def _options(
    rows: bytes, separator: str, names: Sequence[str] | None = None
) -> tuple[pa.csv.ReadOptions, pa.csv.ParseOptions]:
    # One block, so that a row may be as long as the cutter allows.
    whole = pa.csv.ReadOptions(
        use_threads=False, block_size=len(rows) + 1, column_names=None if names is None else [*names]
    )
    is_narrow = names is not None and len(names) == 1
    return whole, pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True, ignore_empty_lines=not is_narrow)


def _refused(
    name: str,
    text: CsvText,
    separator: str,
    convert: Callable[[bytes], pa.Table],
    error: Exception,
    remedy: str,
    types: Types,
) -> InvalidArgument:
    """Return the error of the first row that cannot be converted, found by bisection."""
    rows = RowCutter(name, separator.encode()).rows(text.rows)
    good, bad = 0, len(rows)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            convert(b"".join(row for _, row in rows[:middle]))
            good = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
            bad, error = middle, reason
    line = text.line + line_ends(text.rows[: rows[bad - 1][0]])
    return InvalidArgument(f"{name} cannot be read as csv: line {line}{_reason(name, text, str(error), remedy, types)}")


def _reason(name: str, text: CsvText, said: str, remedy: str, types: Types) -> str:
    if count := re.search(r"Expected (\d+) columns, got (\d+)", said):
        return (
            f" has {count[2]} columns, and the header {count[1]}: correct it, or quote the texts that contain the "
            "separator"
        )
    if found := re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", said, re.DOTALL):
        column = text.names[int(found[1])]
        if "invalid UTF8" in found[2]:
            return f", column {column!r} is not UTF-8: {_recode(name)}"
        kind = f" ({types[column]})" if column in types else ""
        return f", column {column!r}{kind}: {found[2].removeprefix('CSV conversion error to ')}: {remedy}"
    return f": {said}"


def _recode(name: str) -> str:
    return f"save it as UTF-8, or `iconv -f WINDOWS-1252 -t UTF-8 {name}` if it is from Windows"


def _widest(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    for ladder in _WIDER:
        if kinds and kinds.issubset(ladder):
            return max(kinds, key=ladder.index)
    return pa.string()


def _separator(given: str | None) -> str:
    return "," if given is None else given


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_fixed_size_binary(kind)
    )
