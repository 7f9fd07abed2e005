"""Claim: a subscriber that catches up from Parquet gets 0.40 of pyarrow's rate with the same files.

It also measures reading from the beginning out of memory, log files and tables, by batches and by messages.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.publish import MB
from benchmarks.raw_stream import RawStream, raw_stream
from benchmarks.scale import Scale
from benchmarks.tables import CONVERTING, NAME, publish_text, table_files, until_in_tables, until_logs_are_gone

UNCONVERTED = {"maintenance_interval_s": 3_600}
"""Settings with which log files are not converted."""
RATIO_MIN = 0.40
RECORD_BYTES = 1_000
MEMORY_BYTES_MAX = 200_000_000
"""Bytes that certainly fit in the memory of a broker."""
ROUNDS = 3
"""Number of rounds: each reads everything."""
WARM = "bench/warm"
PYARROW = "pyarrow reading the files"


def run(scale: Scale) -> list[Measure]:
    """Read from memory; then log files through a restarted broker with empty memory; then, through another one, tables.

    Log files come from the disk, since brokers leave none in the page cache; tables from there. MB are 1,000,000 bytes
    of values.
    """
    with scratch(scale.directory) as folder, raw_stream() as raw:
        data = folder / "data"
        with running_cluster(data, settings=UNCONVERTED) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
            warm = publish_text(client, WARM, min(scale.catchup_bytes, MEMORY_BYTES_MAX), RECORD_BYTES)
            measures = _of_place("memory", warm, _read(client, raw, WARM, warm, scale))
            count = publish_text(client, NAME, scale.catchup_bytes, RECORD_BYTES)
        with running_cluster(data, settings=UNCONVERTED) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
            measures += _of_place("logs", count, _read(client, raw, NAME, count, scale))
            if table_files(data):
                raise AssertionError("there are tables already: not all of it was read out of log files")
        with running_cluster(data, settings=CONVERTING) as cluster, seaweedmq.connect(cluster.bootstrap) as client:
            until_in_tables(data, count)
            until_logs_are_gone(data)
            files = table_files(data)
            samples = _read(client, raw, NAME, count, scale, pyarrow=partial(_pyarrow, files, count))
            measures += _of_place("tables", count, samples)
    arrow, details = samples["pyarrow"], {"files": len(files), "bytes": count * RECORD_BYTES}
    return [
        *measures,
        yardstick(PYARROW, arrow, "MB/s"),
        compared("catchup_parquet", samples["batches"], "MB/s", PYARROW, arrow, ratio_min=RATIO_MIN, **details),
    ]


def _read(
    client: "seaweedmq.Client", raw: RawStream, topic: str, count: int, scale: Scale, **others: Callable[[], float]
) -> dict[str, list[float]]:
    """Read all from the beginning, in rounds with other readers of as much; return MB/s of each."""
    contestants: dict[str, Callable[[], float]] = {
        "raw": lambda: raw.pull(count * RECORD_BYTES) / MB,
        "batches": partial(_batches, client, topic, count),
        "messages": partial(_messages, client, topic, count),
        **others,
    }
    return interleaved(contestants, 1 if scale.quick else ROUNDS)


def _of_place(place: str, count: int, samples: Mapping[str, list[float]]) -> list[Measure]:
    of, size = f"raw stream to client, beside {place}", {"bytes": count * RECORD_BYTES}
    rows = [
        compared(f"catchup_{place}_{how}", samples[how], "MB/s", of, samples["raw"], **size)
        for how in ("batches", "messages")
    ]
    return [yardstick(of, samples["raw"], "MB/s"), *rows]


def _batches(client: "seaweedmq.Client", topic: str, count: int) -> float:
    began = time.perf_counter()
    with client.subscriber(topic, start="earliest", stop_at="latest") as reader:
        rows = sum(batch.num_rows for batch in reader.batches())
    return _rate(rows, count, began)


def _messages(client: "seaweedmq.Client", topic: str, count: int) -> float:
    began = time.perf_counter()
    with client.subscriber(topic, start="earliest", stop_at="latest") as reader:
        rows = sum(len(message.value) == RECORD_BYTES for message in reader)
    return _rate(rows, count, began)


def _pyarrow(files: Sequence[Path], count: int) -> float:
    began = time.perf_counter()
    return _rate(sum(pq.read_table(path).num_rows for path in files), count, began)


def _rate(rows: int, count: int, began: float) -> float:
    if rows != count:
        raise AssertionError(f"{rows} of {count} records were read")
    return rows * RECORD_BYTES / (time.perf_counter() - began) / MB
