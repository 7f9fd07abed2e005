"""Implementation of ``read``: plans the snapshot, whose tables Spark's own Parquet reader reads.

Tables cost no Python at all, so they are as fast as plain Parquet. The data source reads the rest: records that only
log files or only brokers have. Spark reads a table by its retained link, which outlives the table's replacement
(``codec.paths``).
"""

import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from seaweedmq.codec.paths import kept_path
from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import InvalidArgument, NotFound
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.spark.columns import OFFSET, SEGMENT, TIMESTAMP, TOPIC, Column
from seaweedmq.spark.native_types import foreign_part
from seaweedmq.spark.options import RANGES, SparkOptions, parse_options
from seaweedmq.spark.source import FORMAT, TopicSource, chosen_columns, find, window_of
from seaweedmq.spark.table_scan import row_groups
from seaweedmq.storage.plan.log_ends import end_of_logs
from seaweedmq.storage.plan.scan_ranges import BrokerRange, ScanRange, plan_ranges
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.store.file_handles import open_input
from seaweedmq.storage.tables.opener import open_table

logger = logging.getLogger(__name__)

REPLANS_MAX = 3
"""Maximum number of plans: files may be converted, compacted or removed during planning."""
_THREADS = 8
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Number of paths above which Spark lists them in a job of that many tasks: 6.5 s instead of 0.6 s for 1,000."""
_PLACE = {SEGMENT: IntegerType(), OFFSET: LongType(), TIMESTAMP: TimestampType()}
_OF_THE_TAIL = frozenset(
    {
        *("storage", "bootstrap", "topic", "columns", "includeHeaders", "startingTimestamp", "endingTimestamp"),
        *("minPartitions", "maxRecordsPerPartition", "failOnDataLoss"),
    }
)
_PARQUET_OPTIONS = {
    "__globPaths__": "false",  # the path of a storage may contain glob characters
    "recursiveFileLookup": "true",  # folders of a storage are not partitions
    "datetimeRebaseMode": "CORRECTED",  # dates before 1582 as they were written
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",  # lost rows are an error, despite the session's setting
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan:
    """The division of a read between Spark's Parquet reader and the data source."""

    whole: tuple[SegmentFile, ...]
    clipped: tuple[SnapshotPiece, ...]
    """Parts of tables."""
    ranges: dict[int, list[tuple[int, int]]]
    """Offset ranges that the data source reads, by segment."""


def read_native(spark: SparkSession, given: dict[str, str]) -> DataFrame:
    """Return the DataFrame for checked and complete options of a batch read.

    Raises:
        InvalidArgument: If an option breaks its rule, or the storage does not exist.
        NotFound: If no such topic exists.
        Unsupported: If a column has a type that Spark lacks.
        OutOfRange: If requested offsets were removed or do not exist.
        Corrupt: If a file is damaged.
        StorageFailed: If a file cannot be read.
        Unavailable: If no broker answers.
    """
    options = parse_options(given)
    if options.window.ranges is not None:
        raise InvalidArgument(f"option {RANGES!r} is internal: give startingOffsets and endingOffsets")
    found = find(options.place, ends=True)
    columns = chosen_columns(found.snapshot.topic, options.shown)
    why = why_not_native(options, columns)
    if why is not None:
        logger.info("topic %s is read by the Python source: %s", options.topic, why)
    plan = plan_over(found, options, with_tables=why is None)
    parts = [*_tables(spark, found, plan, columns, options.window.timestamps)]
    if plan.ranges or why is not None:
        parts.append(spark.read.format(FORMAT).options(**_tail_options(given, plan)).load())
    if not parts:
        nothing = [F.lit(None).cast(c.kind).alias(c.name) for c in columns]
        return spark.range(0).select(*nothing)
    return reduce(DataFrame.unionByName, parts)


def why_not_native(options: SparkOptions, columns: Sequence[Column]) -> str | None:
    """Return why the data source has to read everything; None if it need not."""
    if options.place.storage is None:
        return "the option 'storage' is missing, so no file can be read"
    if options.min_partitions is not None or options.records_max is not None:
        return "minPartitions and maxRecordsPerPartition divide by records, Spark's own reader divides by bytes"
    for column in columns:
        foreign = foreign_part(column.stored)
        if foreign is not None:
            return f"Spark reads {foreign} of column {column.name!r} differently, or not at all"
    return None


