"""The options of ``spark.readStream.format("seaweedmq")``, checked before anything is read. Names are those of Kafka's
source where that has the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.options import (
    ColumnOptions,
    SparkApi,
    check_names,
    parse_bool,
    parse_count,
    parse_place,
    parse_shown,
)
from seaweedmq.storage.plan.positions import parse_offsets, parse_timestamp
from seaweedmq.storage.plan.window import EARLIEST, Offsets


class LimitKind(StrEnum):
    """What a limit of a batch counts, by the option's name."""

    RECORDS = "maxRecordsPerTrigger"
    BYTES = "maxBytesPerTrigger"
    FILES = "maxFilesPerTrigger"


_LIMITS = {**{str(kind): kind for kind in LimitKind}, "maxOffsetsPerTrigger": LimitKind.RECORDS}
_FILES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What the user asked of a stream."""

    storage: str
    """Root URI."""
    topic: TopicName
    shown: ColumnOptions
    starting: Offsets
    """Of a query that begins; one that goes on has a checkpoint. 0: what retention kept, wherever that begins."""
    starting_us: int | None
    """In place of ``starting``: the first record at or after this time, microseconds since 1970 UTC."""
    bootstrap: str | None
    """Brokers that tell how far open segments are committed; None: what is in tables is read of these."""
    limit: tuple[LimitKind, int] | None
    """Of one batch."""
    fail_on_data_loss: bool
    partitions_min: int
    partition_records_max: int | None


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Read the options; their names are case-insensitive.

    Raises:
        InvalidArgument: an unknown or missing option, one of a batch read, two limits, or a value that breaks its rule.
    """
    named = check_names(given, SparkApi.STREAM)
    place = parse_place(named)
    if place.storage is None:
        raise InvalidArgument(
            "option 'storage' is missing: a stream reads the files of the shared storage, and asks 'bootstrap' only "
            "how far they are committed; give the root of the storage, too"
        )
    if "startingOffsets" in named and "startingTimestamp" in named:
        raise InvalidArgument("options 'startingOffsets' and 'startingTimestamp' both say where to begin: give one")
    starting = parse_offsets("startingOffsets", named.get("startingOffsets", "latest"), place.topic, absent=EARLIEST)
    return StreamOptions(
        storage=place.storage,
        topic=place.topic,
        shown=parse_shown(named),
        starting=Offsets(
            default=_begin(starting.default),
            by_segment={segment: _begin(offset) for segment, offset in starting.by_segment.items()},
        ),
        starting_us=parse_timestamp("startingTimestamp", named.get("startingTimestamp")),
        bootstrap=place.bootstrap,
        limit=_limit(named),
        fail_on_data_loss=parse_bool(named, "failOnDataLoss", default=True),
        partitions_min=parse_count(named, "minPartitions") or 0,
        partition_records_max=parse_count(named, "maxRecordsPerPartition"),
    )


def _begin(offset: int | None) -> int | None:
    return 0 if offset == EARLIEST else offset


def _limit(named: Mapping[str, str]) -> tuple[LimitKind, int] | None:
    given = [name for name in _LIMITS if name in named]
    if len(given) > 1:
        raise InvalidArgument(
            f"options {' and '.join(map(repr, sorted(given)))} are both given: Spark holds a batch to one limit, so "
            "choose records, bytes or files"
        )
    if not given:
        return None
    kind, count = _LIMITS[given[0]], parse_count(named, given[0])
    if count is None:
        raise AssertionError(f"{given[0]} is given, and has no value")
    return kind, min(count, _FILES_MAX) if kind is LimitKind.FILES else count
