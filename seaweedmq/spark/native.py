"""Implementation of ``read``: plans the snapshot, whose tables Spark's own Parquet reader reads.

Tables cost no Python at all, so they are as fast as plain Parquet. The data source reads the rest: records that only
log files or only brokers have. Spark reads a table by its retained link, which outlives the table's replacement
(``codec.paths``).
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.files import SegmentFile
from seaweedmq.spark.column_types import spark_type
from seaweedmq.spark.native_types import foreign_part
from seaweedmq.spark.options import RANGES, SparkOptions, parse_options
from seaweedmq.spark.payloads import REFERENCE, reference_metadata
from seaweedmq.spark.source import FORMAT
from seaweedmq.spark.topic_access import chosen_columns, find
from seaweedmq.storage.plan.parquet_plan import ParquetPlan, groups_of, lasting_path, plan_parquet
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.columns import OFFSET, SEGMENT, TIMESTAMP, TOPIC, Column

logger = logging.getLogger(__name__)

_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Number of paths above which Spark lists them in a job of that many tasks: 6.5 s instead of 0.6 s for 1,000."""
_PLACE = {SEGMENT: IntegerType(), OFFSET: LongType(), TIMESTAMP: TimestampType()}
_OF_THE_TAIL = frozenset(
    {
        *("storage", "bootstrap", "topic", "columns", "includeHeaders", "includeReferences"),
        *("startingTimestamp", "endingTimestamp"),
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


def read_native(spark: SparkSession, given: dict[str, str]) -> DataFrame:
    """Return the DataFrame for checked and complete options of a batch read; raises as ``seaweedmq.spark.read``."""
    options = parse_options(given)
    if options.window.ranges is not None:
        raise InvalidArgument(f"option {RANGES!r} is internal: give startingOffsets and endingOffsets")
    found = find(options.location, ends=True)
    columns = chosen_columns(found.snapshot.topic, options.shown)
    why = why_not_native(options, columns)
    if why is not None:
        logger.info("topic %s is read by the Python source: %s", options.topic, why)
    plan = plan_parquet(found, options.window, fail_on_data_loss=options.fail_on_data_loss, with_tables=why is None)
    parts = [*_tables(spark, found, plan, columns, options.window.timestamps)]
    if plan.ranges or why is not None:
        parts.append(spark.read.format(FORMAT).options(**_tail_options(given, plan)).load())
    if not parts:
        nothing = [F.lit(None).cast(spark_type(c)).alias(c.name) for c in columns]
        parts.append(spark.range(0).select(*nothing))
    whole = reduce(DataFrame.unionByName, parts)
    if options.shown.include_references and REFERENCE in whole.columns:
        return whole.withMetadata(REFERENCE, reference_metadata(found.snapshot.topic, options.location.storage))
    return whole


def why_not_native(options: SparkOptions, columns: Sequence[Column]) -> str | None:
    """Return why the data source has to read everything; None if it need not."""
    if options.location.storage is None:
        return "the option 'storage' is missing, so no file can be read"
    if options.min_partitions is not None or options.records_max is not None:
        return "minPartitions and maxRecordsPerPartition divide by records, Spark's own reader divides by bytes"
    for column in columns:
        foreign = foreign_part(column.stored)
        if foreign is not None:
            return f"Spark reads {foreign} of column {column.name!r} differently, or not at all"
    return None


def _tail_options(given: dict[str, str], plan: ParquetPlan) -> dict[str, str]:
    """Return the options that locate the topic and choose columns, with the planned offset ranges."""
    return {n: v for n, v in given.items() if n in _OF_THE_TAIL} | {RANGES: json.dumps(plan.ranges)}


def _tables(
    spark: SparkSession, found: TopicSource, plan: ParquetPlan, columns: Sequence[Column], timestamps: Interval
) -> Iterator[DataFrame]:
    """Yield the DataFrames of the tables, with the columns of the result."""
    kinds = {c.source: spark_type(c) for c in columns} | _PLACE
    needed = [c.source for c in columns if c.source != TOPIC]
    if timestamps.is_bounded:
        needed.append(TIMESTAMP)
    literals = {TOPIC: f"'{found.snapshot.topic.name}'"}
    # As text in one call: a Column takes three calls to the JVM, which together took a third of the planning.
    shown = [f"{literals.get(c.source) or _quoted(c.source)} AS {_quoted(c.name)}" for c in columns]

    def frame(files: Sequence[SegmentFile], sources: Sequence[str], conditions: Sequence[Expression]) -> DataFrame:
        schema = StructType([StructField(s, kinds[s]) for s in dict.fromkeys(sources)])
        paths = [f"file://{found.storage.path(lasting_path(found.storage, file))}" for file in files]
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


def _in_time(timestamps: Interval) -> Iterator[Expression]:
    if timestamps.lo is not None:
        yield F.col(TIMESTAMP) >= F.timestamp_micros(F.lit(timestamps.lo))
    if timestamps.hi is not None:
        yield F.col(TIMESTAMP) < F.timestamp_micros(F.lit(timestamps.hi))


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
