"""One query over records published before it began, now in files, and records published while it runs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from seaweedmq.examples import nyc
from seaweedmq.examples.backfill_then_live import Total, Totals, start
from seaweedmq.examples.publish_flights import publish
from tests.examples.conftest import Beside

pytestmark = pytest.mark.integration

TOPIC = "live/flights"
TIMEOUT_S = 60.0


def of_csv(flights: pa.Table) -> dict[str, Total]:
    by_carrier = flights.to_pandas().groupby("carrier")["dep_delay"]
    frame = by_carrier.agg(flights="size", departed="count", mean="mean")
    return {
        carrier: Total(int(row.flights), int(row.departed), float(row["mean"])) for carrier, row in frame.iterrows()
    }


def same(found: dict[str, Total], expected: dict[str, Total]) -> bool:
    return found.keys() == expected.keys() and all(
        found[carrier][:2] == total[:2] and np.isclose(found[carrier].mean_delay, total.mean_delay, rtol=1e-12)
        for carrier, total in expected.items()
    )


@pytest.mark.deep
def test_backfill_goes_on_as_live_data_in_one_query(spark: SparkSession, beside: Beside, tmp_path: Path) -> None:
    before, during = nyc.flights(1, 3), nyc.flights(4, 3)
    publish(beside.bootstrap, TOPIC, before)
    totals = Totals()
    query = start(spark, beside.bootstrap, beside.storage, TOPIC, totals)
    try:
        assert totals.until(before.num_rows, TIMEOUT_S), query.exception()
        assert same(totals.now(), of_csv(before))
        for day in range(4, 7):
            publish(beside.bootstrap, TOPIC, nyc.flights(day, 1))
        assert totals.until(before.num_rows + during.num_rows, TIMEOUT_S), query.exception()
        assert same(totals.now(), of_csv(nyc.flights(1, 6)))
    finally:
        query.stop()


def test_totals_of_a_batch_that_is_taken_again_change_nothing(spark: SparkSession) -> None:
    totals = Totals()
    columns = "carrier string, flights long, departed long, mean_delay double"
    batch = spark.createDataFrame([("AA", 3, 2, 1.5), ("UA", 1, 0, None)], columns)
    totals.take(batch, 7)
    totals.take(batch, 7)
    assert totals.now() == {"AA": Total(3, 2, 1.5), "UA": Total(1, 0, None)}
    assert totals.until(4, 0)
    assert not totals.until(5, 0)
