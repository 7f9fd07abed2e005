"""Options of ``spark.readStream.format("seaweedmq")``, checked before anything is read.

Names are those of Spark's Kafka source where it has the same option.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.spark import options
from seaweedmq.storage.plan.positions import parse_offsets, parse_timestamp
from seaweedmq.storage.plan.window import EARLIEST, Offsets


class LimitKind(StrEnum):
    """The unit of a batch's limit; the value is the option's name."""

    RECORDS = "maxRecordsPerTrigger"
    BYTES = "maxBytesPerTrigger"
    FILES = "maxFilesPerTrigger"


_LIMITS = {**{str(kind): kind for kind in LimitKind}, "maxOffsetsPerTrigger": LimitKind.RECORDS}
_FILES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a stream."""

    storage: str
    """Root URI."""
    topic: TopicName
    shown: options.ColumnOptions
    starting: Offsets
    """First offsets of a query without a checkpoint; 0 is the earliest retained offset."""
    starting_us: int | None
    """Time in microseconds since 1970 UTC that replaces ``starting``: the first record at or after it."""
    bootstrap: str | None
    """Brokers that report the end offsets of open segments; None reads these up to the end of their tables."""
    limit: tuple[LimitKind, int] | None
    """Limit of one batch."""
    fail_on_data_loss: bool
    partitions_min: int
    partition_records_max: int | None


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream; their names are case-insensitive.

    InvalidArgument is raised for an option that is unknown, missing or one of a batch read, for two limits, and for a
    value that breaks its rule.
    """
    named = options.check_names(given, options.SparkApi.STREAM)
    location = options.parse_location(named)
    if location.storage is None:
        raise InvalidArgument(
            "option 'storage' is missing: a stream reads the files of the shared storage, and queries 'bootstrap' "
            "only for end offsets; give the root of the storage"
        )
    if "startingOffsets" in named and "startingTimestamp" in named:
        raise InvalidArgument("options 'startingOffsets' and 'startingTimestamp' exclude each other: give one")
    starting = parse_offsets("startingOffsets", named.get("startingOffsets", "latest"), location.topic, absent=EARLIEST)
    return StreamOptions(
        storage=location.storage,
        topic=location.topic,
        shown=options.parse_shown(named),
        starting=Offsets(
            default=_begin(starting.default),
            by_segment={segment: _begin(offset) for segment, offset in starting.by_segment.items()},
        ),
        starting_us=parse_timestamp("startingTimestamp", named.get("startingTimestamp")),
        bootstrap=location.bootstrap,
        limit=_limit(named),
        fail_on_data_loss=options.parse_bool(named, "failOnDataLoss", default=True),
        partitions_min=options.parse_count(named, "minPartitions") or 0,
        partition_records_max=options.parse_count(named, "maxRecordsPerPartition"),
    )


def _begin(offset: int | None) -> int | None:
    return 0 if offset == EARLIEST else offset


def _limit(named: Mapping[str, str]) -> tuple[LimitKind, int] | None:
    given = [name for name in _LIMITS if name in named]
    if len(given) > 1:
        raise InvalidArgument(
            f"options {' and '.join(map(repr, sorted(given)))} exclude each other: Spark applies one limit to a batch, "
            "so choose records, bytes or files"
        )
    if not given:
        return None
    kind, count = _LIMITS[given[0]], options.parse_count(named, given[0])
    assert count is not None, f"{given[0]} is given without a value"
    return kind, min(count, _FILES_MAX) if kind is LimitKind.FILES else count
