"""Claim: publishing a table runs at 0.60 of a raw gRPC stream, and stored at 0.60 of that or of the raw disk."""

import time
from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.data import random_table
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.raw_disk import append_and_sync
from benchmarks.raw_stream import RawStream, raw_stream
from benchmarks.scale import MIB, Scale

RATIO_MIN = 0.60
RECORD_BYTES = {"100b": 100, "1kb": 1_000}
LEVELS = {"written": "replicated", "stored": "stored"}
"""Level written: acknowledged once in the file, fsync later. That is ``replicated`` with one replica."""
MB = 1e6
Contestant = Callable[[], float]
"""Work that runs once and returns bytes per second."""


def run(scale: Scale) -> list[Measure]:
    """Publish tables of 100 B and 1 KB records, one replica, both durabilities. MB are 1,000,000 bytes of values."""
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data") as cluster,
        raw_stream() as raw,
        raw_stream(tuned=False) as untuned,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        contestants = {
            **streaming(raw, untuned, scale),
            **publishing(client, scale, LEVELS, replicas=1),
            "one object": lambda: raw.push(scale.table_bytes, one_object=True),
            "disk 1 MiB": lambda: append_and_sync(folder, scale.table_bytes // 4, MIB),
            "disk 8 MiB": lambda: append_and_sync(folder, scale.table_bytes, 8 * MIB),
        }
        samples = {name: [s / MB for s in found] for name, found in interleaved(contestants, scale.rounds).items()}
    raw_mb, disk_mb = samples["raw"], samples["disk 1 MiB"]
    slower_mb = [min(pair) for pair in zip(raw_mb, disk_mb, strict=True)]
    measures = [
        yardstick("raw stream", raw_mb, "MB/s"),
        yardstick("raw stream, untuned", samples["untuned"], "MB/s"),
        yardstick("raw stream, one object", samples["one object"], "MB/s"),
        yardstick("raw append + fdatasync, 1 MiB", disk_mb, "MB/s"),
        yardstick("raw append + fdatasync, 8 MiB", samples["disk 8 MiB"], "MB/s"),
        yardstick("slower of raw stream and raw disk", slower_mb, "MB/s"),
    ]
    for records in RECORD_BYTES:
        name = f"publish_table_{records}"
        written, stored = samples[f"{records} written"], samples[f"{records} stored"]
        measures.append(compared(f"{name}_written", written, "MB/s", "raw stream", raw_mb, ratio_min=RATIO_MIN))
        beside = "raw stream, untuned"
        measures.append(compared(f"{name}_written_untuned", written, "MB/s", beside, samples["untuned"]))
        slower = "slower of raw stream and raw disk"
        measures.append(compared(f"{name}_stored", stored, "MB/s", slower, slower_mb, ratio_min=RATIO_MIN))
    return measures


def streaming(raw: RawStream, untuned: RawStream, scale: Scale) -> dict[str, Contestant]:
    """Return the yardsticks ``raw`` and ``untuned``: as many bytes in messages of 1 MiB."""
    return {
        "raw": lambda: raw.push(scale.table_bytes),
        "untuned": lambda: untuned.push(scale.table_bytes),
    }


def publishing(
    client: "seaweedmq.Client", scale: Scale, levels: Mapping[str, str], *, replicas: int
) -> dict[str, Contestant]:
    """Return ``<record size> <level>``, each with a table and a topic of one segment.

    Args:
        levels: Name -> durability.
    """
    contestants: dict[str, Contestant] = {}
    for records, size in RECORD_BYTES.items():
        table = random_table(scale.table_bytes, size)
        for level, durability in levels.items():
            topic = f"bench/{records}-{level}"
            client.admin.create_topic(topic, replicas=replicas, durability=durability, scaling="fixed")
            contestants[f"{records} {level}"] = partial(publish, client, topic, table)
    return contestants


def publish(client: "seaweedmq.Client", topic: str, table: pa.Table) -> float:
    """Send the table and wait until every row is acknowledged; return bytes of values per second."""
    with client.publisher(topic) as publisher:
        began = time.perf_counter()
        receipt = publisher.send_table(table)
        publisher.flush(timeout=120)
        took = time.perf_counter() - began
        receipt.result(timeout=0)
    return float(table.column("_value").nbytes - 4 * (table.num_rows + 1)) / took
