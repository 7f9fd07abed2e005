"""Merge of small tables into one that replaces them, streamed in bounded memory. Blocking.

A table with deleted and live records is rewritten by the same steps: a merge of one table, from the low watermark.
Until the original is deleted, the offsets of the new table are within it, and its date is later.

A process may be killed in any of the three steps of a merge, and each step can be repeated:

1. ``merge_tables`` writes the new table to a temporary file, on any machine. A leftover file is swept a day later.
2. ``publish_merge`` gives it its name under a claim (``files``), beside the tables that it replaces. From then on,
   readers that handle overlaps choose it, since it reaches further. Both copies of a record are identical.
3. ``remove_superseded`` removes the names of tables whose records another table has. Running queries continue by the
   retained links. The next compaction, and brokers, find leftover tables by their names.
"""

import contextlib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import IO, Final

import pyarrow as pa

from seaweedmq.codec.paths import table_dir
from seaweedmq.codec.references import REFERENCE
from seaweedmq.core.files.compaction import TableMerge, containing, merges, superseded
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.place import Place
from seaweedmq.storage.store.retained_tables import retain_table
from seaweedmq.storage.tables.files import open_target
from seaweedmq.storage.tables.format import TableFile
from seaweedmq.storage.tables.opener import open_table, schema_of
from seaweedmq.storage.tables.rows import Open, table_rows

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Uncompressed size of a row group, the default of brokers."""


def kind_of(place: Place, topic: Topic, table: SegmentFile) -> object:
    """Return the kind of a table's columns for ``core.files.compaction.merges``, NotImplemented if unreadable."""
    if topic.schema is None:
        return "plain"  # reading it detects a foreign table
    try:
        with contextlib.closing(place.open_input(table)) as source, open_table(source, table, topic) as opened:
            return "plain" if schema_of(opened, topic) is None else "typed"
    except SeaweedMQError:
        return NotImplemented


def merge_tables(place: Place, topic: Topic, merge: TableMerge, *, row_group_bytes: int = ROW_GROUP_BYTES) -> str:
    """Write the rows of the tables to a durable temporary file, and return its path in the storage.

    The memory is two row groups and the encoded columns of one. Raises NotFound if a table was deleted, by another
    merge or retention.
    """
    try:
        return _merge(place, topic, merge, row_group_bytes, has_references=False)
    except FoundReferences:
        return _merge(place, topic, merge, row_group_bytes, has_references=True)


def _merge(place: Place, topic: Topic, merge: TableMerge, row_group_bytes: int, *, has_references: bool) -> str:
    first = merge.tables[0]
    target = open_target(place, topic, first.segment)
    sink = target.create_merged(merge)
    try:
        write_merge(sink, topic, merge, place.open_input, row_group_bytes, has_references=has_references)
        return target.finish(sink)
    except OSError as e:
        target.discard(sink)
        raise storage_failed("merge tables of", place.where(table_dir(first.topic)), e) from e
    except BaseException:
        target.discard(sink)
        raise


def publish_merge(place: Place, topic: Topic, merge: TableMerge, made: str) -> SegmentFile:
    """Replace the tables by the file of ``merge_tables``, and return the new table.

    Raises Unavailable if another process merged or merges some of the tables; nothing changed and the file is deleted.
    """
    first = merge.tables[0]
    with failing("publish a table in", place.where(table_dir(first.topic))):
        table = open_target(place, topic, first.segment).publish_merged(made, merge)
        if place.is_settled(table.path):
            _unlink(place, merge.tables)
    return table


def compact_tables(
    place: Place,
    topic: Topic,
    tables: Sequence[SegmentFile],
    row_group_bytes: int = ROW_GROUP_BYTES,
    low_watermark: int = 0,
) -> list[SegmentFile]:
    """Merge consecutive tables of a segment, one table per kind in a row, and return the new tables.

    With a low watermark, the result is one table without the records below it. The errors are those of ``merge_tables``
    and ``publish_merge``.
    """
    if low_watermark:
        rewrite = TableMerge(tables=tuple(tables), low_watermark=low_watermark)
        open_target(place, topic, tables[0].segment).check_free(rewrite)
        return [
            publish_merge(place, topic, rewrite, merge_tables(place, topic, rewrite, row_group_bytes=row_group_bytes))
        ]
    whole_bytes = 2 * sum(table.size_bytes for table in tables) + 2
    return [
        publish_merge(place, topic, merge, merge_tables(place, topic, merge, row_group_bytes=row_group_bytes))
        for merge in merges(tables, whole_bytes, partial(kind_of, place, topic))
    ]