def plan_native(found: TopicSource, options: SparkOptions, *, with_tables: bool = True) -> NativePlan:
    """Divide a read into whole tables, parts of tables, and ranges for the data source.

    Reads the headers in log files, and reads and verifies the footer of every table. Without
    ``with_tables``, the data source reads the tables as well.

    Raises:
        NotFound: If a listed file was deleted.
        OutOfRange: If requested offsets were removed, as in ``scan_ranges.plan_ranges``.
        Corrupt: If a file is damaged.
        StorageFailed: If a file cannot be read.
    """
    root, topic = found.root, found.snapshot.topic
    window = window_of(found, options, options.window)
    pieces = plan_ranges(found.snapshot, window, found.known, fail_on_data_loss=options.fail_on_data_loss)
    tables = [p for p in pieces if with_tables and isinstance(p, SnapshotPiece) and p.kind is FileKind.TABLE]
    with ThreadPoolExecutor(_THREADS, "seaweedmq-footer") as pool:
        wanted = list(pool.map(lambda p: _is_wanted(root, topic, p.files[0], window.timestamps), tables))
    whole, clipped = [], []
    for piece, is_wanted in zip(tables, wanted, strict=True):
        if is_wanted:
            file = piece.files[0]
            if (piece.start_offset, piece.end_offset) == (file.base_offset, file.end_offset):
                whole.append(file)
            else:
                clipped.append(piece)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for each in pieces:
        if with_tables and isinstance(each, SnapshotPiece) and each.kind is FileKind.TABLE:
            continue
        end = _end_of(root, topic, each, is_committed=found.known is not None)
        if end > each.start_offset:
            _add(ranges.setdefault(each.segment, []), each.start_offset, end)
    return NativePlan(whole=tuple(whole), clipped=tuple(clipped), ranges=ranges)


def plan_over(found: TopicSource, options: SparkOptions, *, with_tables: bool = True) -> NativePlan:
    """Run :func:`plan_native`, again if files were deleted after they were listed."""
    for attempt in range(REPLANS_MAX):
        try:
            return plan_native(found, options, with_tables=with_tables)
        except NotFound:
            if attempt == REPLANS_MAX - 1:
                raise
            again = find(replace(options.place, bootstrap=None), ends=False)
            low = again.snapshot.topic.low_watermarks  # it may explain why files were deleted
            topic = replace(found.snapshot.topic, low_watermarks=low)
            snapshot = replace(found.snapshot, topic=topic, files=again.snapshot.files, removed=again.snapshot.removed)
            found = replace(found, snapshot=snapshot)
    raise AssertionError("the last attempt returns or raises")


def _end_of(root: Path | None, topic: Topic, piece: ScanRange, *, is_committed: bool) -> int:
    if isinstance(piece, BrokerRange):
        return piece.end_offset
    if piece.end_offset is not None and (is_committed or piece.complete):
        return piece.end_offset
    if root is None:
        raise AssertionError(f"{piece.files[0].path} was listed, and there is no storage")
    return end_of_logs(root, topic, piece)


def _add(parts: list[tuple[int, int]], start: int, end: int) -> None:
    """Append a range, joined to the last one if they touch: ranges of one segment come in order."""
    if parts and parts[-1][1] == start:
        start = parts.pop()[0]
    parts.append((start, end))


def _is_wanted(root: Path | None, topic: Topic, file: SegmentFile, timestamps: Interval) -> bool:
    if root is None:
        raise AssertionError(f"{file.path} was listed, and there is no storage")
    # By the link that Spark is going to read: the table itself may be deleted since the listing.
    lasting = replace(file, path=str(_lasting(root, file).relative_to(root)))
    with closing(open_input(root, lasting)) as source, open_table(source, file, topic) as table:
        if not timestamps.is_bounded:
            return True
        return any(g.timestamps is None or timestamps.overlaps(*g.timestamps) for g in row_groups(file, table))


