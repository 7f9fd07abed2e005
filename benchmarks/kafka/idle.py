"""Claim: a broker that listens for Kafka clients, and has none, holds at most 35 MB more."""

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.kafka.wire import Wire
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.processes import cpu_percents, figures, resident_mb
from benchmarks.scale import Scale
from seaweedmq.kafka.wire.messages import API

MORE_MB_MAX = 35.0
ROUNDS = 3
HELD, SPENT = "idle broker without --kafka-port", "idle broker without --kafka-port, CPU"


def run(scale: Scale) -> list[Measure]:
    """Two brokers that differ in nothing else, one after the other, each with one topic."""
    percents: dict[bool, list[float]] = {True: [], False: []}

    def held_mb(kafka: bool) -> float:
        with (
            scratch(scale.directory) as folder,
            running_cluster(folder / "data", kafka=kafka) as cluster,
            seaweedmq.connect(cluster.bootstrap) as client,
        ):
            client.admin.create_topic("kafka/idle", partitions=1, durability="replicated")
            if kafka:
                with Wire(cluster.kafka) as wire:  # it is there, and what it loads with its first client is loaded
                    wire.ask(API.API_VERSIONS, 0)
            percents[kafka] += cpu_percents(cluster.pids, scale.idle_s / 2)
            (pid,) = cluster.pids
            return resident_mb(pid)

    rounds = 1 if scale.quick else ROUNDS
    contestants = {"with": lambda: held_mb(True), "without": lambda: held_mb(False)}
    samples = interleaved(contestants, rounds, warm_up=False)
    without, together = samples["without"], samples["with"]
    more = [ours - theirs for ours, theirs in zip(together, without, strict=True)]
    resident = figures(together)
    return [
        yardstick(HELD, without, "MB"),
        compared("kafka_idle_memory", more, "MB", HELD, without, value_max=MORE_MB_MAX, resident_mb=resident),
        yardstick(SPENT, percents[False], "%"),
        compared("kafka_idle_cpu", percents[True], "%", SPENT, [max(0.01, one) for one in percents[False]]),
    ]
