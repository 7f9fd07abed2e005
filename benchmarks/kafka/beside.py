"""Claims: librdkafka produces at 0.8 of its rate to Apache Kafka, with two replicas at 0.7: the same client, records
and settings, acks=all; on both sides acknowledged means in the file of every replica, fsynced later.
"""

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest import tasks
from benchmarks.contest.client import Topic
from benchmarks.contest.errors import Missing
from benchmarks.contest.process import ClientProcess
from benchmarks.contest.results import Figures
from benchmarks.contest.tasks import Target
from benchmarks.kafka.apache import running_apache
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale

RECORD_BYTES = 1_000
RATIO_MIN = {1: 0.8, 2: 0.7}
"""Target by number of replicas; there are as many brokers."""
SECONDS, SECONDS_QUICK = 3.0, 0.5
ROUNDS = 5
TIMEOUT_S = 30.0
TOPIC = "beside"
DURABILITY = {"seaweedmq.durability": "replicated"}


def run(scale: Scale) -> list[Measure]:
    """Measure with one replica, then with two."""
    measures: list[Measure] = []
    for replicas in RATIO_MIN:
        with scratch(scale.directory) as folder:
            measures += _of(replicas, scale, folder)
    return measures


def _of(replicas: int, scale: Scale, folder: Path) -> list[Measure]:
    name, of = f"kafka_librdkafka_{replicas}_replica", f"Apache Kafka, {replicas} replica, librdkafka"
    found: dict[str, list[Figures]] = {"ours": [], "apache": []}
    missing = ""
    with running_cluster(folder / "data", brokers=replicas, kafka=True) as cluster:
        ours = Target("kafka", cluster.kafka, fsync=False, pids=cluster.pids)
        _create(ours, replicas, DURABILITY)
        contestants = {"ours": _producing(ours, found["ours"], scale)}
        try:
            with running_apache(folder, replicas) as (address, pids):
                theirs = Target("kafka", address, fsync=False, pids=pids)
                _create(theirs, replicas, {})
                contestants["apache"] = _producing(theirs, found["apache"], scale)
                samples = interleaved(contestants, _rounds(scale))
        except Missing as reason:
            missing = str(reason)
            samples = interleaved(contestants, _rounds(scale))
    details = {"cpu_s_per_gb": round(found["ours"][-1]["server_cpu_s_per_gb"], 2)}
    if missing:
        return [yardstick(name, samples["ours"], "MB/s", apache_skipped=missing, **details)]
    their_details = {"cpu_s_per_gb": round(found["apache"][-1]["server_cpu_s_per_gb"], 2)}
    return [
        yardstick(of, samples["apache"], "MB/s", **their_details),
        compared(name, samples["ours"], "MB/s", of, samples["apache"], ratio_min=RATIO_MIN[replicas], **details),
    ]


def _rounds(scale: Scale) -> int:
    return 1 if scale.quick else ROUNDS


def _create(target: Target, replicas: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": target.address})
    wanted = NewTopic(TOPIC, num_partitions=1, replication_factor=replicas, config=config)
    admin.create_topics([wanted], operation_timeout=TIMEOUT_S)[TOPIC].result()


def _producing(target: Target, found: list[Figures], scale: Scale) -> Callable[[], float]:
    """``produce`` one by one for some seconds, in a separate process; return MB/s."""

    def produce() -> float:
        with ClientProcess(
            tasks.publish,
            target=target,
            topic=Topic(TOPIC),
            call="produce",
            record_bytes=RECORD_BYTES,
            seconds=SECONDS_QUICK if scale.quick else SECONDS,
        ) as process:
            found.append(process.result())
        return found[-1]["mb_per_s"]

    return produce
