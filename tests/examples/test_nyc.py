"""The data of the examples, and their expected figures, computed with pandas."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seaweedmq.examples import nyc


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return nyc.flights()


def test_the_year_is_there_in_order_of_days_each_flight_once(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    dates = flights.column("month").to_numpy() * 100 + flights.column("day").to_numpy()
    assert (np.diff(dates) >= 0).all()
    assert (len(np.unique(dates)), flights.schema.field("time_hour").type) == (365, nyc.MOMENT)


def test_days_are_cut_out_of_it(flights: pa.Table) -> None:
    parts = [nyc.flights(1, 31), nyc.flights(32, 28), nyc.flights(60, 1_000)]
    assert [part.num_rows for part in parts[:2]] == [27_004, 24_951]
    assert pa.concat_tables(parts).equals(flights)
    assert nyc.flights(366, 1).num_rows == 0


def test_no_flight_stands_a_day_behind_one_that_was_scheduled_later(flights: pa.Table) -> None:
    minutes = flights.column("time_hour").cast(pa.int64()).to_numpy() // 60_000_000
    scheduled = minutes + flights.column("minute").to_numpy()
    behind_h = (np.maximum.accumulate(scheduled) - scheduled).max() / 60
    assert 12 < behind_h < nyc.LATE_H


def test_pandas_comes_to_the_same_figures() -> None:
    flights = nyc.flights(1, 3)
    frame = flights.to_pandas()
    by_hour = frame.groupby(["origin", "time_hour"], as_index=False).agg(
        flights=("flight", "size"), departed=("dep_delay", "count"), mean_delay=("dep_delay", "mean")
    )
    weather = pd.read_csv(nyc.flights_path().parent / "weather.csv", parse_dates=["time_hour"])
    joined = by_hour.merge(weather[["origin", "time_hour", *nyc.WEATHER]], "left", ["origin", "time_hour"])
    ours = nyc.delays_by_hour(flights).to_pandas().sort_values(["origin", "hour"], ignore_index=True)
    assert len(ours) == len(joined) > 150
    assert (ours["hour"] == joined["time_hour"]).all()
    for name in ("flights", "departed", "mean_delay", *nyc.WEATHER):
        np.testing.assert_allclose(ours[name].astype(float), joined[name].astype(float), rtol=1e-12)


def test_an_hour_is_closed_once_it_ended_a_day_before_the_latest_scheduled_departure() -> None:
    flights = nyc.flights(1, 3)
    by_hour = nyc.delays_by_hour(flights)
    latest = max(
        hour.replace(minute=minute)
        for hour, minute in zip(flights["time_hour"].to_pylist(), flights["minute"].to_pylist(), strict=True)
    )
    assert latest == datetime(2013, 1, 4, 4, 59, tzinfo=UTC)
    closed = nyc.closed(by_hour, flights)
    assert pc.max(closed["hour"]).as_py() <= datetime(2013, 1, 3, 3, 59, tzinfo=UTC)
    assert 0 < closed.num_rows < by_hour.num_rows
    assert nyc.closed(by_hour, nyc.flights(1, 1)).num_rows == 0