def remove_superseded(
    place: Place, topic: Topic, segment: int, in_use: Collection[str] = ()
) -> tuple[list[SegmentFile], list[Corrupt]]:
    """Remove tables that a killed merge left if their replacement is sound; return them and errors of unsound ones.

    Tables whose file name is ``in_use`` stay.
    """
    removed: list[SegmentFile] = []
    refused: list[Corrupt] = []
    try:
        place = place.of(topic)
        tables = place.tables(topic.name, [segment])
        sound: dict[str, bool] = {}
        for table in superseded(tables):
            whole = containing(table, [t for t in tables if t.path not in {r.path for r in removed}])
            if whole is None or table.path.rpartition("/")[2] in in_use:
                continue
            if whole.path not in sound:
                try:
                    check_table(place, topic, whole)
                    sound[whole.path] = place.is_settled(whole.path)
                except Corrupt as e:
                    refused.append(e)
                    sound[whole.path] = False
                except NotFound:
                    sound[whole.path] = False
            if sound[whole.path]:
                removed.append(table)
        if removed:
            place.sync(table_dir(topic.name))  # the process that named the replacement may be dead
            _unlink(place, removed)
    except OSError as e:
        raise storage_failed("remove tables of", place.where(table_dir(topic.name)), e) from e
    return removed, refused


def check_table(place: Place, topic: Topic, table: SegmentFile) -> None:
    """Raise Corrupt unless the table's footer is sound and matches its name."""
    with contextlib.closing(place.open_input(table)) as source, open_table(source, table, topic):
        pass


def _unlink(place: Place, tables: Iterable[SegmentFile]) -> None:
    """Remove the names of tables; a table without a retained link gets one first."""
    for table in tables:
        with contextlib.suppress(NotFound):  # another process removed it
            retain_table(place, table.path)
        place.delete(table.path)


class FoundReferences(Exception):
    """The column of payloads by reference, in a table behind others without it. It never leaves this module."""


def write_merge(
    sink: IO[bytes],
    topic: Topic,
    merge: TableMerge,
    open_file: Open,
    row_group_bytes: int,
    *,
    has_references: bool = False,
) -> None:
    """Write all rows of the tables, and the footer; a thread encodes a row group while this one decodes the next.

    The new table has the column of payloads by reference if the first table has it, or with ``has_references``. Few
    topics have it, so that is not looked up in advance: the first such table behind others raises FoundReferences, and
    the caller begins again with another sink. An object in parts cannot be cut.
    """
    batches = (row for table in merge.tables for row in table_rows(open_file, topic, table))
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = rows = 0
    left_out = merge.leaves_out
    file: TableFile | None = None
    schema: pa.Schema | None = None
    encoding: Future[None] | None = None
    with ThreadPoolExecutor(1, "seaweedmq-encode") as pool:
        try:
            for found, batch in batches:
                brings_references = found is None and batch.schema.names[-1] == REFERENCE.name
                if file is None:
                    has_references |= brings_references
                    file, schema = TableFile(sink, topic, found, has_references=has_references), found
                elif found is not schema and found != schema:
                    raise Corrupt(f"{merge}: tables with the topic's columns and plain ones cannot be merged")
                if brings_references and not has_references:
                    raise FoundReferences
                if has_references and not brings_references:
                    batch = batch.append_column(REFERENCE, pa.nulls(batch.num_rows, REFERENCE.type))
                skipped = min(left_out, batch.num_rows)
                left_out -= skipped
                batch = batch.slice(skipped)
                if not batch.num_rows:
                    continue
                waiting.append(batch)
                waiting_bytes += batch.nbytes
                rows += batch.num_rows
                if waiting_bytes >= row_group_bytes:
                    if encoding is not None:
                        encoding.result()
                    encoding = pool.submit(file.write, _table(waiting, file.schema))
                    waiting, waiting_bytes = [], 0
            if encoding is not None:
                encoding.result()
            if file is None or rows != merge.end_offset - merge.base_offset:
                raise Corrupt(
                    f"{merge}: its tables have {rows} rows, which does not match their names: restore them from a copy"
                )
            if waiting:
                file.write(_table(waiting, file.schema))
            file.close()
        except BaseException:
            if encoding is not None:
                wait([encoding])
            if file is not None:
                file.abandon()
            raise


def _table(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    columns = [
        column if column.type == field.type else column.cast(field.type)  # seconds, which Parquet lacks
        for column, field in zip(pa.Table.from_batches(batches).columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
