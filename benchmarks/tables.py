"""A topic whose records all are in Parquet files, made by a real cluster, for the suites that read files."""

import time
from pathlib import Path

import seaweedmq
from benchmarks.cluster import running_cluster
from benchmarks.data import RECORD, text_table

NAME = "bench/files"
RECORD_BYTES = len(RECORD)
CHUNK_BYTES = 100_000_000
CONVERTING = {
    "maintenance_interval_s": 0.5,
    "log_roll_age_s": 1.0,  # the last log file is not full
    "log_grace_s": 0.5,  # the disk need not hold everything twice
}
"""Settings of a broker that turns log files into tables soon."""
TIMEOUT_S = 180.0
LOOK_INTERVAL_S = 0.2


def make_tables(data: Path, total_bytes: int) -> int:
    """Publish that many bytes of 100-byte text records and wait until the log files have become tables.

    Returns:
        The number of records. The tables are ``table_files(data)``; the cluster is stopped.
    """
    with running_cluster(data, settings=CONVERTING) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
        count = publish_text(client, NAME, total_bytes, RECORD_BYTES)
        until_in_tables(data, count)
    return count


def publish_text(client: "seaweedmq.Client", topic: str, total_bytes: int, record_bytes: int) -> int:
    """Create a topic of one segment and fill it with text records; how many they are, all acknowledged."""
    count, chunk = total_bytes // record_bytes, CHUNK_BYTES // record_bytes
    client.admin.create_topic(topic, durability="replicated", scaling="fixed")
    with client.publisher(topic) as publisher:
        for seed, at in enumerate(range(0, count, chunk)):
            publisher.send_table(text_table(min(chunk, count - at), seed, record_bytes))
        publisher.flush(timeout=TIMEOUT_S)
    return count


def until_in_tables(data: Path, count: int, topic: str = NAME) -> None:
    """Return once tables hold so many records of a topic."""
    began = time.monotonic()
    while (covered := sum(map(_records, table_files(data, topic)))) < count:
        if time.monotonic() > began + TIMEOUT_S:
            raise AssertionError(f"tables hold {covered} of {count} records after {TIMEOUT_S:.0f} s")
        time.sleep(LOOK_INTERVAL_S)


def until_logs_are_gone(data: Path, topic: str = NAME) -> None:
    """Return once a topic has no log files any more: a subscriber reads tables then."""
    began = time.monotonic()
    while left := list(topic_folder(data, topic).rglob("*.log")):
        if time.monotonic() > began + TIMEOUT_S:
            raise AssertionError(f"{len(left)} log files are still there after {TIMEOUT_S:.0f} s")
        time.sleep(LOOK_INTERVAL_S)


def topic_folder(data: Path, topic: str = NAME) -> Path:
    """Of a topic, in the storage of a cluster on ``data``."""
    return data / "storage" / "topics" / topic


def table_files(data: Path, topic: str = NAME) -> list[Path]:
    """The Parquet files, in the order of their offsets."""
    return sorted((topic_folder(data, topic) / "table").rglob("*.parquet"))


def _records(table: Path) -> int:
    base, end = table.stem.split("-")[-2:]
    return int(end) - int(base)
