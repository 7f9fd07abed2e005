"""Conversion of times: files and frames count microseconds since 1970 UTC, Python has aware datetimes."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_MIN_US = -62_135_596_800_000_000
"""Lowest timestamp, 0001-01-01; the highest is below 9999-12-31T23:59:60. Python, Spark and SQL can show this range."""
TIMESTAMP_MAX_US = 253_402_300_799_999_999


def us_of(moment: datetime) -> int:
    """Return an aware datetime as microseconds since 1970 UTC, exactly: ``timestamp()`` would round to a float."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment_text(us: int) -> str:
    """Format microseconds since 1970 UTC as ISO 8601, exactly."""
    return f"{(EPOCH + timedelta(microseconds=us)).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def us_of_text(text: str) -> int:
    """Return the microseconds of a :func:`moment_text`; raises ValueError for any other text."""
    return us_of(datetime.fromisoformat(text))
