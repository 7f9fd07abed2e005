"""Many small tables become one: streamed from one into the other in bounded memory, then put in their place. Blocking.

A table that holds deleted and living records is rewritten in the same steps, without the deleted ones: a merge of one
table, from the low watermark on. Until the original goes, the new table lies within it, and is the younger one.

The three steps of a merge may be killed anywhere, and each can be done again:

1. ``merge_tables`` writes the new table aside, on any machine. A file that is left over is swept a day later.
2. ``publish_merge`` gives it its name under a claim (``files``), beside those it replaces. From here on readers that
   know how choose it: it reaches further. Records lie in two tables, and both say the same.
3. ``remove_doubled`` takes away the names of the tables all of whose records another one has. Those who have begun with
   them go on by the second name. What is left over is found by the names alone: by the next compaction, and by brokers.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from seaweedmq.codec.paths import kept_path, table_dir, table_path
from seaweedmq.core.files.compaction import TableMerge, containing, merges, superseded
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError, StorageFailed, Unavailable
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.store import file_io
from seaweedmq.storage.store.directory import scan_tables
from seaweedmq.storage.store.faults import storage_failed
from seaweedmq.storage.store.file_handles import open_input
from seaweedmq.storage.store.retained_tables import retain_table
from seaweedmq.storage.tables.files import DirectoryTarget
from seaweedmq.storage.tables.format import TableFile
from seaweedmq.storage.tables.opener import open_table, schema_of
from seaweedmq.storage.tables.rows import Open, table_rows

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Uncompressed: as brokers make them."""


def kind_of(root: Path, topic: Topic, table: SegmentFile) -> object:
    """What ``core.files.compaction.merges`` wants to know of a table: plain, or of the topic's schema."""
    if topic.schema is None:
        return "plain"  # a foreign one is found when it is read
    try:
        with contextlib.closing(open_input(root, table)) as source, open_table(source, table, topic) as opened:
            return "plain" if schema_of(opened, topic) is None else "typed"
    except SeaweedMQError:
        return NotImplemented


def merge_tables(root: Path, topic: Topic, merge: TableMerge, *, row_group_bytes: int = ROW_GROUP_BYTES) -> str:
    """Write the rows of the tables into one, durable but without its name; return the path of that file below ``root``.

    Memory: two row groups and the encoded columns of one.

    Raises:
        Corrupt: a table is damaged, foreign, or not of the offsets that its name says; the message names it.
        NotFound: a table is gone: another process merged it, or retention removed it. StorageFailed.
    """
    first = merge.tables[0]
    target = DirectoryTarget(root, first.topic, first.segment)
    sink = target.create()
    try:
        write_merge(sink, topic, merge, partial(open_input, root), row_group_bytes)
        sink.flush()
        os.fsync(sink.fileno())
        sink.close()
    except OSError as e:
        target.discard(sink)
        raise storage_failed("merge tables of", str(root / table_dir(first.topic)), e) from e
    except BaseException:
        target.discard(sink)
        raise
    return str(Path(sink.name).relative_to(root))


def publish_merge(root: Path, merge: TableMerge, made: str) -> SegmentFile:
    """Put what ``merge_tables`` made in the place of the tables, which go; the table that counts now.

    Raises:
        Unavailable: another process merged some of them, or is at it; nothing was changed, and what was made is gone.
        StorageFailed: the directory refused.
    """
    first = merge.tables[0]
    path = root / made
    if not path.exists():
        raise NotFound(f"{path} is gone: the topic was deleted, or it took more than a day; plan again")
    try:
        target = DirectoryTarget(root, first.topic, first.segment)
        try:
            # Retention goes by the age of a table, and this one is as old as the youngest of its records. It gets its
            # date before its name: others tell by it which of two tables replaces the other. Not earlier, since a file
            # that old without its name would be taken for one that was left behind.
            os.utime(path, ns=(merge.modified_us * 1_000, merge.modified_us * 1_000))
            _check_date(path, merge)
            table = target.publish_file(path, merge.base_offset, merge.end_offset, merge.tables)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        _unlink(root, merge.tables)
    except OSError as e:
        raise storage_failed("publish a table in", str(path.parent), e) from e
    return table


