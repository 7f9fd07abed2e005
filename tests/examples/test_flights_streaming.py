"""Delays by hour, from a topic to a topic: exactly once, also when the query is stopped in the middle."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seaweedmq
from benchmarks.demo.windows import check_hours
from seaweedmq.examples import nyc
from seaweedmq.examples.flights_streaming import Places, start
from seaweedmq.examples.publish_flights import publish
from seaweedmq.examples.running import make_topic
from tests.examples.conftest import Beside

pytestmark = pytest.mark.integration


@pytest.mark.deep
def test_a_stopped_query_continues_where_it_was(spark: SparkSession, beside: Beside, tmp_path: Path) -> None:
    places = Places(beside.bootstrap, beside.storage, str(tmp_path / "checkpoint"), "stopped/flights", "stopped/delays")
    publish(beside.bootstrap, places.source, nyc.flights(1, 4))
    make_topic(beside.bootstrap, places.target, nyc.DELAYS)

    query = start(spark, places, records_per_trigger=600)
    with (
        seaweedmq.connect(beside.bootstrap) as client,
        client.subscriber(places.target, start="earliest", limit=1, timeout=200) as subscriber,
    ):
        written = len(list(subscriber))
    query.stop()
    read = sum(progress.numInputRows for progress in query.recentProgress)
    assert query.exception() is None
    assert written == 1, "no hour came in time"
    assert 0 < read < 3_614, "the query had no work left when it was stopped"
    some = beside.hours(places.target).num_rows

    publish(beside.bootstrap, places.source, nyc.flights(5, 2))
    query = start(spark, places, until_done=True)
    query.awaitTermination()
    assert 0 < sum(progress.numInputRows for progress in query.recentProgress) < nyc.flights(1, 6).num_rows

    hours = beside.hours(places.target)
    flights = nyc.flights(1, 6)
    check_hours(hours, nyc.closed(nyc.delays_by_hour(flights), flights))
    assert some < hours.num_rows
