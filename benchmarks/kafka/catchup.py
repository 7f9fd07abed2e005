"""Claims: a Kafka consumer catches up from log files at 0.8 of a native subscriber, and from tables, whose rows become
batches again, at 0.4.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import seaweedmq
from benchmarks.catchup import RECORD_BYTES, UNCONVERTED
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.data import text_table
from benchmarks.kafka import raw
from benchmarks.kafka.batches import BATCH_RECORDS, batches_of
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.publish import MB
from benchmarks.scale import Scale
from benchmarks.tables import (
    CHUNK_BYTES,
    CONVERTING,
    NAME,
    publish_text,
    table_files,
    until_in_tables,
    until_logs_are_gone,
)

RATIO_MIN = {"logs": 0.8, "tables": 0.4}
ROUNDS = 3
TOPIC = "catchup"
STORED_AS = f"kafka/{TOPIC}"
CONFIGS = {"segment.ms": "1000", "local.retention.ms": "500"}
"""Configs like ``CONVERTING`` for native topics: log files soon become tables, and are deleted."""


def run(scale: Scale) -> list[Measure]:
    """Publish the same text records to a native topic and a Kafka topic, with their clients, and read them from there.

    First a restarted broker serves log files, then another one tables. Logs come from the disk.
    """
    with scratch(scale.directory) as folder:
        data = folder / "data"
        with _cluster(data, UNCONVERTED) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
            count = publish_text(client, NAME, scale.catchup_bytes // 2, RECORD_BYTES)
            _fill(client, cluster, count)
        with _cluster(data, UNCONVERTED) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
            measures = _read("logs", client, cluster, count, scale)
            if table_files(data) or table_files(data, STORED_AS):
                raise AssertionError("there are tables already: not all of it was read out of log files")
        with _cluster(data, CONVERTING) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
            for topic in (NAME, STORED_AS):
                until_in_tables(data, count, topic)
                until_logs_are_gone(data, topic)
            return measures + _read("tables", client, cluster, count, scale)


def _cluster(data: Path, settings: Mapping[str, float]) -> AbstractContextManager[BenchCluster]:
    return running_cluster(data, settings=settings, kafka=True)


def _fill(client: "seaweedmq.Client", cluster: BenchCluster, count: int) -> None:
    client.admin.create_topic(STORED_AS, partitions=1, durability="replicated", configs=CONFIGS)
    chunk = CHUNK_BYTES // RECORD_BYTES // BATCH_RECORDS * BATCH_RECORDS
    for seed, at in enumerate(range(0, count, chunk)):
        raw.produce(cluster.kafka, TOPIC, batches_of(text_table(min(chunk, count - at), seed, RECORD_BYTES)))


def _read(place: str, client: "seaweedmq.Client", cluster: BenchCluster, count: int, scale: Scale) -> list[Measure]:
    size = count * RECORD_BYTES

    def native() -> float:
        began = time.perf_counter()
        with client.subscriber(NAME, start="earliest", stop_at="latest") as reader:
            rows = sum(batch.num_rows for batch in reader.batches())
        if rows != count:
            raise AssertionError(f"{rows} of {count} records were read")
        return size / (time.perf_counter() - began) / MB

    def kafka() -> float:
        return size / raw.fetch_all(cluster.kafka, TOPIC, count) / MB

    samples = interleaved({"native": native, "kafka": kafka}, 1 if scale.quick else ROUNDS)
    of = f"native catch-up from {place}"
    return [
        yardstick(of, samples["native"], "MB/s"),
        compared(
            f"kafka_catchup_{place}",
            samples["kafka"],
            "MB/s",
            of,
            samples["native"],
            ratio_min=RATIO_MIN[place],
            bytes=size,
        ),
    ]
