"""A topic with all records in Parquet files, made by a real cluster, for the suites that read files."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import seaweedmq
from benchmarks.cluster import running_cluster
from benchmarks.data import ROWS_PER_CHUNK, text_table
from benchmarks.scale import MIB

NAME = "bench/files"
WIDE = "bench/wide"
"""Rows of ten columns."""
WIDE_COLUMNS = 10
CHUNK_BYTES = 100_000_000
CONVERTING = {
    "maintenance_interval_s": 0.5,
    "log_roll_age_s": 1.0,  # the last log file is not full
    "log_grace_s": 0.5,  # so that the disk does not hold everything twice
}
"""Settings of a broker that soon converts log files to tables."""
TIMEOUT_S = 180.0
LOOK_INTERVAL_S = 0.2


def make_tables(data: Path, total_bytes: int, record_bytes: int, *, tables: int, wide_rows: int = 0) -> int:
    """Publish that many bytes of text records and wait until the log files have become tables.

    Args:
        tables: Number of tables, or more, if each can have a megabyte of records at least.
        wide_rows: Rows of a second topic, ``WIDE``.

    Returns:
        The number of records. The tables are ``table_files(data)``; the cluster is stopped.
    """
    settings = CONVERTING | {"log_roll_bytes": max(MIB, total_bytes // tables)}
    with running_cluster(data, settings=settings) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
        count = publish_text(client, NAME, total_bytes, record_bytes)
        if wide_rows:
            publish_wide(client, wide_rows)
            until_in_tables(data, wide_rows, WIDE)
        until_in_tables(data, count)
    return count


def publish_wide(client: "seaweedmq.Client", rows: int) -> None:
    """Create ``WIDE`` and fill it with so many rows of ten columns, ``c0`` to ``c9``: numbers and text."""
    rng = np.random.default_rng(1)
    kinds = [pa.int64(), pa.float64(), pa.string()]
    schema = pa.schema([(f"c{i}", kinds[i % 3]) for i in range(WIDE_COLUMNS)])
    client.admin.create_topic(WIDE, durability="replicated", scaling="fixed", schema=schema)
    with client.publisher(WIDE) as publisher:
        for at in range(0, rows, ROWS_PER_CHUNK):
            count = min(ROWS_PER_CHUNK, rows - at)
            columns = [pa.array(rng.integers(0, 2**40, count)).cast(field.type) for field in schema]
            publisher.send_table(pa.Table.from_arrays(columns, schema=schema))
        publisher.flush(timeout=TIMEOUT_S)


def publish_text(client: "seaweedmq.Client", topic: str, total_bytes: int, record_bytes: int) -> int:
    """Create a topic of one segment and fill it with text records; return their number, once acknowledged."""
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
    """Return once a topic has no log files left: a subscriber reads tables then."""
    began = time.monotonic()
    while left := list(topic_folder(data, topic).rglob("*.log")):
        if time.monotonic() > began + TIMEOUT_S:
            raise AssertionError(f"{len(left)} log files are still there after {TIMEOUT_S:.0f} s")
        time.sleep(LOOK_INTERVAL_S)


def topic_folder(data: Path, topic: str = NAME) -> Path:
    """Return the folder of a topic in the storage of a cluster on ``data``."""
    return data / "storage" / "topics" / topic


def table_files(data: Path, topic: str = NAME) -> list[Path]:
    """Return the Parquet files, in the order of their offsets."""
    return sorted((topic_folder(data, topic) / "table").glob("*.parquet"))


def _records(table: Path) -> int:
    base, end = table.stem.split("-")[-2:]
    return int(end) - int(base)
