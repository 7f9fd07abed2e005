"""Offsets and times as users write them in options: the words, numbers and JSON that ``spark-sql-kafka`` takes, too."""

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
_MISTAKABLE = {9: "seconds", 10: "seconds", 12: "milliseconds", 13: "milliseconds"}
"""Digits of a number of these since 1970 that is a day of ours, while as microseconds it is one of early 1970."""
_US_OF = {"seconds": 1_000_000, "milliseconds": 1_000}


def parse_offsets(option: str, text: str, topic: TopicName, *, absent: int | None) -> Offsets:
    """``earliest``, ``latest``, an offset, or JSON by segment (-2: earliest, -1: latest), which may stand under the
    topic's name as in Kafka's ``{"orders": {"0": 5}}``.

    Args:
        absent: the value for segments that JSON does not name: EARLIEST, or None for latest.

    Raises:
        InvalidArgument: something else.
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
    """Raise InvalidArgument if a segment would end before it begins: whatever it holds, that is no row.

    Args:
        what: the names of both options begin with ``starting`` and ``ending``, and end so.
        unit: how many of what they were parsed to a user calls one.
    """
    for number in (None, *sorted(starting.by_segment.keys() | ending.by_segment.keys())):
        start, end = (o.default if number is None else o.of(number) for o in (starting, ending))
        if start is not None and end is not None and start > end:
            where = "" if number is None else f" for segment {number}"
            raise backwards(what, start // unit, f"{end // unit}{where}")


def backwards(what: str, start: object, end: object) -> InvalidArgument:
    """The error of options that ask for an end before the start."""
    return InvalidArgument(
        f"options 'starting{what}' and 'ending{what}' say {start} and {end}: the end, which is not read any more, lies "
        "before the start; give a higher one"
    )


def parse_times(option: str, text: str, topic: TopicName, *, absent: int | None) -> Offsets:
    """Milliseconds since 1970 UTC, one for all segments or JSON by segment; as microseconds.

    Args:
        absent: as in :func:`parse_offsets`.

    Raises:
        InvalidArgument: something else.
    """
    rule = (
        f"option {option!r} is {text[:_SHOWN_MAX]!r}: give milliseconds since 1970, or JSON of them by segment like "
        f'{{"3": 1767225600000}}'
    )
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Offsets(default=_milliseconds(stripped, rule))
    return Offsets(default=absent, by_segment=_by_segment(stripped, topic, rule, _milliseconds))


def parse_timestamp(option: str, text: str | None) -> int | None:
    """ISO 8601, UTC unless it says otherwise, or microseconds since 1970; as microseconds.

    Raises:
        InvalidArgument: something else, or a number that is likely to be of seconds, or of milliseconds as in Spark's
            source for Kafka.
    """
    if text is None:
        return None
    stripped = text.strip()
    if stripped.removeprefix("-").isascii() and stripped.removeprefix("-").isdigit() and len(stripped) > 8:
        number = int(stripped)
        _refuse_mistakable(option, number)
        if abs(number) <= _OFFSET_MAX:
            return number
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidArgument(
            f"option {option!r} is {text[:_SHOWN_MAX]!r}: give ISO 8601 like 2026-01-31T12:00:00Z (UTC unless it says "
            "otherwise), or microseconds since 1970"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return us_of(moment)


def _refuse_mistakable(option: str, number: int) -> None:
    """A number in another unit would be taken for a moment of 1970, and everything, or nothing, be read."""
    unit = _MISTAKABLE.get(len(str(abs(number))))
    if unit is not None:
        as_us, as_unit = (moment_text(us) for us in (number, number * _US_OF[unit]))
        raise InvalidArgument(
            f"option {option!r} is {number}: numbers are microseconds since 1970, so that this is {as_us}, and as "
            f"{unit} it would be {as_unit}; give microseconds, or the time that is meant in ISO 8601"
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
            raise InvalidArgument(f"{rule} (topic {of!r} is not the one that is read, {topic})")
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
