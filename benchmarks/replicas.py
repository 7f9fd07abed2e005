"""Claims: with two replicas, tables are published at 0.30 of a raw gRPC stream, and 10,000 records/s arrive in time."""

import seaweedmq
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.latency import delivery_times
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.publish import MB, RECORD_BYTES, publishing, streaming
from benchmarks.raw_stream import RawStream, raw_stream
from benchmarks.scale import Scale

RATIO_MIN = 0.30
P50_MS_MAX = 5.0
P99_MS_MAX = 20.0
BROKERS = 3
REPLICAS = 2
SUFFIX, BESIDE = "_2_replicas", ", beside 2 replicas"
LEVEL = {"replicated": "replicated"}
"""Acknowledged once both replicas hold it and it is in the file."""


def run(scale: Scale) -> list[Measure]:
    """Measure as the suites ``publish`` and ``latency``, but on three brokers with two replicas."""
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", brokers=BROKERS) as cluster,
        raw_stream() as raw,
        raw_stream(tuned=False) as untuned,
    ):
        published = _publish(cluster, raw, untuned, scale)
        delivered = delivery_times(
            cluster,
            raw,
            scale,
            replicas=REPLICAS,
            p50_ms_max=P50_MS_MAX,
            p99_ms_max=P99_MS_MAX,
            suffix=SUFFIX,
            beside=BESIDE,
        )
    return published + delivered


def _publish(cluster: BenchCluster, raw: RawStream, untuned: RawStream, scale: Scale) -> list[Measure]:
    """Publish tables of 100 B and 1 KB records. MB are 1,000,000 bytes of values."""
    with seaweedmq.connect(cluster.bootstrap) as client:
        contestants = streaming(raw, untuned, scale) | publishing(client, scale, LEVEL, replicas=REPLICAS)
        samples = {name: [s / MB for s in found] for name, found in interleaved(contestants, scale.rounds).items()}
    of, of_untuned = f"raw stream{BESIDE}", f"raw stream, untuned{BESIDE}"
    measures = [yardstick(of, samples["raw"], "MB/s"), yardstick(of_untuned, samples["untuned"], "MB/s")]
    for records in RECORD_BYTES:
        name, ours = f"publish_table_{records}{SUFFIX}", samples[f"{records} replicated"]
        measures.append(compared(name, ours, "MB/s", of, samples["raw"], ratio_min=RATIO_MIN))
        measures.append(compared(f"{name}_untuned", ours, "MB/s", of_untuned, samples["untuned"]))
    return measures
