"""Values that Arrow has and Python lacks are readable."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq.codec.python_values import python_rows, python_values

FOR_EVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
BERLIN = pa.timestamp("us", tz="Europe/Berlin")
SECONDS = pa.timestamp("s")
FAR = 1 << 40
"""Seconds until the year 36,812."""


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([FOR_EVER], BERLIN), [FOR_EVER]),
        (pa.array([FAR, None, 0], SECONDS), [FAR, None, datetime(1970, 1, 1)]),  # noqa: DTZ001 - a column without zone
        (pa.array([-FAR], pa.timestamp("s", tz="UTC")), [-FAR]),
        (pa.array([4_000_000, 0], pa.date32()), [4_000_000, date(1970, 1, 1)]),
        (pa.array([4_000_000 * 86_400_000], pa.date64()), [4_000_000 * 86_400_000]),
        (pa.array([1 << 60, 1], pa.duration("s")), [1 << 60, timedelta(seconds=1)]),
        (pa.array([1, None], pa.timestamp("us", tz="Nowhere/Bad")), [datetime(1970, 1, 1, 0, 0, 0, 1, UTC), None]),
        (pa.array([[FAR], None, []], pa.list_(SECONDS)), [[FAR], None, []]),
        (pa.array([[FAR, None]], pa.list_(SECONDS, 2)), [[FAR, None]]),
        (
            pa.array([{"a": FAR, "b": "x"}, None], pa.struct({"a": SECONDS, "b": pa.string()})),
            [{"a": FAR, "b": "x"}, None],
        ),
        (pa.array([[("k", FAR)], None], pa.map_(pa.string(), SECONDS)), [[("k", FAR)], None]),
        (pa.array([FAR, FAR], SECONDS).dictionary_encode(), [FAR, FAR]),
        (pa.array([[{"a": FAR}]], pa.large_list(pa.struct({"a": SECONDS}))), [[{"a": FAR}]]),
        (pa.array([0, FAR, 1], SECONDS).slice(1, 1), [FAR]),
        (pa.array([None, {"a": FAR}], pa.struct({"a": SECONDS})).slice(1), [{"a": FAR}]),
    ],
)
def test_a_value_that_python_lacks_does_not_hide_the_others(column: pa.Array, values: list[Any]) -> None:
    assert python_values(column) == values


def test_rows() -> None:
    batch = pa.record_batch({"id": [1, 2], "at": pa.array([FAR, None], SECONDS)})
    assert python_rows(batch) == [{"id": 1, "at": FAR}, {"id": 2, "at": None}]
    assert python_rows(batch.select([])) == [{}, {}]
