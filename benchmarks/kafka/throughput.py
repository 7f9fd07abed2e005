"""Claims: one connection produces batches of 1 MB at half the speed of a native publisher, for 1 s of a broker's CPU
each 400 MB; fetches from memory at half the speed of a native subscriber and 800 MB/s; and 5,000 small requests cost a
second of a core.
"""

import time
from collections.abc import Callable
from typing import Any

import seaweedmq
from benchmarks.catchup import MEMORY_BYTES_MAX, UNCONVERTED
from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest import tasks
from benchmarks.contest.client import Topic
from benchmarks.contest.process import ClientProcess
from benchmarks.contest.tasks import Target
from benchmarks.data import random_table
from benchmarks.kafka import raw
from benchmarks.kafka.batches import BATCH_RECORDS, batch_of, batches_of
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.processes import cpu_s
from benchmarks.publish import MB, publish
from benchmarks.raw_stream import RawStream, raw_stream
from benchmarks.scale import Scale

RECORD_BYTES = 1_000
PRODUCE_RATIO_MIN = 0.5
PRODUCE_MB_PER_CPU_S_MIN = 400.0
FETCH_RATIO_MIN = 0.5
FETCH_MB_PER_S_MIN = 800.0
REQUESTS_PER_CPU_S_MIN = 5_000.0
SMALL_RECORDS, SMALL_BYTES = 10, 100
REQUESTS = 20_000
STREAMS = 1
NATIVE, KAFKA, WARM = "kafka/native", "produced", "kafka/warm"
NATIVE_PRODUCE, NATIVE_PRODUCE_CPU = "native send_table", "native send_table, per CPU second of the broker"
NATIVE_FETCH, MESSAGES = "native subscriber, batches", "raw stream, messages per CPU second of its server"


def run(scale: Scale) -> list[Measure]:
    """Measure on one broker with one replica, written; logs are not converted, so that all CPU is for the requests."""
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", settings=UNCONVERTED, kafka=True) as cluster,
        raw_stream() as stream,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        (pid,) = cluster.pids
        for topic in (NATIVE, f"kafka/{KAFKA}", WARM, "kafka/small", "kafka/fetched"):
            client.admin.create_topic(topic, partitions=1, durability="replicated")
        return [
            *_producing(scale, client, cluster.kafka, pid),
            *_small(scale, stream, cluster.kafka, pid),
            *_fetching(scale, client, cluster.kafka, pid),
        ]


def _producing(scale: Scale, client: "seaweedmq.Client", kafka: str, pid: int) -> list[Measure]:
    table = random_table(
        scale.table_bytes // (BATCH_RECORDS * RECORD_BYTES) * BATCH_RECORDS * RECORD_BYTES, RECORD_BYTES
    )
    batches, value_bytes = batches_of(table), table.num_rows * RECORD_BYTES
    cpu_mb: dict[str, list[float]] = {"native": [], "kafka": []}

    def costed(name: str, work: Callable[[], float]) -> float:
        before_s = cpu_s(pid)
        rate = work()
        cpu_mb[name].append(value_bytes / MB / (cpu_s(pid) - before_s))
        return rate / MB

    contestants: dict[str, Callable[[], float]] = {
        "native": lambda: costed("native", lambda: publish(client, NATIVE, table)),
        "kafka": lambda: costed("kafka", lambda: value_bytes / raw.produce(kafka, KAFKA, batches)),
    }
    samples = interleaved(contestants, scale.rounds)
    native_cpu, kafka_cpu = cpu_mb["native"][-scale.rounds :], cpu_mb["kafka"][-scale.rounds :]
    return [
        yardstick(NATIVE_PRODUCE, samples["native"], "MB/s"),
        compared(
            "kafka_produce_1mb",
            samples["kafka"],
            "MB/s",
            NATIVE_PRODUCE,
            samples["native"],
            ratio_min=PRODUCE_RATIO_MIN,
        ),
        yardstick(NATIVE_PRODUCE_CPU, native_cpu, "MB/s"),
        compared(
            "kafka_produce_1mb_per_cpu_s",
            kafka_cpu,
            "MB/s",
            NATIVE_PRODUCE_CPU,
            native_cpu,
            value_min=PRODUCE_MB_PER_CPU_S_MIN,
        ),
    ]


def _small(scale: Scale, stream: RawStream, kafka: str, pid: int) -> list[Measure]:
    """Send ten records of 100 B per request, five in flight."""
    batch = batch_of([b"x" * SMALL_BYTES] * SMALL_RECORDS)
    count = REQUESTS // 20 if scale.quick else REQUESTS
    per_s: list[float] = []

    def messages() -> float:
        before_s = cpu_s(stream.pid)
        stream.converse(STREAMS, count // 10, len(batch))
        return count / 10 / max(0.01, cpu_s(stream.pid) - before_s)

    def requests() -> float:
        before_s = cpu_s(pid)
        per_s.append(count / raw.produce_same(kafka, "small", batch, count))
        return count / (cpu_s(pid) - before_s)

    samples = interleaved({"messages": messages, "requests": requests}, scale.rounds)
    return [
        yardstick(MESSAGES, samples["messages"], "messages/s"),
        compared(
            "kafka_small_requests_per_cpu_s",
            samples["requests"],
            "requests/s",
            MESSAGES,
            samples["messages"],
            value_min=REQUESTS_PER_CPU_S_MIN,
            requests_per_s=round(sorted(per_s)[len(per_s) // 2]),
        ),
    ]


def _fetching(scale: Scale, client: "seaweedmq.Client", kafka: str, pid: int) -> list[Measure]:
    """Read the new records out of the broker's memory: native frames natively, Kafka's batches by Fetch."""
    size = (
        min(scale.table_bytes, MEMORY_BYTES_MAX // 2) // (BATCH_RECORDS * RECORD_BYTES) * BATCH_RECORDS * RECORD_BYTES
    )
    table = random_table(size, RECORD_BYTES)
    count = table.num_rows
    publish(client, WARM, table)
    raw.produce(kafka, "fetched", batches_of(table))

    def native() -> float:
        began = time.perf_counter()
        with client.subscriber(WARM, start="earliest", stop_at="latest") as subscriber:
            rows = sum(batch.num_rows for batch in subscriber.batches())
        if rows != count:
            raise AssertionError(f"{rows} of {count} records were read")
        return size / (time.perf_counter() - began) / MB

    def librdkafka() -> float:
        target = Target("kafka", kafka, fsync=False, pids=(pid,))
        arguments: dict[str, Any] = {"target": target, "topic": Topic("fetched"), "call": "consume"}
        with ClientProcess(tasks.consume, **arguments, record_bytes=RECORD_BYTES, count=count) as process:
            return process.result()["mb_per_s"]

    contestants = {
        "native": native,
        "raw": lambda: size / raw.fetch_all(kafka, "fetched", count) / MB,
        "librdkafka": librdkafka,
    }
    samples = interleaved(contestants, scale.rounds)
    native_mb = samples["native"]
    return [
        yardstick(NATIVE_FETCH, native_mb, "MB/s"),
        compared("kafka_fetch_memory", samples["raw"], "MB/s", NATIVE_FETCH, native_mb, ratio_min=FETCH_RATIO_MIN),
        compared(
            "kafka_fetch_memory_rate", samples["raw"], "MB/s", NATIVE_FETCH, native_mb, value_min=FETCH_MB_PER_S_MIN
        ),
        compared("kafka_consume_librdkafka", samples["librdkafka"], "MB/s", NATIVE_FETCH, native_mb),
    ]
