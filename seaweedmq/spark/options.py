"""The options of ``spark.read.format("seaweedmq")``, checked before anything is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from seaweedmq.codec.moment import us_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.window import Interval, Offsets, ReadWindow

NAMES = (
    "storage",
    "topic",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "columns",
)
_BY_LOWER = {name.lower(): name for name in NAMES}
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """What the user asked for."""

    storage: str
    """Root URI."""
    topic: TopicName
    window: ReadWindow
    columns: tuple[str, ...] | None
    """None: all."""


def parse_options(given: Mapping[str, str]) -> SparkOptions:
    """Read the options; their names are case-insensitive, as everywhere in Spark.

    Raises:
        InvalidArgument: unknown or missing option, or a value that breaks its rule.
    """
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() == "bootstrap":
            raise InvalidArgument(
                "option 'bootstrap' is not supported: what is in no file yet can not be read; give 'storage', the root "
                "of the shared storage, to read what is written"
            )
        if name.lower() == "path":
            raise InvalidArgument("a path is not taken by load(): give options 'storage' and 'topic', then load()")
        known = _BY_LOWER.get(name.lower())
        if known is None:
            raise InvalidArgument(f"option {name!r} is unknown: there are {', '.join(NAMES)}")
        options[known] = value
    for name, example in (("storage", "/mnt/shared/mq"), ("topic", "shop/orders")):
        if not options.get(name):
            raise InvalidArgument(f"option {name!r} is missing: give it like .option({name!r}, {example!r})")
    return SparkOptions(
        storage=options["storage"],
        topic=TopicName.parse(options["topic"]),
        window=ReadWindow(
            starting=_offsets("startingOffsets", options.get("startingOffsets", "earliest"), absent=0),
            ending=_offsets("endingOffsets", options.get("endingOffsets", "latest"), absent=None),
            timestamps=Interval(
                _timestamp("startingTimestamp", options.get("startingTimestamp")),
                _timestamp("endingTimestamp", options.get("endingTimestamp")),
            ),
        ),
        columns=_columns(options.get("columns")),
    )


def _offsets(option: str, text: str, absent: int | None) -> Offsets:
    """``absent``: the value for segments that a JSON object does not name."""
    rule = f'option {option!r} is {text[:100]!r}: give earliest, latest, an offset from 0, or JSON like {{"3": 1000}}'
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Offsets(default=_offset(stripped, rule))
    try:
        named = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{rule} ({error})") from error
    by_segment = {}
    for segment, value in named.items():
        if not (segment.isascii() and segment.isdigit()) or isinstance(value, bool) or not isinstance(value, int | str):
            raise InvalidArgument(f"{rule} (not {segment!r}: {value!r})")
        by_segment[int(segment)] = _offset(str(value), rule)
    return Offsets(default=absent, by_segment=by_segment)


def _offset(text: str, rule: str) -> int | None:
    if text == "earliest":
        return 0
    if text == "latest":
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _OFFSET_MAX:
        raise InvalidArgument(rule)
    return int(text)


def _timestamp(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    stripped = text.strip()
    if stripped.removeprefix("-").isascii() and stripped.removeprefix("-").isdigit() and len(stripped) > 8:
        number = int(stripped)
        if abs(number) <= _OFFSET_MAX:
            return number
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidArgument(
            f"option {option!r} is {text[:100]!r}: give ISO 8601 like 2026-01-31T12:00:00Z (UTC unless it says "
            "otherwise), or microseconds since 1970"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return us_of(moment)


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InvalidArgument(f"option 'columns' is {text[:100]!r}: give names with commas between, like offset,value")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"option 'columns' names {', '.join(twice)} twice: give every column once")
    return names
