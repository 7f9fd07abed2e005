"""Claim: a broker that listens for Kafka clients, without any, holds at most 35 MB more, and uses at most 0.3 % of a
core more."""

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.kafka.wire import Wire
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.processes import cpu_percents, figures, resident_mb
from benchmarks.scale import Scale
from seaweedmq.kafka.wire.messages import API

MORE_MB_MAX = 35.0
MORE_PERCENT_MAX = 0.3
CPU_WINDOW_S, CPU_WINDOW_QUICK_S = 30.0, 3.0
"""Seconds of a window. The kernel counts in steps of 10 ms: 0.03 % of the long one. A step of the short one exceeds the
target, so that has none."""
ROUNDS = 3
HELD, SPENT = "idle broker without --kafka-port", "idle broker without --kafka-port, CPU"


def run(scale: Scale) -> list[Measure]:
    """Measure two brokers that differ in nothing else, one after the other, each with one topic."""
    window_s = CPU_WINDOW_QUICK_S if scale.quick else CPU_WINDOW_S
    percents: dict[bool, list[float]] = {True: [], False: []}

    def held_mb(kafka: bool) -> float:
        with (
            scratch(scale.directory) as folder,
            running_cluster(folder / "data", kafka=kafka) as cluster,
            seaweedmq.connect(cluster.bootstrap) as client,
        ):
            client.admin.create_topic("kafka/idle", partitions=1, durability="replicated")
            if kafka:
                with Wire(cluster.kafka) as wire:  # it listens, and has loaded everything for a first client
                    wire.ask(API.API_VERSIONS, 0)
            percents[kafka] += cpu_percents(cluster.pids, window_s)
            (pid,) = cluster.pids
            return resident_mb(pid)

    rounds = 1 if scale.quick else ROUNDS
    contestants = {"with": lambda: held_mb(True), "without": lambda: held_mb(False)}
    samples = interleaved(contestants, rounds, warm_up=False)
    without, together = samples["without"], samples["with"]
    more = [ours - theirs for ours, theirs in zip(together, without, strict=True)]
    resident, spent = figures(together), figures(percents[True])
    more_percent = [ours - theirs for ours, theirs in zip(percents[True], percents[False], strict=True)]
    percent_max = None if scale.quick else MORE_PERCENT_MAX
    at_least_a_step = [max(0.01, one) for one in percents[False]]  # a ratio to zero is undefined
    return [
        yardstick(HELD, without, "MB"),
        compared("kafka_idle_memory", more, "MB", HELD, without, value_max=MORE_MB_MAX, resident_mb=resident),
        yardstick(SPENT, percents[False], "%"),
        compared("kafka_idle_cpu", more_percent, "%", SPENT, at_least_a_step, value_max=percent_max, cpu_percent=spent),
    ]
