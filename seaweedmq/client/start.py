"""Conversion of start positions and timestamps from the forms that users pass."""

from datetime import datetime
from typing import Literal, TypeAlias

from seaweedmq.codec.timestamps import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, us_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind

StartAt: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""``"earliest"``, ``"latest"``, an offset from 0 up, or a datetime with a time zone."""
Timestamp: TypeAlias = datetime | int
"""A datetime with a time zone, or microseconds since 1970 UTC."""


def start_of(start: StartAt) -> Start:
    """Convert a start position; InvalidArgument if it is not a ``StartAt``."""
    if start == "earliest":
        return EARLIEST
    if start == "latest":
        return LATEST
    if isinstance(start, datetime):
        return Start(StartKind.TIME, to_us(start))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return Start(StartKind.OFFSET, start)
    raise InvalidArgument(f'start={start!r:.100} is not "earliest", "latest", an offset from 0 up, or a datetime')


def to_us(timestamp: Timestamp) -> int:
    """Convert a timestamp to microseconds since 1970 UTC; InvalidArgument without time zone, or out of range."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidArgument(f"timestamp {timestamp.isoformat()} has no time zone: add one, such as tzinfo=UTC")
        return us_of(timestamp)
    if isinstance(timestamp, int) and TIMESTAMP_MIN_US <= timestamp <= TIMESTAMP_MAX_US:
        return int(timestamp)
    raise InvalidArgument(
        f"timestamp {timestamp!r:.100} is neither a datetime nor microseconds since 1970 of the years 1 to 9999"
    )
