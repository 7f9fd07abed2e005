"""A topic whose records all are in Parquet files, made by a real cluster, for the suites that read files."""

import time
from pathlib import Path

import seaweedmq
from benchmarks.cluster import running_cluster
from benchmarks.data import RECORD, text_table

NAME = "bench/files"
RECORD_BYTES = len(RECORD)
CHUNK_RECORDS = 1_000_000
SETTINGS = {
    "maintenance_interval_s": 0.5,
    "log_roll_age_s": 1.0,  # the last log file is not full
    "log_grace_s": 0.5,  # the disk need not hold everything twice
}
CONVERT_TIMEOUT_S = 180.0
LOOK_INTERVAL_S = 0.2


def make_tables(data: Path, total_bytes: int) -> int:
    """Publish that many bytes of 100-byte text records and wait until the log files have become tables.

    Returns:
        The number of records. The tables are in ``table_folder(data)``; the cluster is stopped.
    """
    count = total_bytes // RECORD_BYTES
    with running_cluster(data, settings=SETTINGS) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
        client.admin.create_topic(NAME, durability="replicated", scaling="fixed")
        with client.publisher(NAME) as publisher:
            for seed, at in enumerate(range(0, count, CHUNK_RECORDS)):
                publisher.send_table(text_table(min(CHUNK_RECORDS, count - at), seed))
            publisher.flush(timeout=CONVERT_TIMEOUT_S)
        began = time.monotonic()
        while (covered := sum(map(_records, table_files(data)))) < count:
            if time.monotonic() > began + CONVERT_TIMEOUT_S:
                raise AssertionError(f"tables hold {covered} of {count} records after {CONVERT_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_INTERVAL_S)
    return count


def topic_folder(data: Path) -> Path:
    """Of the topic, in the storage of a cluster on ``data``."""
    return data / "storage" / "topics" / NAME


def table_files(data: Path) -> list[Path]:
    """The Parquet files, in the order of their offsets."""
    return sorted((topic_folder(data) / "table").rglob("*.parquet"))


def _records(table: Path) -> int:
    base, end = table.stem.split("-")[-2:]
    return int(end) - int(base)
