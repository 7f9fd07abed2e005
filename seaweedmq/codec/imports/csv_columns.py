"""Conversion of rows of CSV to columns of given types, with the first row that does not fit in the error."""

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from seaweedmq.codec.imports.csv_rows import RowCutter, line_ends
from seaweedmq.codec.imports.csv_text import CsvText, parse_options, recode_remedy
from seaweedmq.errors import InvalidArgument

Types = Mapping[str, pa.DataType]

_NOT_A_NUMBER: Final = frozenset({"NaN", "nan", "-NaN", "-nan"})
_NULLS: Final = list(pa.csv.ConvertOptions().null_values)
FLOAT_NULLS: Final = [text for text in _NULLS if text not in _NOT_A_NUMBER]
CODE: Final = r"^[ \t]*([+-]?0\d|\+)"
"""Texts that a number would not preserve."""


class RowConverter:
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
            return convert_rows(rows, text.names, self._types, self._optional, self._separator)

        try:
            return convert(text.rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise conversion_error(
                self._name, text, self._separator, convert, error, self._remedy, self._types
            ) from error

    def _check_codes(self, rows: bytes, names: Sequence[str]) -> None:
        """Raise pa.ArrowInvalid for a code in a numeric column, as Arrow does for a value that does not fit."""
        texts = texts_of(rows, names, self._guarded, self._separator)
        for column in texts.column_names:
            if matches_any(texts.column(column), CODE):
                code = next(value for value in texts.column(column).to_pylist() if value and re.match(CODE, value))
                raise pa.ArrowInvalid(
                    f"In CSV column #{names.index(column)}: {code!r} as a number would lose its zeros or plus"
                )


def texts_of(rows: bytes, names: Sequence[str], columns: Iterable[str], separator: str) -> pa.Table:
    """Return some of the columns as text."""
    return convert_rows(rows, names, dict.fromkeys(columns, pa.string()), None, separator)


def matches_any(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether one of the texts matches."""
    return pc.any(pc.match_substring_regex(column, pattern)).as_py() is True


def convert_rows(
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
            io.BytesIO(rows),
            *parse_options(rows, separator, names),
            conversion_options(group, list(absent), list(group)),
        )
        columns.update(zip(table.column_names, table.columns, strict=True))
    return pa.table({name: columns[name] for name in names if name in columns})


def _nulls(kind: pa.DataType, is_nullable: bool) -> list[str]:
    if _is_text(kind):
        return [""] if is_nullable else []
    return FLOAT_NULLS if pa.types.is_floating(kind) else _NULLS


def conversion_options(types: Types, nulls: list[str], include: list[str] | None = None) -> pa.csv.ConvertOptions:
    """Return Arrow's options for columns of these types; ``include`` chooses columns, None takes all."""
    return pa.csv.ConvertOptions(
        column_types=dict(types),
        null_values=nulls,
        include_columns=include,
        strings_can_be_null=True,
        quoted_strings_can_be_null=any(not _is_text(kind) for kind in types.values()),
    )


def conversion_error(
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
            return f", column {column!r} is not UTF-8: {recode_remedy(name)}"
        kind = f" ({types[column]})" if column in types else ""
        return f", column {column!r}{kind}: {found[2].removeprefix('CSV conversion error to ')}: {remedy}"
    return f": {said}"


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_fixed_size_binary(kind)
    )
