"""The options of the format ``seaweedmq``, checked before anything is read or written.

``OPTIONS`` is the one table of their names. Whoever adds an option adds a line there, and reads its value from what
:func:`check_names` gives.
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
from seaweedmq.storage.plan.window import EARLIEST, Interval, Offsets, ReadWindow


class SparkApi(StrEnum):
    """What a user calls."""

    BATCH = "spark.read"
    STREAM = "spark.readStream"
    WRITE = "df.write"
    """And ``df.writeStream``."""


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
"""Option -> which faces take it. ``startingTimestamp`` and ``endingTimestamp`` take ISO 8601 or microseconds, as the
column has them, ``...OffsetsByTimestamp`` milliseconds, as in Spark's source for Kafka."""
_OF_QUERIES = frozenset({"checkpointlocation", "queryname"})
"""Spark hands on to sinks what is for itself."""
RANGES: Final = "__ranges"
"""``seaweedmq.spark.read`` gives it, no user: JSON of segment -> [[start, end], ...], the offsets that are read and no
others."""
WRITE_ID: Final = "__write"
"""``jobs.import_files`` gives it, no user: what a write is staged under, for who watches it; unlike any other's."""
_BY_LOWER = {name.lower(): name for name in (*OPTIONS, RANGES, WRITE_ID)}
_CATALOG_PREFIX = "option."
"""Tables of the catalog, ``CREATE TABLE ... USING seaweedmq OPTIONS (...)``, give options behind this, sometimes beside
the options themselves, ..."""
_OF_CATALOG = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider", "table_type"}
)
"""... and with them what is reserved for the table itself."""
_OF_NO_READER = (
    "; Spark makes a reader of a table of its catalog without the table's options: give them in the query, FROM t WITH "
    "(storage = '...', topic = '...'), or make it a view, CREATE TEMPORARY VIEW t USING seaweedmq OPTIONS (...)"
)
"""As of Spark 4.3: only when it asks for the schema it gives them."""
_OF_KAFKA = {"kafka.bootstrap.servers": "bootstrap", "subscribe": "topic", "subscribepattern": "topic"}
"""What it calls what is called otherwise here."""
_ONE_EXAMPLE = {"storage": "/mnt/shared/mq", "topic": "shop/orders"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLocation:
    """Which topic, and where it is found."""

    topic: TopicName
    storage: str | None
    """Root URI; None: brokers are asked for everything."""
    bootstrap: str | None
    """Addresses of brokers; None: what is in files is all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """Which columns the user wants to see."""

    columns: tuple[str, ...] | None
    """None: all."""
    include_headers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """What the user of a read asked for."""

    place: TopicLocation
    window: ReadWindow
    shown: ColumnOptions
    starting_times: Offsets | None
    """Microseconds in place of offsets: where the window begins is found by them. None: the window says it."""
    ending_times: Offsets | None
    min_partitions: int | None
    records_max: int | None
    """In a partition."""
    fail_on_data_loss: bool

    @property
    def topic(self) -> TopicName:
        return self.place.topic


def check_names(given: Mapping[str, str], face: SparkApi | None = None) -> dict[str, str]:
    """The options as ``OPTIONS`` spells them; their names are case-insensitive, as everywhere in Spark.

    Args:
        face: what is called; None: not known yet, any will do.

    Raises:
        InvalidArgument: an option is unknown, and the nearest one is named, or not of this face.
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
            raise InvalidArgument("a path is not taken by load() and save(): give options 'storage' and 'topic'")
        known = _BY_LOWER.get(folded)
        if known is None:
            raise InvalidArgument(_unknown(name, face))
        if face is not None and known in OPTIONS and face not in OPTIONS[known]:
            faces = " and ".join(sorted(OPTIONS[known]))
            raise InvalidArgument(f"option {known!r} is not taken by {face}, it is of {faces}: leave it out")
        named[known] = value
    return named


def parse_place(named: Mapping[str, str]) -> TopicLocation:
    """Where to read from or write to, of checked options.

    Raises:
        InvalidArgument: missing, or not a topic's name.
    """
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
    """Read the options of a batch read.

    Raises:
        InvalidArgument: unknown or missing option, or a value that breaks its rule.
    """
    named = check_names(given, SparkApi.BATCH)
    place = parse_place(named)
    for offsets, times in (
        ("startingOffsets", "startingOffsetsByTimestamp"),
        ("endingOffsets", "endingOffsetsByTimestamp"),
    ):
        if offsets in named and times in named:
            raise InvalidArgument(f"options {offsets!r} and {times!r} say the same twice: give one of them")
    starting = parse_offsets("startingOffsets", named.get("startingOffsets", "earliest"), place.topic, absent=EARLIEST)
    if None in (starting.default, *starting.by_segment.values()):
        raise InvalidArgument(
            f"option 'startingOffsets' is {named['startingOffsets'][:100]!r}: a batch read can not begin at latest, "
            "nothing follows it; give earliest or an offset, or use spark.readStream"
        )
    ending = parse_offsets("endingOffsets", named.get("endingOffsets", "latest"), place.topic, absent=None)
    if EARLIEST in (ending.default, *ending.by_segment.values()):
        raise InvalidArgument(
            f"option 'endingOffsets' is {named['endingOffsets'][:100]!r}: a batch read can not end at earliest, "
            "nothing comes before it; give latest or an offset"
        )
    check_order("Offsets", starting, ending)
    timestamps = Interval(
        parse_timestamp("startingTimestamp", named.get("startingTimestamp")),
        parse_timestamp("endingTimestamp", named.get("endingTimestamp")),
    )
    if timestamps.lo is not None and timestamps.hi is not None and timestamps.lo > timestamps.hi:
        raise backwards("Timestamp", named["startingTimestamp"], named["endingTimestamp"])
    starting_times, ending_times = (
        parse_times(name, named[name], place.topic, absent=absent) if name in named else None
        for name, absent in (("startingOffsetsByTimestamp", EARLIEST), ("endingOffsetsByTimestamp", None))
    )
    if starting_times is not None and ending_times is not None:
        check_order("OffsetsByTimestamp", starting_times, ending_times, unit=1_000)
    return SparkOptions(
        place=place,
        window=ReadWindow(
            starting=starting,
            ending=ending,
            timestamps=timestamps,
            ranges=_ranges(named.get(RANGES)),
        ),
        shown=parse_shown(named),
        starting_times=starting_times,
        ending_times=ending_times,
        min_partitions=parse_count(named, "minPartitions"),
        records_max=parse_count(named, "maxRecordsPerPartition"),
        fail_on_data_loss=parse_bool(named, "failOnDataLoss", default=True),
    )


def parse_shown(named: Mapping[str, str]) -> ColumnOptions:
    """The columns of a read, of checked options. Raises InvalidArgument."""
    columns = parse_columns(named.get("columns"))
    include_headers = parse_bool(named, "includeHeaders", default=True)
    if not include_headers and columns is not None and "headers" in map(str.lower, columns):
        raise InvalidArgument("option 'columns' names headers and 'includeHeaders' is false: drop one of them")
    return ColumnOptions(columns=columns, include_headers=include_headers)


def parse_bool(named: Mapping[str, str], option: str, *, default: bool) -> bool:
    """``true`` or ``false``, in any case. Raises InvalidArgument."""
    text = named.get(option, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"option {option!r} is {text[:100]!r}: give true or false")
    return text == "true"


def parse_count(named: Mapping[str, str], option: str) -> int | None:
    """A whole number from 1 up; None if it is not given. Raises InvalidArgument."""
    text = named.get(option)
    if text is None:
        return None
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 18 and int(stripped) > 0):
        raise InvalidArgument(f"option {option!r} is {text[:100]!r}: give a whole number from 1 up")
    return int(stripped)


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between, or a JSON list of names as they are; None: all. Raises InvalidArgument."""
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
    """The names of a JSON list; None: it is none."""
    try:
        names = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _unknown(name: str, face: SparkApi | None) -> str:
    names = [known for known, faces in OPTIONS.items() if face is None or face in faces]
    folded = _OF_KAFKA.get(name.lower(), name).lower()
    nearest = difflib.get_close_matches(folded, [n.lower() for n in names], 1)
    meant = f"did you mean {_BY_LOWER[nearest[0]]!r}? There are" if nearest else "there are"
    return f"option {name!r} is unknown: {meant} {', '.join(names)}"


def _ranges(text: str | None) -> Mapping[int, tuple[tuple[int, int], ...]] | None:
    if text is None:
        return None
    return {int(segment): tuple((lo, hi) for lo, hi in pairs) for segment, pairs in json.loads(text).items()}
