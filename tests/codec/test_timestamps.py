"""Points in time are exact to the microsecond, in any time zone and far from 1970."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from seaweedmq.codec.timestamps import EPOCH, us_of


@pytest.mark.parametrize(
    ("moment", "us"),
    [
        (EPOCH, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), -1),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), 253_402_300_799_999_999),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800_000_000),
    ],
)
def test_microseconds_since_1970(moment: datetime, us: int) -> None:
    assert (us_of(moment), EPOCH + timedelta(microseconds=us)) == (us, moment)
