"""Claim: a topic with 10,000 tables gets a version of its Delta log for one more in 50 ms (p50), outside of the broker.

Each table is a real Parquet file, of a few records, that is opened as it enters the log. The measured time is that of
the table worker after a conversion: listing the folder, selecting live tables, reading the new table's footer, and the
commit, which is fsynced; checkpoints and removal of old versions are among the samples.
"""

import os
import statistics
import time
from pathlib import Path

import psutil
import pyarrow as pa

from benchmarks.cluster import scratch
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.codec.frame import FLAG_KEY, FrameHeader, split_frames
from seaweedmq.codec.paths import table_path
from seaweedmq.codec.payload.batch import decode_frame, encode_frame, payload_schema
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables.delta.updater import DeltaLogs
from seaweedmq.storage.tables.format import TableWriter

TABLES, TABLES_QUICK = 10_000, 1_000
COMMITS, COMMITS_QUICK = 200, 60
ROWS = 3
P50_MS_MAX = 50.0
SEGMENTS = 4


def run(scale: Scale) -> list[Measure]:
    """Measure commits one after another by one process, and one by a process without knowledge of the log."""
    tables, commits = (TABLES_QUICK, COMMITS_QUICK) if scale.quick else (TABLES, COMMITS)
    with scratch(scale.directory) as folder:
        writer = _Tables(folder)
        for _ in range(tables):
            writer.add()
        process = psutil.Process()
        before = process.memory_info().rss
        logs = DeltaLogs()
        began = time.perf_counter()
        logs.reconcile(DirectoryPlace(folder), writer.topic)
        first_s = time.perf_counter() - began
        warm_ms, cold_ms, disk_ms = [], [], []
        for number in range(commits):
            writer.add()
            disk_ms.append(_disk_ms(folder))
            warm_ms.append(_commit_ms(logs, folder, writer.topic))
            if number % 20 == 0:
                writer.add()
                cold_ms.append(_commit_ms(DeltaLogs(), folder, writer.topic))
        grown = process.memory_info().rss - before
    of = "a file of 1 KB created, fsynced and named"
    ordered = sorted(warm_ms)
    return [
        yardstick(of, disk_ms, "ms"),
        compared(
            "delta_commit_p50",
            warm_ms,
            "ms",
            of,
            disk_ms,
            value_max=scale.target(P50_MS_MAX),
            p99_ms=round(ordered[int(0.99 * (len(ordered) - 1))], 1),
            tables=tables,
            commits=commits,
            first_commit_s=round(first_s, 2),
            memory_grown_bytes=grown,
        ),
        compared(
            "delta_commit_of_a_new_process",
            cold_ms,
            "ms",
            of,
            [statistics.median(disk_ms)] * len(cold_ms),
            tables=tables,
        ),
    ]


class _Tables:
    """Adds tables of a few records to a topic, to one segment after another."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.topic = Topic(
            name=TopicName("bench", "delta"),
            uid=1,
            replicas=1,
            durability=Durability.STORED,
            scaling=Scaling.AUTO,
            schema=None,
            retention_s=None,
            retention_bytes=None,
            next_segment=SEGMENTS,
            created_us=0,
        )
        self._count = 0
        self._batch, self._header = _records()
        (root / table_path(self.topic.name, 0, 0, 1)).parent.mkdir(parents=True)

    def add(self) -> None:
        segment, base = self._count % SEGMENTS, self._count // SEGMENTS * ROWS
        self._count += 1
        path = self._root / table_path(self.topic.name, segment, base, base + ROWS)
        with path.open("x+b") as sink:
            writer = TableWriter(sink, self.topic, segment, None, 1 << 20)
            writer.add(self._batch, self._header._replace(base_offset=base), 0, ROWS)
            writer.close()


def _records() -> tuple[pa.RecordBatch, FrameHeader]:
    columns = [pa.array([b"key"] * ROWS, pa.binary()), pa.array([b"value"] * ROWS, pa.binary())]
    batch = pa.RecordBatch.from_arrays(columns, schema=payload_schema(FLAG_KEY, None))
    encoded = encode_frame(
        batch,
        flags=FLAG_KEY,
        producer_id=1,
        producer_epoch=0,
        first_sequence=0,
        timestamp_min=1_700_000_000_000_000,
        timestamp_max=1_700_000_000_000_000,
        slot_min=0,
        slot_max=0,
        histogram=(0,) * 16,
    )
    (frame,) = split_frames(encoded)
    return decode_frame(frame, None), frame.header


def _commit_ms(logs: DeltaLogs, root: Path, topic: Topic) -> float:
    began = time.perf_counter()
    if logs.reconcile(DirectoryPlace(root), topic) is None:
        raise AssertionError("a new table made no version")
    return (time.perf_counter() - began) * 1_000


def _disk_ms(folder: Path) -> float:
    """Return the minimum of any commit: its file and its folder made durable."""
    temporary, final = folder / ".tmp", folder / f"raw-{time.perf_counter_ns()}"
    began = time.perf_counter()
    with temporary.open("wb") as file:
        file.write(bytes(1_000))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(final)
    file_io.sync_directory(folder)
    took = (time.perf_counter() - began) * 1_000
    final.unlink()
    return took
