"""Reader of CSV as tables, in blocks of whole rows with types that hold for all of them.

The topic sets the types of columns; otherwise they are inferred: for a file from all rows, for a pipe from the first
MiB. A column is text if a number has more digits than its type holds, if values are of several kinds, or if values are
codes. A code is a number with a zero before another digit or with a plus, like a postal code or a telephone number,
which a numeric type would alter.

A quoted empty text is an empty text, and one without quotes is null. A column that is not nullable reads both as empty
texts.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from seaweedmq.codec.imports.csv_columns import (
    CODE,
    FLOAT_NULLS,
    RowConverter,
    Types,
    conversion_error,
    conversion_options,
    convert_rows,
    matches_any,
    texts_of,
)
from seaweedmq.codec.imports.csv_text import CsvText, blocks, parse_options, separator_or_comma
from seaweedmq.errors import InvalidArgument

_LONG: Final = r"^[+-]?\d{16,}$"
"""Whole numbers that a double may round."""
_EXACT_MAX: Final = 1 << 53
_WIDE: Final = pa.uint64()
"""Internal type of int64 columns with numbers that a double rounds."""
_NUMBERS: Final = (pa.int64(), _WIDE, pa.float64())
_WIDER: Final = ((pa.int64(), _WIDE), (pa.int64(), pa.float64()), (pa.date32(), pa.timestamp("s")))
"""Sequences of types, each of which holds all values of the earlier ones. Nanoseconds do not hold all seconds."""


def read(
    name: str, pieces: Iterable[bytes], schema: pa.Schema | None, types: Types | None, separator: str | None
) -> Iterator[pa.Table]:
    """Yield tables of the rows of the text ``name``, whose pieces may have any size.

    Without a schema, ``types`` are those that :func:`infer` finds; None infers them from the first MiB. ``separator``
    None is a comma, and rejects a header that seems to have another. Raises InvalidArgument, with the line, the column
    and the remedy, if the input is not CSV, or a value does not fit its type.
    """
    reader: RowConverter | None = None
    guarded: frozenset[str] = frozenset()
    for text in blocks(name, pieces, separator, fill=schema is None and types is None):
        if reader is None:
            kinds = _topic_types(name, text.names, schema) if schema is not None else types
            optional = None if schema is None else frozenset(field.name for field in schema if field.nullable)
            if kinds is None:
                kinds = settled([_inferred(name, text, separator_or_comma(separator))])
                guarded = frozenset(column for column, kind in kinds.items() if kind in _NUMBERS)
            reader = RowConverter(
                name, separator_or_comma(separator), kinds, optional, guarded, has_schema=schema is not None
            )
        yield reader.table(text)


def infer(
    name: str, pieces: Iterable[bytes], separator: str | None, *, at: Callable[[int], None] = lambda _: None
) -> Types:
    """Return the type of each column, inferred from all rows; ``at`` gets the size of each block in bytes.

    Raises InvalidArgument as :func:`read`.
    """
    found: list[Types] = []
    for text in blocks(name, pieces, separator, fill=True):
        found.append(_inferred(name, text, separator_or_comma(separator)))
        at(len(text.rows))
    return settled(found)


def verify(name: str, pieces: Iterable[bytes], separator: str | None) -> frozenset[str]:
    """Verify, raising as :func:`read`, that a text is CSV; return the columns of codes that numbers would not keep."""
    codes: set[str] = set()
    for text in blocks(name, pieces, separator, fill=False):
        kinds = dict.fromkeys(text.names, pa.string())
        table = RowConverter(name, separator_or_comma(separator), kinds, None, frozenset(), has_schema=True).table(text)
        codes |= {column for column in text.names if column not in codes and matches_any(table.column(column), CODE)}
    return frozenset(codes)


def settled(found: Sequence[Types]) -> Types:
    """Return one type per column that holds the values of all blocks; text if no other does."""
    together: dict[str, set[pa.DataType]] = {}
    for types in found:
        for name, kind in types.items():
            together.setdefault(name, set()).add(kind)
    widest = {name: _widest(kinds - {pa.null()}) for name, kinds in together.items()}
    return {name: pa.int64() if kind == _WIDE else kind for name, kind in widest.items()}


def _topic_types(name: str, names: Sequence[str], schema: pa.Schema) -> Types:
    """Return the type of each column of a header. A column that the topic lacks is text; publishing rejects it."""
    types = {each: schema.field(each).type if each in schema.names else pa.string() for each in names}
    for column, kind in types.items():
        try:
            pa.csv.read_csv(
                io.BytesIO(b"1\n"), *parse_options(b"1\n", ",", [column]), conversion_options({column: kind}, [])
            )
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
        conversion = pa.csv.ConvertOptions(null_values=FLOAT_NULLS)
        return pa.csv.read_csv(io.BytesIO(rows), *parse_options(rows, separator, text.names), conversion)

    def convert_text(rows: bytes) -> pa.Table:
        return convert_rows(rows, text.names, dict.fromkeys(text.names, pa.string()), None, separator)

    try:
        table = convert(text.rows)
        found = dict(zip(table.column_names, table.schema.types, strict=True))
        if pa.binary() in found.values():
            convert_text(text.rows)
    except pa.ArrowInvalid as error:
        raise conversion_error(name, text, separator, convert_text, error, "correct it", {}) from error
    for column, kind in found.items():
        if kind == pa.int64():
            bounds = pc.min_max(table.column(column)).as_py()
            if bounds["min"] is not None and max(-bounds["min"], bounds["max"]) > _EXACT_MAX:
                found[column] = _WIDE
    numbers = [column for column, kind in found.items() if kind in _NUMBERS]
    if numbers:
        texts = texts_of(text.rows, text.names, numbers, separator)
        for column in numbers:
            altered = f"{_LONG}|{CODE}" if found[column] == pa.float64() else CODE
            if matches_any(texts.column(column), altered):
                found[column] = pa.string()
    return found


def _widest(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    for ladder in _WIDER:
        if kinds and kinds.issubset(ladder):
            return max(kinds, key=ladder.index)
    return pa.string()
