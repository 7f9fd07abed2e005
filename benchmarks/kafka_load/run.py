"""One tier from beginning to end."""

import time
import uuid
from dataclasses import replace

import psutil
from confluent_kafka import KafkaException

from benchmarks.cluster import scratch
from benchmarks.contest.errors import Failed
from benchmarks.kafka_load.checker import delivery_ms
from benchmarks.kafka_load.crew import Crew
from benchmarks.kafka_load.figures import Run, Step, what_gave
from benchmarks.kafka_load.servers import Watch, create_topic, not_committed, running_servers
from benchmarks.kafka_load.tiers import TIERS, Tier
from benchmarks.measure import Measure, percentile
from benchmarks.scale import Scale

LOOKS_MAX = 400
LOOK_S_MIN = 0.5
WARM_UP_S = 1.0
"""Seconds at the start of every producer that do not count in the times of delivery."""


def play(scale: Scale) -> list[Measure]:
    """Run the tier that ``scale`` names, and judge it. Raises Failed if clients cannot even start."""
    try:
        return _play(scale)
    except KafkaException as error:
        raise Failed(f"the topic or its groups cannot be queried: {error}") from None


def _play(scale: Scale) -> list[Measure]:
    tier = TIERS[scale.tier]
    if scale.duration_s is not None:
        tier = replace(tier, seconds=scale.duration_s)
    with scratch(scale.directory) as folder, running_servers(tier, tier.seconds, folder, scale) as servers:
        topic = f"load-{uuid.uuid4().hex[:8]}"
        tier = replace(tier, groups=tuple(replace(group, name=f"{topic}-{group.name}") for group in tier.groups))
        create_topic(servers, topic, tier, tier.seconds)
        with Crew(servers, topic, tier, folder) as crew:
            crew.join()
            watch = Watch(servers, topic)
            steps = _steps(crew, watch, tier)
            crew.leave()
            left = not_committed(servers, topic, tier)
            return Run(tier, crew, watch, steps, left).measures()


def _steps(crew: Crew, watch: Watch, tier: Tier) -> list[Step]:
    """Run one step, or rising load until a limit is exceeded."""
    steps: list[Step] = []
    for number in range(tier.steps_max):
        if number:
            crew.add_member()
            crew.until_assigned()
        steps.append(_step(crew, watch, tier, tier.producers + number, tier.records_per_s * tier.climb**number))
        print(steps[-1].line(), flush=True)
        if (gave := what_gave(steps[-1])) is not None:
            print(f"too much: {gave}", flush=True)
            break
    return steps


def _step(crew: Crew, watch: Watch, tier: Tier, producers: int, records_per_s: float) -> Step:
    look_s = max(LOOK_S_MIN, tier.seconds / LOOKS_MAX)
    psutil.cpu_percent()
    watch.look(time.monotonic())
    first_look, churns = len(watch.at_s), 0
    looked_s = 0.0

    def tick(elapsed_s: float) -> None:
        nonlocal looked_s, churns
        if elapsed_s - looked_s >= look_s:
            looked_s = elapsed_s
            watch.look(time.monotonic())
        if tier.churn_s is not None and elapsed_s >= (churns + 1) * tier.churn_s:
            churns += 1
            crew.churn()

    found = crew.produce(producers, records_per_s, tier.seconds, tick)
    watch.look(time.monotonic())
    crew.drain()
    numbers = [one.producer for one in found]
    skip = round(WARM_UP_S * records_per_s / producers)
    journals = [rows for group in tier.groups for rows in crew.journals(group)]
    took_ms = delivery_ms(numbers, journals, skip) or [0.0]
    looks = slice(first_look, None)
    return Step(
        producers=producers,
        consumers=sum(member.is_here for member in crew.members),
        due_per_s=records_per_s,
        sent_per_s=sum(one.sent / one.wall_s for one in found),
        refused=sum(len(one.refused) for one in found),
        ack_ms_p99=max(one.ack_ms_p99 for one in found),
        deliver_ms_p50=percentile(took_ms, 0.5),
        deliver_ms_p99=percentile(took_ms, 0.99),
        broker_percent=_mean(watch.broker_percent[looks]),
        machine_percent=_mean(watch.machine_percent[looks]),
        resident_mb=max(watch.resident_mb[looks]),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
