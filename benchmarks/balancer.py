"""Claim: the balancer decides for 1,000 brokers and 1,000,000 segments in seconds, and keeps a cluster even all day.

The decisions are timed on clusters made of arrays and of objects as the leader makes them; the day runs on a model.
"""

import random
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.balancer_day import Day, play_day
from benchmarks.balancer_plot import plot_day
from benchmarks.measure import Measure, compared, percentile, yardstick
from benchmarks.scale import Scale
from seaweedmq.core.balance.decide import BalancerSettings, ClusterColumns, Loads, decide
from seaweedmq.model.broker import BrokerInfo, BrokerLoad, SegmentLoad
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, WHOLE_RING, even_ranges
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName

SMALL_MS_MAX, LARGE_MS_MAX = 50.0, 5_000.0
SEGMENTS_PER_TOPIC = 100
SETTINGS = BalancerSettings.of(BrokerConfig())
NOW_US = 10**15
IMBALANCE_MAX = 1.2
PLOT = "balancer-day.png"


@dataclass(frozen=True, slots=True)
class Input:
    """Input of the leader: values of the metadata, and the last reports."""

    topics: list[Topic]
    segments: list[Segment]
    brokers: list[BrokerInfo]
    reports: list[BrokerLoad]


def run(scale: Scale) -> list[Measure]:
    """Measure two sizes of clusters, each with one broker just lost; then a day."""
    measures = _timed("decide_10k", 100, 10_000, SMALL_MS_MAX, scale.rounds)
    if not scale.quick:
        measures += _timed("decide_1m", 1_000, 1_000_000, LARGE_MS_MAX, scale.rounds)
    day = play_day(brokers=20 if scale.quick else 100, step_s=300.0 if scale.quick else 60.0)
    plot_day(day, scale.pictures / PLOT)
    return measures + _measures_of(day)


def _timed(name: str, brokers: int, segments: int, ms_max: float, rounds: int) -> list[Measure]:
    """Measure a decision beside building its input columns, in milliseconds."""
    found = _input(brokers, segments)
    built: list[float] = []
    decided: list[float] = []
    actions = 0
    for _ in range(rounds):
        began = time.perf_counter()
        cluster = ClusterColumns.of(found.topics, found.segments, found.brokers, SETTINGS)
        loads = Loads.of(cluster, found.reports)
        between = time.perf_counter()
        actions = len(decide(cluster, loads, NOW_US, SETTINGS))
        built.append((between - began) * 1e3)
        decided.append((time.perf_counter() - between) * 1e3)
    of = f"{name}_columns"
    return [
        yardstick(of, built, "ms"),
        compared(name, decided, "ms", of, built, value_max=ms_max, brokers=brokers, segments=segments, actions=actions),
    ]


def _input(brokers: int, segments: int) -> Input:
    """Return segments of very different sizes at random places, two replicas each; the first broker was just lost."""
    rng = random.Random(1)
    ids = [f"b-{number:04}" for number in range(brokers)]
    slots = even_ranges(WHOLE_RING, SEGMENTS_PER_TOPIC)
    rates = np.random.default_rng(1).pareto(1.2, segments) * 5e6
    of_broker: dict[str, list[SegmentLoad]] = {broker: [] for broker in ids}
    topics: list[Topic] = []
    opened: list[Segment] = []
    for rate in rates.tolist():
        number = len(opened) % SEGMENTS_PER_TOPIC
        if not number:
            topics.append(_topic(len(topics)))
        primary = rng.randrange(brokers)
        segment = Segment(
            topic=topics[-1].name,
            id=number,
            slots=slots[number],
            epoch=1,
            state=SegmentState.OPEN,
            replicas=(ids[primary], ids[(primary + 1 + rng.randrange(brokers - 1)) % brokers]),
            opened_us=1,
        )
        opened.append(segment)
        of_broker[segment.primary].append(_load(segment, rate))
    return Input(
        topics=topics,
        segments=opened,
        brokers=[BrokerInfo(id=b, address=b, started_us=0, pid=1, version="model") for b in ids[1:]],
        reports=[
            BrokerLoad(broker=b, cpu_share=0, memory_bytes=0, buffered_bytes=0, segments=tuple(loads))
            for b, loads in of_broker.items()
        ],
    )


def _topic(number: int) -> Topic:
    return Topic(
        name=TopicName("scale", f"t-{number}"),
        uid=number,
        replicas=2,
        durability=Durability.REPLICATED,
        scaling=Scaling.AUTO,
        schema=None,
        retention_s=None,
        retention_bytes=None,
        next_segment=SEGMENTS_PER_TOPIC,
        created_us=0,
    )


def _load(segment: Segment, bytes_per_s: float) -> SegmentLoad:
    records_per_s = bytes_per_s / 1_000
    return SegmentLoad(
        topic=segment.topic,
        segment=segment.id,
        bytes_per_s=bytes_per_s,
        records_per_s=records_per_s,
        unwritten_bytes=0,
        long_bytes_per_s=bytes_per_s,
        long_records_per_s=records_per_s,
        histogram=(records_per_s / HISTOGRAM_BUCKETS,) * HISTOGRAM_BUCKETS,
    )


def _measures_of(day: Day) -> list[Measure]:
    """Return the measures. Imbalance is the true load of the most loaded broker over the mean, not the measured one."""
    imbalances = sorted(sample.imbalance for sample in day.samples)
    of = "day_even"
    changes = day.changes
    return [
        yardstick(of, [1.0], "max/mean"),
        compared("day_imbalance_median", [percentile(imbalances, 0.5)], "max/mean", of, [1.0], value_max=IMBALANCE_MAX),
        compared(
            "day_imbalance_p99",
            [percentile(imbalances, 0.99)],
            "max/mean",
            of,
            [1.0],
            brokers=day.brokers,
            segments=[min(s.segments for s in day.samples), max(s.segments for s in day.samples)],
            **changes,
        ),
        yardstick("day_flood_recovery", [day.flood_recovery_s], "s", imbalance=IMBALANCE_MAX),
        yardstick("day_loss_recovery", [day.loss_recovery_s], "s", imbalance=IMBALANCE_MAX),
    ]