def _tail_options(given: dict[str, str], plan: NativePlan) -> dict[str, str]:
    """Return the options that locate the topic and choose columns, with the planned offset ranges."""
    return {n: v for n, v in given.items() if n in _OF_THE_TAIL} | {RANGES: json.dumps(plan.ranges)}


def _tables(
    spark: SparkSession, found: TopicSource, plan: NativePlan, columns: Sequence[Column], timestamps: Interval
) -> Iterator[DataFrame]:
    """Yield the DataFrames of the tables, with the columns of the result."""
    kinds = {c.source: c.kind for c in columns} | _PLACE
    needed = [c.source for c in columns if c.source != TOPIC]
    if timestamps.is_bounded:
        needed.append(TIMESTAMP)
    told = {TOPIC: f"'{found.snapshot.topic.name}'"}
    # As text in one call: a Column takes three calls to the JVM, which together took a third of the planning.
    shown = [f"{told.get(c.source) or _quoted(c.source)} AS {_quoted(c.name)}" for c in columns]

    def frame(files: Sequence[SegmentFile], sources: Sequence[str], conditions: Sequence[Expression]) -> DataFrame:
        schema = StructType([StructField(s, kinds[s]) for s in dict.fromkeys(sources)])
        paths = [f"file://{_lasting(found.root, file)}" for file in files]
        with _listed_at_once(spark, len(paths)):
            rows = spark.read.schema(schema).options(**_PARQUET_OPTIONS).parquet(*paths)
        for condition in (*conditions, *_in_time(timestamps)):
            rows = rows.where(condition)
        return rows.selectExpr(*shown)

    if plan.whole:
        yield frame(plan.whole, needed or [OFFSET], ())
    for group in groups_of(plan.clipped):
        parts = [
            (F.col(SEGMENT) == p.segment) & (F.col(OFFSET) >= p.start_offset) & (F.col(OFFSET) < p.end_offset)
            for p in group
        ]
        any_part = reduce(lambda one, other: one | other, parts)
        yield frame([p.files[0] for p in group], [*needed, SEGMENT, OFFSET], [any_part])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def groups_of(pieces: Sequence[SnapshotPiece]) -> list[list[SnapshotPiece]]:
    """Group pieces that may be read together, by one filter on segment and offset.

    In a group, no table holds offsets that another piece of the group is to supply.
    """
    groups: list[list[SnapshotPiece]] = []
    for piece in pieces:
        group = next((g for g in groups if not any(_meet(piece, other) or _meet(other, piece) for other in g)), None)
        if group is None:
            groups.append([piece])
        else:
            group.append(piece)
    return groups


def _meet(piece: SnapshotPiece, other: SnapshotPiece) -> bool:
    file = other.files[0]
    end, file_end = piece.end_offset or 0, file.end_offset or 0
    return piece.segment == other.segment and piece.start_offset < file_end and file.base_offset < end


def _in_time(timestamps: Interval) -> Iterator[Expression]:
    if timestamps.lo is not None:
        yield F.col(TIMESTAMP) >= F.timestamp_micros(F.lit(timestamps.lo))
    if timestamps.hi is not None:
        yield F.col(TIMESTAMP) < F.timestamp_micros(F.lit(timestamps.hi))


def _lasting(root: Path | None, file: SegmentFile) -> Path:
    """Return the retained link of a table if it has one, otherwise the table."""
    if root is None:
        raise AssertionError(f"{file.path} was listed, and there is no storage")
    kept = root / kept_path(file.path)
    return kept if kept.exists() else root / file.path


@contextmanager
def _listed_at_once(spark: SparkSession, paths: int) -> Iterator[None]:
    """Make Spark list this many paths in the driver."""
    now: str | None = spark.conf.get(_LISTING_THRESHOLD)
    if now is not None and int(now) >= paths:
        yield
        return
    was_set = spark.conf.get(_LISTING_THRESHOLD, None)
    spark.conf.set(_LISTING_THRESHOLD, str(paths))
    try:
        yield
    finally:
        if was_set is None:
            spark.conf.unset(_LISTING_THRESHOLD)
        else:
            spark.conf.set(_LISTING_THRESHOLD, was_set)
