"""Options of the format ``seaweedmq``, checked before anything is read or written.

``OPTIONS`` is the only table of their names. A new option needs a line there; its value comes from :func:`check_names`.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.plan.positions import backwards, check_order, parse_offsets, parse_times, parse_timestamp
from seaweedmq.storage.plan.window import EARLIEST, Interval, ReadWindow


class SparkApi(StrEnum):
    """The Spark API that takes an option."""

    BATCH = "spark.read"
    STREAM = "spark.readStream"
    WRITE = "df.write"
    """Also ``df.writeStream``."""


_READ = frozenset({SparkApi.BATCH, SparkApi.STREAM})
_BATCH = frozenset({SparkApi.BATCH})
_STREAM = frozenset({SparkApi.STREAM})
_WRITE = frozenset({SparkApi.WRITE})
_EVERY = frozenset(SparkApi)

OPTIONS: Final[Mapping[str, frozenset[SparkApi]]] = MappingProxyType(
    {
        "storage": _EVERY,
        "bootstrap": _EVERY,
        "topic": _EVERY,
        "startingOffsets": _READ,
        "endingOffsets": _BATCH,
        "startingTimestamp": _READ,
        "endingTimestamp": _BATCH,
        "startingOffsetsByTimestamp": _BATCH,
        "endingOffsetsByTimestamp": _BATCH,
        "minPartitions": _READ,
        "maxRecordsPerPartition": _READ,
        "failOnDataLoss": _READ,
        "includeHeaders": _READ,
        "includeReferences": _READ,
        "columns": _READ,
        "maxRecordsPerTrigger": _STREAM,
        "maxOffsetsPerTrigger": _STREAM,
        "maxBytesPerTrigger": _STREAM,
        "maxFilesPerTrigger": _STREAM,
        "key": _WRITE,
        "timestamp": _WRITE,
        "repeatUnknown": _WRITE,
    }
)
"""Option -> the APIs that take it.

