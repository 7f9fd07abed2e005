"""Tables as entries of a Delta log: verification, retained link, statistics; and the columns of the log."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128_hexdigest

from seaweedmq.codec.paths import KEPT, table_dir, table_path
from seaweedmq.codec.references import REFERENCE
from seaweedmq.codec.tables.delta import Add, LogMetadata, stats_json
from seaweedmq.codec.tables.delta_schema import columns_of, delta_schema, features_needed
from seaweedmq.codec.timestamps import moment_text
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.core.files.live_tables import TableSpan
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.topic import Topic
from seaweedmq.storage import file_io
from seaweedmq.storage.faults import storage_failed
from seaweedmq.storage.place import Place
from seaweedmq.storage.store.retained_tables import retain_table
from seaweedmq.storage.tables.delta.log_state import GRACE_KEY
from seaweedmq.storage.tables.format import table_schema
from seaweedmq.storage.tables.opener import has_references, open_table

VALUE = "_value"
STATS_COLUMNS_KEY = "delta.dataSkippingStatsColumns"
_NUMBERS = ("_segment", "_partition", "_offset")
_TIME = "_timestamp"
_BOUNDED = (*_NUMBERS, _TIME)
"""Columns with statistics in every log entry."""


class TableColumns(StrEnum):
    """The kind of columns that a table has beyond the common ones."""

    PLAIN = "plain"
    REFERENCES = "references"
    """Plain, with the column of payloads by reference."""
    TYPED = "typed"


def enter(place: Place, topic: Topic, path: str, span: TableSpan) -> tuple[Add, TableColumns]:
    """Verify a table, and return its log entry and kind of columns; raises Corrupt if it is not one of the topic."""
    try:
        file = place.file_at(path)
    except FileNotFoundError:
        raise NotFound(f"{path} was deleted") from None
    except OSError as e:
        raise storage_failed("read", path, e) from e
    if file is None:
        raise Corrupt(f"{path} is not a regular file: move it away")
    with contextlib.closing(place.open_input(file)) as source, open_table(source, file, topic) as table:
        uid = (table.schema_arrow.metadata or {}).get(b"seaweedmq.topic_uid", b"").decode(errors="replace")
        if uid not in ("", str(topic.uid)):
            raise Corrupt(f"{path} is of an earlier topic {topic.name}: move it away")
        columns = TableColumns.PLAIN if VALUE in table.schema_arrow.names else TableColumns.TYPED
        if has_references(table):
            columns = TableColumns.REFERENCES
        bounds = column_bounds(table.metadata)
    for name, low, high in (("_segment", span.segment, span.segment), ("_offset", span.base, span.end - 1)):
        if bounds.get(name, (low, high))[:2] != (low, high):
            raise Corrupt(
                f"{path} has {name} from {bounds[name][0]} to {bounds[name][1]}, which does not match its name, it was "
                "renamed: restore it from a copy"
            )
    add = Add(
        path=_retained_path(place, path),
        size_bytes=file.size_bytes,
        modified_ms=file.modified_us // 1_000,
        stats=stats_json(span.end - span.base, bounds),
    )
    return add, columns


def column_bounds(metadata: pq.FileMetaData) -> dict[str, tuple[int | str, int | str, int]]:
    """Return minimum, maximum and null count of position and time columns that have statistics in every row group."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    found: dict[str, tuple[int | str, int | str, int]] = {}
    first = groups[0] if groups else None
    indexes = {} if first is None else {first.column(j).path_in_schema: j for j in range(first.num_columns)}
    for name in _BOUNDED:
        if name not in indexes:
            continue
        stats = [group.column(indexes[name]).statistics for group in groups]
        if any(s is None or not s.has_min_max or not s.has_null_count for s in stats):
            continue
        low, high = min(s.min_raw for s in stats), max(s.max_raw for s in stats)
        nulls = sum(s.null_count for s in stats)
        found[name] = (moment_text(low), moment_text(high), nulls) if name == _TIME else (low, high, nulls)
    return found


def _retained_path(place: Place, path: str) -> str:
    """Return a table's retained link, created if missing, or its name without hard links, relative to its folder."""
    return f"{KEPT}/{path.rpartition('/')[2]}" if retain_table(place, path) else path.rpartition("/")[2]


def restore_retained_links(place: Place, topic: Topic, listed: Mapping[TableSpan, Add]) -> None:
    """Recreate missing retained links that a log lists: copies of a storage may lack them."""
    try:
        kept = set(place.listdir(f"{table_dir(topic.name)}/{KEPT}"))
    except FileNotFoundError:
        kept = set()
    for span, add in listed.items():
        folder, _, name = add.path.rpartition("/")
        if folder == KEPT and name not in kept:
            with contextlib.suppress(NotFound):
                retain_table(place, table_path(topic.name, *span))


def log_metadata(
    topic: Topic, kinds: Collection[TableColumns], grace_s: float, before: LogMetadata | None
) -> tuple[LogMetadata, frozenset[str]]:
    """Return the log's metadata and the features that its readers need.

    ``kinds`` are those of tables that are or were in the log. All but the columns stays as in ``before``; None: a new
    log, whose removed tables stay readable for ``grace_s``. The metadata names the columns that have statistics:
    delta-rs takes the missing bounds of another column for NULL, and skips every table for a filter on it.
    """
    schema = delta_schema(topic_columns(topic, kinds))
    bounded = {STATS_COLUMNS_KEY: ",".join(name for name in columns_of(schema) if name in _BOUNDED)}
    if before is not None:
        return replace(before, schema=schema, configuration={**before.configuration, **bounded}), features_needed(
            schema
        )
    unique = xxh3_128_hexdigest(f"{topic.uid}/{file_io.unique_suffix()}".encode())
    interval = f"interval {int(grace_s)} seconds"
    metadata = LogMetadata(
        id="-".join((unique[:8], unique[8:12], unique[12:16], unique[16:20], unique[20:])),
        name=str(topic.name),
        schema=schema,
        configuration={
            "delta.logRetentionDuration": interval,
            GRACE_KEY: interval,
            **bounded,
            "seaweedmq.topic": str(topic.name),
            "seaweedmq.topic_uid": str(topic.uid),
        },
        created_ms=topic.created_us // 1_000,
    )
    return metadata, features_needed(schema)


def declared_kinds(metadata: LogMetadata | None) -> frozenset[TableColumns]:
    """Return the kinds of plain tables whose columns a log declares."""
    names = () if metadata is None else columns_of(metadata.schema)
    columns = {VALUE: TableColumns.PLAIN, REFERENCE.name: TableColumns.REFERENCES}
    return frozenset(kind for name, kind in columns.items() if name in names)


def topic_columns(topic: Topic, kinds: Collection[TableColumns] = ()) -> pa.Schema:
    """Return the columns of all tables of a topic, among them tables of some kinds; optional ones are nullable."""
    typed = None if topic.schema is None else schema_from_bytes(topic.schema)
    own = table_schema(topic, typed)
    fields = [f if f.name.startswith("_") else f.with_nullable(True) for f in own]
    plain_columns = table_schema(topic, None, has_references=True)
    if typed is not None and not {TableColumns.PLAIN, TableColumns.REFERENCES}.isdisjoint(kinds):
        fields.append(plain_columns.field(VALUE).with_nullable(True))
    if TableColumns.REFERENCES in kinds:
        fields.append(plain_columns.field(REFERENCE.name))
    return pa.schema(fields)
