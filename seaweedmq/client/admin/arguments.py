"""Checked arguments of administration."""

from datetime import timedelta
from typing import TypeVar

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import Durability, Scaling, TopicName

LIMIT_MAX = (1 << 63) - 1
"""Largest limit in bytes, seconds or records per second that a call can carry."""
N = TypeVar("N", int, float)


def topic_name(topic: "str | TopicName") -> TopicName:
    """Return the name of a topic, which is a ``TopicName`` or ``"namespace/name"``."""
    return topic if isinstance(topic, TopicName) else TopicName.parse(topic)


def durability_of(value: "str | Durability | None") -> Durability | None:
    """Return ``value`` as a ``Durability``."""
    if value is None:
        return None
    try:
        return Durability(value)
    except ValueError:
        raise InvalidArgument(f"durability {value!r} is unknown: use replicated or stored") from None


def scaling_of(value: "str | Scaling | None") -> Scaling | None:
    """Return ``value`` as a ``Scaling``."""
    if value is None:
        return None
    try:
        return Scaling(value)
    except ValueError:
        raise InvalidArgument(f"scaling {value!r} is unknown: use auto or fixed") from None


def retention_s_of(value: "float | timedelta | None") -> float | None:
    """Return a retention in seconds."""
    return checked_limit("retention", value.total_seconds() if isinstance(value, timedelta) else value)


def checked_limit(name: str, value: N | None) -> N | None:
    """Return ``value``; InvalidArgument, with the argument's name, if it exceeds the 64 bits of the wire format."""
    if value is not None and not -LIMIT_MAX <= value <= LIMIT_MAX:
        raise InvalidArgument(f"{name} is not a number up to {LIMIT_MAX}: use a smaller number")
    return value
