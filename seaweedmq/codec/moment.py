"""Points in time: files and frames count microseconds since 1970 UTC, Python has aware datetimes."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us_of(moment: datetime) -> int:
    """Microseconds since 1970 UTC of an aware datetime, exactly: ``timestamp()`` would go through a float."""
    return (moment - EPOCH) // timedelta(microseconds=1)
