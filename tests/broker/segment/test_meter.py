"""Rates of a segment, as averages that decay."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.broker.segment.meter import Meter
from seaweedmq.model.ring import HISTOGRAM_BUCKETS

SHORT_S, LONG_S = 2.0, 20.0
LOWEST = (1,) + (0,) * (HISTOGRAM_BUCKETS - 1)
HIGHEST = (0,) * (HISTOGRAM_BUCKETS - 1) + (1,)


def feed(meter: Meter, since: float, until: float, bytes_per_s: float, looks: int, where: tuple[int, ...]) -> None:
    """Feed even traffic of records of 100 bytes, read this many times."""
    for n in range(looks):
        step = (until - since) / looks
        records = round(bytes_per_s * step / 100)
        meter.add(records * 100, records, tuple(records * share for share in where))
        meter.update(since + (n + 1) * step)


@given(st.floats(0.01, 100), st.integers(1, 20))
def test_steady_traffic_has_its_rate_from_the_first_look_on(seconds: float, looks: int) -> None:
    meter = Meter(50.0, SHORT_S, LONG_S)
    for n in range(looks):
        meter.add(1000, 10, tuple(10 * share for share in LOWEST))
        meter.update(50.0 + (n + 1) * seconds)
    for average, rate in (
        (meter.bytes_per_s, 1000 / seconds), (meter.long_bytes_per_s, 1000 / seconds),
        (meter.records_per_s, 10 / seconds), (meter.long_records_per_s, 10 / seconds),
        (meter.histogram[0], 10 / seconds),
    ):  # fmt: skip
        assert average == pytest.approx(rate)
    assert not any(meter.histogram[1:])


@given(st.integers(1, 50))
def test_what_is_over_counts_less_as_the_time_constant_says_however_often_one_looks(looks: int) -> None:
    meter = Meter(0.0, SHORT_S, LONG_S)
    feed(meter, 0, 100, 1e6, 100, LOWEST)
    feed(meter, 100, 104, 0, looks, LOWEST)
    assert meter.bytes_per_s == pytest.approx(1e6 * math.exp(-4 / SHORT_S), rel=1e-3)
    assert meter.long_bytes_per_s == pytest.approx(1e6 * math.exp(-4 / LONG_S), rel=1e-2)


def test_the_histogram_follows_the_traffic_and_adds_up_to_the_rate() -> None:
    meter = Meter(0.0, SHORT_S, LONG_S)
    feed(meter, 0, 20, 1e6, 20, LOWEST)
    feed(meter, 20, 22, 1e6, 2, HIGHEST)
    assert meter.histogram[-1] > meter.histogram[0] > 0
    assert sum(meter.histogram) == pytest.approx(meter.records_per_s)


def test_a_segment_is_forgotten_once_nothing_came_for_long() -> None:
    meter = Meter(0.0, SHORT_S, LONG_S)
    feed(meter, 0, 5, 1e6, 5, LOWEST)
    feed(meter, 5, 35, 0, 30, LOWEST)
    assert meter.long_bytes_per_s > 0
    feed(meter, 35, 1_000, 0, 965, LOWEST)
    assert (meter.bytes_per_s, meter.long_bytes_per_s, meter.records_per_s) == (0, 0, 0)
    assert not any(meter.histogram)


def test_two_looks_at_the_same_time_are_one() -> None:
    meter = Meter(0.0, SHORT_S, LONG_S)
    meter.update(0.0)
    meter.add(100, 1, LOWEST)
    meter.update(1.0)
    meter.update(1.0)
    assert meter.bytes_per_s == pytest.approx(100)
