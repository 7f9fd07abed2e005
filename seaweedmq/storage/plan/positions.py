"""Parsers of offsets and times in options, which also take the words, numbers and JSON of ``spark-sql-kafka``."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from seaweedmq.codec.timestamps import moment_text, us_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.plan.window import EARLIEST, Offsets

_OFFSET_MAX = 2**63 - 1
_EARLIEST_WORDS = frozenset({"earliest", "-2"})
_LATEST_WORDS = frozenset({"latest", "-1"})
_SHOWN_MAX = 100
_AMBIGUOUS = {9: "seconds", 10: "seconds", 12: "milliseconds", 13: "milliseconds"}
"""Number of digits -> the likely unit, of numbers that are a current date in that unit.

As microseconds since 1970, such numbers are a time early in 1970.
"""
_US_OF = {"seconds": 1_000_000, "milliseconds": 1_000}


def parse_offsets(option: str, text: str, topic: TopicName, *, absent: int | None) -> Offsets:
    """Parse ``earliest``, ``latest``, an offset, or JSON by segment.

    In JSON, -2 is earliest and -1 is latest. The JSON may be nested under the topic's name, as in Kafka's ``{"orders":
    {"0": 5}}``. Segments that JSON does not name get ``absent``: EARLIEST, or None for latest. Raises InvalidArgument
    if the text is anything else.
    """
    rule = (
        f"option {option!r} is {text[:_SHOWN_MAX]!r}: give earliest, latest, an offset from 0, or JSON like "
        f'{{"3": 1000}}'
    )
    stripped = text.strip()
    if not stripped.startswith("{"):
        if stripped.startswith("-"):
            raise InvalidArgument(rule)
        return Offsets(default=_offset(stripped, rule))
    return Offsets(default=absent, by_segment=_by_segment(stripped, topic, rule, _offset))


def check_order(what: str, starting: Offsets, ending: Offsets, *, unit: int = 1) -> None:
    """Raise InvalidArgument if an end precedes its start; ``what`` ends the option names, ``unit`` scales numbers."""
    for number in (None, *sorted(starting.by_segment.keys() | ending.by_segment.keys())):
        start, end = (o.default if number is None else o.of(number) for o in (starting, ending))
        if start is not None and end is not None and start > end:
            where = "" if number is None else f" for segment {number}"
            raise backwards(what, start // unit, f"{end // unit}{where}")


def backwards(what: str, start: object, end: object) -> InvalidArgument:
    """Return the error for options whose end lies before the start."""
    return InvalidArgument(
        f"options 'starting{what}' and 'ending{what}' are {start} and {end}, and the exclusive end lies "
        "before the start: give a higher end"
    )


def parse_times(option: str, text: str, topic: TopicName, *, absent: int | None) -> Offsets:
    """Parse milliseconds since 1970 UTC, a number or JSON as in :func:`parse_offsets`, into microseconds."""
    rule = (
        f"option {option!r} is {text[:_SHOWN_MAX]!r}: give milliseconds since 1970, or JSON of them by segment like "
        f'{{"3": 1767225600000}}'
    )
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Offsets(default=_milliseconds(stripped, rule))
    return Offsets(default=absent, by_segment=_by_segment(stripped, topic, rule, _milliseconds))


def parse_timestamp(option: str, text: str | None) -> int | None:
    """Parse ISO 8601 (UTC without an offset) or microseconds since 1970 into microseconds.

    Raises InvalidArgument if the text is anything else, or a number that is probably seconds, or milliseconds as in
    Spark's Kafka source.
    """
    if text is None:
        return None
    stripped = text.strip()
    if stripped.removeprefix("-").isascii() and stripped.removeprefix("-").isdigit() and len(stripped) > 8:
        number = int(stripped)
        _reject_ambiguous(option, number)
        if abs(number) <= _OFFSET_MAX:
            return number
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidArgument(
            f"option {option!r} is {text[:_SHOWN_MAX]!r}: give ISO 8601 like 2026-01-31T12:00:00Z (UTC unless it has "
            "an offset), or microseconds since 1970"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return us_of(moment)


def _reject_ambiguous(option: str, number: int) -> None:
    """Raise for a number in another unit: it would mean a time in 1970, and read everything or nothing."""
    unit = _AMBIGUOUS.get(len(str(abs(number))))
    if unit is not None:
        as_us, as_unit = (moment_text(us) for us in (number, number * _US_OF[unit]))
        raise InvalidArgument(
            f"option {option!r} is {number}: numbers are microseconds since 1970, so this is {as_us}, and as "
            f"{unit} it would be {as_unit}; give microseconds, or the time in ISO 8601"
        )


def _by_segment(
    text: str, topic: TopicName, rule: str, value_of: Callable[[str, str], int | None]
) -> dict[int, int | None]:
    try:
        named = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{rule} ({error})") from error
    if len(named) == 1 and isinstance(next(iter(named.values())), dict):
        (of, named) = next(iter(named.items()))
        if of not in (str(topic), topic.name):
            raise InvalidArgument(f"{rule} (topic {of!r} is not the topic to read, {topic})")
    found = {}
    for segment, value in named.items():
        if not (segment.isascii() and segment.isdigit()) or isinstance(value, bool) or not isinstance(value, int | str):
            raise InvalidArgument(f"{rule} (not {segment!r}: {value!r})")
        found[int(segment)] = value_of(str(value), rule)
    return found


def _offset(text: str, rule: str) -> int | None:
    if text in _EARLIEST_WORDS:
        return EARLIEST
    if text in _LATEST_WORDS:
        return None
    return _number(text, rule)


def _milliseconds(text: str, rule: str) -> int:
    milliseconds = _number(text, rule)
    if milliseconds > _OFFSET_MAX // 1_000:
        raise InvalidArgument(rule)
    return milliseconds * 1_000


def _number(text: str, rule: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _OFFSET_MAX:
        raise InvalidArgument(rule)
    return int(text)