``startingTimestamp`` and ``endingTimestamp`` take ISO 8601 or microseconds, like the column. ``...OffsetsByTimestamp``
takes milliseconds, like Spark's Kafka source.
"""
_OF_QUERIES = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options, which it also passes to sinks."""
RANGES: Final = "__ranges"
"""Internal option that ``seaweedmq.spark.read`` sets: the only offsets to read, as JSON.

The JSON maps a segment to ``[[start, end], ...]``.
"""
WRITE_ID: Final = "__write"
"""Internal option that ``jobs.import_files`` sets: the unique id under which a write is staged and watched."""
_BY_LOWER = {name.lower(): name for name in (*OPTIONS, RANGES, WRITE_ID)}
_CATALOG_PREFIX = "option."
"""Prefix of options that a catalog table gives (``CREATE TABLE ... USING seaweedmq OPTIONS (...)``).

The table sometimes gives the options without the prefix as well.
"""
_OF_CATALOG = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider", "table_type"}
)
"""Properties that a catalog reserves for the table itself and passes with the options."""
_OF_NO_READER = (
    "; Spark creates the reader of a catalog table without the table's options: give them in the query, FROM t WITH "
    "(storage = '...', topic = '...'), or make it a view, CREATE TEMPORARY VIEW t USING seaweedmq OPTIONS (...)"
)
"""Remedy for Spark 4.3 and older, which pass a table's options only to the request for its schema."""
_OF_KAFKA = {"kafka.bootstrap.servers": "bootstrap", "subscribe": "topic", "subscribepattern": "topic"}
"""Names in Spark's Kafka source -> names here."""
_ONE_EXAMPLE = {"storage": "/mnt/shared/mq", "topic": "shop/orders"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLocation:
    """The name of a topic and its location."""

    topic: TopicName
    storage: str | None
    """Root URI; None if brokers serve all records."""
    bootstrap: str | None
    """Addresses of brokers; None if only files are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """The choice of columns."""

    columns: tuple[str, ...] | None
    """Names of the columns in order; None for all."""
    include_headers: bool
    include_references: bool = False
    """Whether there is the column ``reference`` of payloads by reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options of a batch read."""

    location: TopicLocation
    window: ReadWindow
    shown: ColumnOptions
    min_partitions: int | None
    records_max: int | None
    """Maximum number of records per partition."""
    fail_on_data_loss: bool

    @property
    def topic(self) -> TopicName:
        """The name of the topic."""
        return self.location.topic


def check_names(given: Mapping[str, str], api: SparkApi | None = None) -> dict[str, str]:
    """Return the options with the names of ``OPTIONS``; given names are case-insensitive, as in Spark.

    ``api`` is the API that is called; None accepts the options of all, since it is not known yet. The InvalidArgument
    of an unknown option suggests the nearest name.
    """
    named: dict[str, str] = {}
    folded_names = {name.lower() for name in given}
    is_table = "provider" in folded_names or any(name.startswith(_CATALOG_PREFIX) for name in folded_names)
    for name, value in given.items():
        folded = name.lower()
        if folded in _OF_QUERIES or (is_table and folded in _OF_CATALOG):
            continue
        if folded.startswith(_CATALOG_PREFIX):
            folded = folded.removeprefix(_CATALOG_PREFIX)
            if folded in folded_names:
                continue
        if folded == "path":
            raise InvalidArgument("load() and save() take no path: give options 'storage' and 'topic'")
        known = _BY_LOWER.get(folded)
        if known is None:
            raise InvalidArgument(_unknown(name, api))
        if api is not None and known in OPTIONS and api not in OPTIONS[known]:
            apis = " and ".join(sorted(OPTIONS[known]))
            raise InvalidArgument(f"option {known!r} is not an option of {api}, only of {apis}: leave it out")
        named[known] = value
    return named


def parse_location(named: Mapping[str, str]) -> TopicLocation:
    """Return the location of a topic from checked options; InvalidArgument if one is missing."""
    wanted = ("topic",) if named.get("bootstrap") else ("storage", "topic")
    for name in wanted:
        if not named.get(name):
            also = ", or 'bootstrap', the addresses of brokers" if name == "storage" else ""
            also += "" if named else _OF_NO_READER
            raise InvalidArgument(
                f"option {name!r} is missing: give it like .option({name!r}, {_ONE_EXAMPLE[name]!r}){also}"
            )
    return TopicLocation(
        topic=TopicName.parse(named["topic"]),
        storage=named.get("storage") or None,
        bootstrap=named.get("bootstrap") or None,
    )


def parse_options(given: Mapping[str, str]) -> SparkOptions:
    """Parse the options of a batch read; InvalidArgument if one is unknown or missing, or a value breaks its rule."""
    named = check_names(given, SparkApi.BATCH)
    location = parse_location(named)
    for offsets, times in (
        ("startingOffsets", "startingOffsetsByTimestamp"),
        ("endingOffsets", "endingOffsetsByTimestamp"),
    ):
        if offsets in named and times in named:
            raise InvalidArgument(f"options {offsets!r} and {times!r} exclude each other: give one of them")
    starting = parse_offsets(
        "startingOffsets", named.get("startingOffsets", "earliest"), location.topic, absent=EARLIEST
    )
    if None in (starting.default, *starting.by_segment.values()):
        raise InvalidArgument(
            f"option 'startingOffsets' is {named['startingOffsets'][:100]!r}: a batch read cannot begin at latest, "
            "no record follows it; give earliest or an offset, or use spark.readStream"
        )
    ending = parse_offsets("endingOffsets", named.get("endingOffsets", "latest"), location.topic, absent=None)
    if EARLIEST in (ending.default, *ending.by_segment.values()):
        raise InvalidArgument(
            f"option 'endingOffsets' is {named['endingOffsets'][:100]!r}: a batch read cannot end at earliest, "
            "no record precedes it; give latest or an offset"
        )
    check_order("Offsets", starting, ending)
    timestamps = Interval(
        parse_timestamp("startingTimestamp", named.get("startingTimestamp")),
        parse_timestamp("endingTimestamp", named.get("endingTimestamp")),
    )
    if timestamps.lo is not None and timestamps.hi is not None and timestamps.lo > timestamps.hi:
        raise backwards("Timestamp", named["startingTimestamp"], named["endingTimestamp"])
    starting_times, ending_times = (
        parse_times(name, named[name], location.topic, absent=absent) if name in named else None
        for name, absent in (("startingOffsetsByTimestamp", EARLIEST), ("endingOffsetsByTimestamp", None))
    )
    if starting_times is not None and ending_times is not None:
        check_order("OffsetsByTimestamp", starting_times, ending_times, unit=1_000)
    return SparkOptions(
        location=location,
        window=ReadWindow(
            starting=starting,
            ending=ending,
            starting_times=starting_times,
            ending_times=ending_times,
            timestamps=timestamps,
            ranges=_ranges(named.get(RANGES)),
        ),
        shown=parse_shown(named),
        min_partitions=parse_count(named, "minPartitions"),
        records_max=parse_count(named, "maxRecordsPerPartition"),
        fail_on_data_loss=parse_bool(named, "failOnDataLoss", default=True),
    )


def parse_shown(named: Mapping[str, str]) -> ColumnOptions:
    """Parse the choice of columns from checked options."""
    columns = parse_columns(named.get("columns"))
    include_headers = parse_bool(named, "includeHeaders", default=True)
    if not include_headers and columns is not None and "headers" in map(str.lower, columns):
        raise InvalidArgument("option 'columns' names headers and 'includeHeaders' is false: drop one of them")
    include_references = parse_bool(named, "includeReferences", default=False)
    return ColumnOptions(columns=columns, include_headers=include_headers, include_references=include_references)


def parse_bool(named: Mapping[str, str], option: str, *, default: bool) -> bool:
    """Parse ``true`` or ``false``, case-insensitive; InvalidArgument for anything else."""
    text = named.get(option, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"option {option!r} is {text[:100]!r}: give true or false")
    return text == "true"


def parse_count(named: Mapping[str, str], option: str) -> int | None:
    """Parse a whole number from 1; None if the option is not given, InvalidArgument for anything else."""
    text = named.get(option)
    if text is None:
        return None
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 18 and int(stripped) > 0):
        raise InvalidArgument(f"option {option!r} is {text[:100]!r}: give a whole number from 1")
    return int(stripped)


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Parse column names, separated by commas or as a JSON list, none empty or repeated; None for all."""
    if text is None:
        return None
    names = _listed(text) or tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InvalidArgument(
            f"option 'columns' is {text[:100]!r}: give names with commas between, like offset,value, or a JSON list"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"option 'columns' names {', '.join(twice)} twice: give every column once")
    return names


def _listed(text: str) -> tuple[str, ...] | None:
    """Return the names of a JSON list; None if the text is not one."""
    try:
        names = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _unknown(name: str, api: SparkApi | None) -> str:
    names = [known for known, apis in OPTIONS.items() if api is None or api in apis]
    folded = _OF_KAFKA.get(name.lower(), name).lower()
    nearest = difflib.get_close_matches(folded, [n.lower() for n in names], 1)
    meant = f"did you mean {_BY_LOWER[nearest[0]]!r}? Options are" if nearest else "options are"
    return f"option {name!r} is unknown: {meant} {', '.join(names)}"


def _ranges(text: str | None) -> Mapping[int, tuple[tuple[int, int], ...]] | None:
    if text is None:
        return None
    return {int(segment): tuple((lo, hi) for lo, hi in pairs) for segment, pairs in json.loads(text).items()}
