"""Checked arguments of administration."""

from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName

LIMIT_MAX = (1 << 63) - 1
"""Largest limit in bytes, seconds or records per second that a call can carry."""
N = TypeVar("N", int, float)
E = TypeVar("E", bound=StrEnum)


def topic_name(topic: "str | TopicName") -> TopicName:
    """Return the name of a topic, given as one or as ``"namespace/name"``; InvalidArgument for any other text."""
    return topic if isinstance(topic, TopicName) else TopicName.parse(topic)


def member_of(kind: type[E], value: "str | E | None") -> E | None:
    """Return the member of an enum that ``value`` is or names; None for None."""
    try:
        return None if value is None else kind(value)
    except ValueError:
        raise InvalidArgument(f"{kind.__name__.lower()} {value!r} is unknown: use {' or '.join(kind)}") from None


def retention_s_of(value: "float | timedelta | None") -> float | None:
    """Return a retention in seconds."""
    return checked_limit("retention", value.total_seconds() if isinstance(value, timedelta) else value)


def checked_limit(name: str, value: N | None) -> N | None:
    """Return ``value``; InvalidArgument, with the argument's name, if it exceeds the 64 bits of the wire format."""
    if value is not None and not -LIMIT_MAX <= value <= LIMIT_MAX:
        raise InvalidArgument(f"{name} is not a number up to {LIMIT_MAX}: use a smaller number")
    return value