def _check_date(path: Path, merge: TableMerge) -> None:
    """Refuse a rewritten table that the file system does not date later than its original: others would delete it.

    Raises:
        StorageFailed: the file system does not keep the date.
    """
    if merge.leaves_out and path.stat().st_mtime_ns // 1_000 <= merge.tables[-1].modified_us:
        raise StorageFailed(f"{path}: the file system does not keep times to the second: {merge} is not rewritten")


def compact_tables(
    root: Path,
    topic: Topic,
    tables: Sequence[SegmentFile],
    row_group_bytes: int = ROW_GROUP_BYTES,
    low_watermark: int = 0,
) -> list[SegmentFile]:
    """Make one table of some of a segment that follow one another, or one of each stretch of a kind; what was made.

    With a low watermark it is one table, without the records below.

    Raises:
        Corrupt, NotFound, Unavailable, StorageFailed: as ``merge_tables`` and ``publish_merge``.
    """
    if low_watermark:
        rewrite = TableMerge(tables=tuple(tables), low_watermark=low_watermark)
        _check_name(root, rewrite)
        return [publish_merge(root, rewrite, merge_tables(root, topic, rewrite, row_group_bytes=row_group_bytes))]
    whole_bytes = 2 * sum(table.size_bytes for table in tables) + 2
    return [
        publish_merge(root, merge, merge_tables(root, topic, merge, row_group_bytes=row_group_bytes))
        for merge in merges(tables, whole_bytes, partial(kind_of, root, topic))
    ]


def _check_name(root: Path, rewrite: TableMerge) -> None:
    """Refuse a rewrite under the name of a table that was deleted within ``table_grace_s``: a process that is about to
    delete that one would delete the new one.

    Raises:
        Unavailable: there was a table of this name.
    """
    first = rewrite.tables[0]
    name = kept_path(table_path(first.topic, first.segment, rewrite.base_offset, rewrite.end_offset))
    if (root / name).exists():
        raise Unavailable(f"{name} is left of a table of the same name: {rewrite} is rewritten once it is swept")


def remove_doubled(root: Path, topic: Topic, segment: int) -> tuple[list[SegmentFile], list[Corrupt]]:
    """Take away what a merge that was killed did not come to remove: tables all of whose records another one has, once
    that one has been found sound as far as its footer tells.

    Returns:
        What was removed, and why other things were not.

    Raises:
        StorageFailed: the directory refused.
    """
    removed: list[SegmentFile] = []
    refused: list[Corrupt] = []
    try:
        tables = scan_tables(root, topic.name, [segment])
        sound: dict[str, bool] = {}
        for table in superseded(tables):
            whole = containing(table, [t for t in tables if t.path not in {r.path for r in removed}])
            if whole is None:
                continue
            if whole.path not in sound:
                try:
                    check_table(root, topic, whole)
                    sound[whole.path] = True
                except Corrupt as e:
                    refused.append(e)
                    sound[whole.path] = False
                except NotFound:
                    sound[whole.path] = False
            if sound[whole.path]:
                removed.append(table)
        if removed:
            file_io.sync_directory(root / table_dir(topic.name))  # who gave the other one its name may have been killed
            _unlink(root, removed)
    except OSError as e:
        raise storage_failed("remove tables of", str(root / table_dir(topic.name)), e) from e
    return removed, refused


def check_table(root: Path, topic: Topic, table: SegmentFile) -> None:
    """Raise Corrupt unless the table's footer is sound and says what its name does."""
    with contextlib.closing(open_input(root, table)) as source, open_table(source, table, topic):
        pass


def _unlink(root: Path, tables: Iterable[SegmentFile]) -> None:
    """Take away first names. A table that was made before there were second ones gets it now."""
    for table in tables:
        with contextlib.suppress(NotFound):  # another process was faster
            retain_table(root, table.path)
        (root / table.path).unlink(missing_ok=True)


def write_merge(sink: IO[bytes], topic: Topic, merge: TableMerge, open_file: Open, row_group_bytes: int) -> None:
    """Write all rows of the tables, and the footer. A row group is encoded in a thread while the next one is decoded
    here. Raises as ``merge_tables``.
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
                if file is None:
                    file, schema = TableFile(sink, topic, found), found
                elif found is not schema and found != schema:
                    raise Corrupt(f"{merge}: tables with the topic's columns and plain ones can not be merged")
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
                raise Corrupt(f"{merge}: its tables have {rows} rows: they are not what their names say")
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
        column if column.type == field.type else column.cast(field.type)  # seconds, which Parquet has not
        for column, field in zip(pa.Table.from_batches(batches).columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
