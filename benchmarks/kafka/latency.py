"""Claim: at 10,000 records/s of 100 B, linger 2 ms, two replicas, librdkafka on both sides: p99 from due to consumed is
10 ms at most.
"""

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest import tasks
from benchmarks.contest.client import Topic
from benchmarks.contest.feed import Schedule
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.contest.results import Figures
from benchmarks.contest.tasks import WARM_UP_S, Target
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale

RECORDS_PER_S, RECORD_BYTES = 10_000.0, 100
BROKERS, REPLICAS = 3, 2
P99_MS_MAX = 10.0
ROUNDS = 3
SHARES = ("p50_ms", "p99_ms")
NATIVE_NAMESPACE = "peers"
"""Namespace of the topics of ``contest.seaweedmq``."""


def run(scale: Scale) -> list[Measure]:
    """Run the same schedule with native clients and Kafka clients, in turns, each with a new topic."""
    rounds = 1 if scale.quick else ROUNDS
    seconds = scale.latency_s / rounds + WARM_UP_S
    found: dict[str, list[Figures]] = {"native": [], "kafka": []}
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", brokers=BROKERS, kafka=True) as cluster,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):

        def deliver(name: str) -> float:
            is_kafka = name == "kafka"
            topic = f"latency-{len(found[name])}"
            where = f"kafka/{topic}" if is_kafka else f"{NATIVE_NAMESPACE}/{topic}"
            client.admin.create_topic(
                where,
                replicas=REPLICAS,
                durability="replicated",
                scaling="fixed",
                partitions=1 if is_kafka else None,
            )
            system, address = ("kafka", cluster.kafka) if is_kafka else ("seaweedmq", cluster.bootstrap)
            target = Target(system, address, fsync=False, pids=cluster.pids)
            found[name].append(_deliver(target, Topic(topic), Schedule(RECORDS_PER_S, RECORD_BYTES, seconds)))
            return found[name][-1]["p99_ms"]

        interleaved({name: lambda name=name: deliver(name) for name in found}, rounds)  # type: ignore[misc]
    counted = {name: figures[-rounds:] for name, figures in found.items()}
    measures: list[Measure] = []
    for share in SHARES:
        of, native = f"native, send to delivered, {share[:3]}", [one[share] for one in counted["native"]]
        kafka = [one[share] for one in counted["kafka"]]
        late = max(one["late_ms_p99"] for one in counted["kafka"])
        target_ms = P99_MS_MAX if share == "p99_ms" else None
        measures += [
            yardstick(of, native, "ms"),
            compared(
                f"kafka_deliver_{share[:3]}", kafka, "ms", of, native, value_max=target_ms, schedule_late_ms_p99=late
            ),
        ]
    return measures


def _deliver(target: Target, topic: Topic, schedule: Schedule) -> Figures:
    ready = SPAWN.Event()
    with ClientProcess(tasks.receive, target=target, topic=topic, schedule=schedule, ready=ready) as receiver:
        receiver.expect(ready)
        with ClientProcess(tasks.send, target=target, topics=[topic], schedule=schedule) as sender:
            sent = sender.result()
        return receiver.result() | sent
