"""Suites of the contest: each drives a started server, and yields samples as they arrive."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.contest import tasks
from benchmarks.contest.client import Topic
from benchmarks.contest.feed import Schedule
from benchmarks.contest.results import Sample
from benchmarks.contest.systems import Way
from benchmarks.contest.tasks import WARM_UP_S
from benchmarks.contest.trial import Trial

RECORD_BYTES = 100
"""Default size of a record."""
LATENCY_RECORDS_PER_S = 10_000
DURABLE_LATENCY_RECORDS_PER_S = 1_000
"""Rate with an fsync before each acknowledgement: low enough for a usual disk."""
TOPIC_RECORDS_PER_S = 1.0
PUBLISHING = (Way.ONE_BY_ONE, Way.STORED_ONCE, Way.AT_ONCE)
CONSUMING = (Way.BY_MESSAGE, Way.BY_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of a run."""

    publish_s: float
    latency_s: float
    topics: int
    topics_s: float
    warm_up_s: float


FULL = Sizes(publish_s=5.0, latency_s=10.0, topics=200, topics_s=15.0, warm_up_s=2.0)
QUICK = Sizes(publish_s=0.3, latency_s=0.5, topics=20, topics_s=2.0, warm_up_s=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Records to publish and, by default, to consume."""

    name: str
    record_bytes: int
    publish: tuple[Way, ...] = PUBLISHING
    consume: tuple[Way, ...] = CONSUMING
    partitions: int = 1
    keyed: bool = False


DATASETS = (
    Dataset(name="100 B", record_bytes=RECORD_BYTES),
    Dataset(
        name="100 B keyed", record_bytes=RECORD_BYTES, publish=PUBLISHING[:1], consume=(), partitions=4, keyed=True
    ),
    Dataset(name="1 KB", record_bytes=1_000),
)


def startup(trial: Trial, sizes: Sizes) -> Iterator[Sample]:
    """Measure from the start of the server on an empty folder to the first acknowledged record."""
    yield trial.sample("startup", "", {"first_record_s": trial.first_record_s})


def topics(trial: Trial, sizes: Sizes) -> Iterator[Sample]:
    """Measure many topics with a record per second each."""
    many = [Topic(f"many-{number}") for number in range(sizes.topics)]
    schedule = Schedule(sizes.topics * TOPIC_RECORDS_PER_S, RECORD_BYTES, sizes.topics_s)
    with trial.topics(many) as created:
        sent = trial.do(tasks.send, topics=many, schedule=schedule)
        yield trial.sample("topics", "", created | sent)


def records(trial: Trial, sizes: Sizes) -> Iterator[Sample]:
    """Publish each dataset by every call, and consume the records of the first call."""
    _warm_up(trial, sizes)
    for dataset in DATASETS:
        for number, call in enumerate(trial.system.calls_for(dataset.publish)):
            topic = Topic(f"{dataset.name.replace(' ', '-')}-{number}", dataset.partitions, dataset.keyed)
            with trial.topics([topic]):
                published = trial.publish(topic, call, dataset.record_bytes, sizes.publish_s)
                yield trial.sample(f"publish {dataset.name}", call, published)
                for consuming in trial.system.calls_for(dataset.consume) if number == 0 else ():
                    consumed = trial.consume(topic, consuming, dataset.record_bytes, int(published["records"]))
                    yield trial.sample(f"consume {dataset.name}", consuming, consumed)


def latency(trial: Trial, sizes: Sizes) -> Iterator[Sample]:
    """Measure from the time a record was due until another process has it."""
    _warm_up(trial, sizes)
    yield _latency(trial, "latency", LATENCY_RECORDS_PER_S, sizes)


def durable(trial: Trial, sizes: Sizes) -> Iterator[Sample]:
    """Measure publishing and latency of a server that syncs before it acknowledges."""
    _warm_up(trial, sizes)
    (call, *_), topic = trial.system.calls_for([Way.ONE_BY_ONE]), Topic("durable")
    with trial.topics([topic]):
        published = trial.publish(topic, call, RECORD_BYTES, sizes.publish_s)
        yield trial.sample("durable publish", call, published)
    yield _latency(trial, "durable latency", DURABLE_LATENCY_RECORDS_PER_S, sizes)


Suite = Callable[[Trial, Sizes], Iterator[Sample]]
SUITES: Mapping[str, Suite] = {suite.__name__: suite for suite in (startup, topics, records, latency, durable)}
FSYNC = frozenset({"durable"})
"""Suites for a separate server that syncs; the others share one."""


def _latency(trial: Trial, measure: str, records_per_s: float, sizes: Sizes) -> Sample:
    topic = Topic(measure.replace(" ", "-"))
    with trial.topics([topic]):
        delivered = trial.deliver(topic, Schedule(records_per_s, RECORD_BYTES, sizes.latency_s + WARM_UP_S))
        return trial.sample(measure, "", delivered)


def _warm_up(trial: Trial, sizes: Sizes) -> None:
    """Publish and consume for a moment, unreported: a JVM compiles its hot methods first."""
    (publishing, *_), (consuming, *_) = trial.system.calls_for(PUBLISHING), trial.system.calls_for(CONSUMING)
    topic = Topic("warm-up")
    with trial.topics([topic]):
        published = trial.publish(topic, publishing, RECORD_BYTES, sizes.warm_up_s)
        trial.consume(topic, consuming, RECORD_BYTES, int(published["records"]))
