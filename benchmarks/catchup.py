"""Claim: a subscriber that catches up from Parquet gets 0.40 of what pyarrow reads from the same files."""

import time

import pyarrow.parquet as pq

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.publish import MB, SETTINGS
from benchmarks.scale import Scale
from benchmarks.tables import NAME, RECORD_BYTES, make_tables, table_files

RATIO_MIN = 0.40
ROUNDS_MAX = 3
"""A round reads everything."""


def run(scale: Scale) -> list[Measure]:
    """From the earliest to the latest by batches, after a restart of the broker: its memory is empty, the system's page
    cache is warm for both sides. MB are 1,000,000 bytes of values.
    """
    with scratch(scale.directory) as folder:
        data = folder / "data"
        count = make_tables(data, scale.catchup_bytes)
        files = table_files(data)
        with (
            running_cluster(data, settings=SETTINGS) as cluster,
            seaweedmq.connect(cluster.bootstrap) as client,
        ):

            def subscriber() -> float:
                rows = 0
                began = time.perf_counter()
                with client.subscriber(NAME, start="earliest", stop_at="latest") as reader:
                    for batch in reader.batches():
                        rows += batch.num_rows
                return rate(rows, time.perf_counter() - began)

            def arrow() -> float:
                began = time.perf_counter()
                rows = sum(pq.read_table(path).num_rows for path in files)
                return rate(rows, time.perf_counter() - began)

            def rate(rows: int, seconds: float) -> float:
                if rows != count:
                    raise AssertionError(f"{rows} of {count} records were read")
                return rows * RECORD_BYTES / seconds / MB

            contestants = {"subscriber": subscriber, "pyarrow": arrow}
            samples = interleaved(contestants, min(scale.rounds, ROUNDS_MAX))
    of = "pyarrow reading the files"
    details = {"files": len(files), "bytes": count * RECORD_BYTES}
    return [
        yardstick(of, samples["pyarrow"], "MB/s"),
        compared(
            "catchup_parquet", samples["subscriber"], "MB/s", of, samples["pyarrow"], ratio_min=RATIO_MIN, **details
        ),
    ]
