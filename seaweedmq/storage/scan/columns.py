"""Columns of a topic as readers show them.

The columns are ``topic, segment, offset, timestamp, key, value, headers``; in a topic with partitions, ``partition``
follows ``segment``. A topic with a schema has its own columns in place of ``value``. If one of those has a built-in
column's name, the built-in column keeps its name in the Parquet files (``_timestamp``): users' names never begin with
``_``. Names are case-insensitive, as in SQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.codec.references import REFERENCE
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import Topic

KEY = "_key"
OFFSET = "_offset"
PARTITION = "_partition"
SEGMENT = "_segment"
TIMESTAMP = "_timestamp"
TOPIC = "_topic"
_LEADING = (
    ("topic", TOPIC, pa.string(), False),
    ("segment", SEGMENT, pa.int32(), False),
    ("offset", OFFSET, pa.int64(), False),
    ("timestamp", TIMESTAMP, PLAIN_SCHEMA.field(TIMESTAMP).type, False),
    ("key", KEY, pa.binary(), True),
)
_PARTITION = ("partition", PARTITION, pa.int32(), False)
"""Partition column: stored per row in tables, and as one number per frame in log files."""
_VALUE = ("value", "_value", pa.binary(), True)
_HEADERS = ("headers", "_headers", PLAIN_SCHEMA.field("_headers").type, True)
_REFERENCE = ("reference", REFERENCE.name, REFERENCE.type, True)
"""Column of payloads by reference, in plain topics."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the result."""

    name: str
    """Name in the result."""
    source: str
    """Name in the files."""
    stored: pa.DataType
    """Arrow type in frames."""
    nullable: bool


def columns_of(
    topic: Topic,
    chosen: Sequence[str] | None = None,
    *,
    include_headers: bool = True,
    include_references: bool = False,
) -> tuple[Column, ...]:
    """Return the columns of a topic in the chosen order.

    Args:
        topic: The topic.
        chosen: Names of the columns; None: all, as the other arguments say.
        include_headers: Whether all columns include the headers.
        include_references: Whether there is a column of payloads by reference.

    Raises:
        InvalidArgument: If the topic has no such column, or references are requested of a topic with a schema.
    """
    schema = None if topic.schema is None else schema_from_bytes(topic.schema)
    if include_references and schema is not None:
        raise InvalidArgument(
            f"topic {topic.name} has a schema, and payloads by reference are in plain topics: leave them out"
        )
    optional = [_HEADERS, _REFERENCE] if include_references else [_HEADERS]
    own = {} if schema is None else {field.name.casefold(): field for field in schema}
    content = [_VALUE] if schema is None else [(f.name, f.name, f.type, True) for f in schema]
    all_columns = {}
    topic_name, segment, *others = _LEADING
    place = [topic_name, segment] if topic.partitions is None else [topic_name, segment, _PARTITION]
    for name, source, kind, nullable in (*place, *others, *content, *optional):
        shown = source if source.startswith("_") and name.casefold() in own else name
        all_columns[shown.casefold()] = (shown, source, kind, nullable)
    every = [folded for folded, column in all_columns.items() if include_headers or column[1] != _HEADERS[1]]
    names = [name.casefold() for name in chosen] if chosen is not None else every
    missing = [n for n, folded in zip(chosen or (), names, strict=False) if folded not in all_columns]
    if missing:
        raise InvalidArgument(
            f"topic {topic.name} has no column {missing[0]!r}: it has {', '.join(c[0] for c in all_columns.values())}"
        )
    return tuple(Column(*all_columns[name]) for name in names)
