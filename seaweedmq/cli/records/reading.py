"""Readers of the input formats of `publish`, which turn a source into Arrow tables in bounded memory.

For a plain topic the tables have `_value` and, where given, `_key`, `_timestamp` and `_headers`; for a topic with a
schema they have the schema's columns in place of `_value`.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import pyarrow as pa
import pyarrow.parquet

from seaweedmq.cli.records import json_in
from seaweedmq.cli.records.source import Source, line_blocks, pieces, seekable
from seaweedmq.client.publish.batches.framing import first_over_limit, over_limit
from seaweedmq.client.publish.batches.tables import as_table, fit, is_plain, schema_to_adopt
from seaweedmq.codec.imports import csv_tables
from seaweedmq.codec.imports.csv_columns import Types
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import BrokerConfig

BATCH_ROWS = 65_536
ARROW_FILE_MAGIC = b"ARROW1"
FRAME_BYTES_MAX = BrokerConfig().frame_bytes_max
_COLUMN_BYTES = 256
"""Maximum bytes that a column adds to a record's frame, beside its value as text."""


class InputFormat(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


def check(
    kind: InputFormat,
    source: Source,
    schema: pa.Schema | None,
    key: str | None,
    separator: str | None = None,
    *,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    at: Callable[[], None] = lambda: None,
) -> Types | None:
    """Read a file to its end and rewind it, to check that every record can be published.

    The arguments are those of :func:`tables` and :func:`check_table`; ``at`` is called after each table, when the
    source is positioned behind it. Returns the types for :func:`tables`, if the source is CSV and the topic does not
    set them.
    """
    types: Types | None = None
    parts: Iterable[pa.Table] = ()
    if kind is InputFormat.CSV and schema is None:
        largest = 0

        def at_block(size: int) -> None:
            nonlocal largest
            largest = max(largest, size)
            at()

        types = csv_tables.infer(source.name, pieces(source.file), separator, at=at_block)
        if largest + _COLUMN_BYTES * len(types) > frame_bytes_max:
            source.rewind()
            parts = tables(kind, source, None, key, separator, types)
        elif types:
            parts = [pa.schema(list(types.items())).empty_table()]
    else:
        parts = tables(kind, source, schema, key, separator)
    column = key if schema is not None or kind is not InputFormat.JSONL else None
    records = 0
    for table in parts:
        check_table(kind, source, table, schema, column, records, frame_bytes_max)
        records += table.num_rows
        at()
    source.rewind()
    return types


def check_table(
    kind: InputFormat,
    source: Source,
    table: pa.Table,
    schema: pa.Schema | None,
    key: str | None,
    before: int,
    frame_bytes_max: int,
) -> None:
    """Raise InvalidArgument if a table does not fit the topic, or if one of its records exceeds ``frame_bytes_max``.

    The message has the line or number: ``before`` is the number of records of the source before the table.
    """
    given = as_table(table)
    adopted = schema if schema is not None or is_plain(given.schema) else schema_to_adopt(given)
    batches, flags = fit(given, adopted, key, None)
    for batch in batches:
        found = first_over_limit(batch, flags, frame_bytes_max)
        if found is not None:
            row, size = found
            unit = "line" if kind is InputFormat.LINES else "record"
            raise over_limit(f"{unit} {before + row + 1} of {source.name}", size, frame_bytes_max)
        before += batch.num_rows


def tables(
    kind: InputFormat,
    source: Source,
    schema: pa.Schema | None,
    key: str | None,
    separator: str | None = None,
    types: Types | None = None,
) -> Iterator[pa.Table]:
    """Yield the records of a source, table by table, in order; InvalidArgument if they have another format.

    Args:
        kind: Format of the source.
        source: Open input.
        schema: Schema of the topic; None for a plain topic, or one that will adopt the schema of the first table.
        key: Field that holds the key. Only JSON lines of a plain topic use it here; the sender names it for tables.
        separator: Separator of CSV columns; a comma by default.
        types: Types of CSV columns, as :func:`check` found them.
    """
    readers: dict[InputFormat, Callable[[], Iterator[pa.Table]]] = {
        InputFormat.LINES: lambda: _lines(source, schema),
        InputFormat.JSONL: lambda: json_in.read(source, schema, key),
        InputFormat.CSV: lambda: csv_tables.read(source.name, pieces(source.file), schema, types, separator),
        InputFormat.PARQUET: lambda: _parquet(source),
        InputFormat.ARROW: lambda: _arrow(source),
    }
    try:
        yield from readers[kind]()
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as error:
        raise InvalidArgument(f"{source.name} cannot be read as {kind}: {error}") from error


def _lines(source: Source, schema: pa.Schema | None) -> Iterator[pa.Table]:
    if schema is not None:
        raise InvalidArgument(
            "the topic has a schema, which lines cannot fill: use --format jsonl, csv, parquet or arrow"
        )
    for lines in line_blocks(source):
        yield pa.table({"_value": pa.array(lines, pa.binary())})


def _parquet(source: Source) -> Iterator[pa.Table]:
    with seekable(source) as file:
        for batch in pa.parquet.ParquetFile(file).iter_batches(batch_size=BATCH_ROWS):
            yield pa.Table.from_batches([batch])


def _arrow(source: Source) -> Iterator[pa.Table]:
    """Yield the batches of an IPC file or stream, which the first bytes distinguish."""
    if source.file.peek(len(ARROW_FILE_MAGIC))[: len(ARROW_FILE_MAGIC)] != ARROW_FILE_MAGIC:
        for batch in pa.ipc.open_stream(source.file):
            yield pa.Table.from_batches([batch])
        return
    with seekable(source) as file:
        reader = pa.ipc.open_file(file)
        for index in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(index)])
