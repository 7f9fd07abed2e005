"""Claims: warm subscribers get batches at half the speed of a raw gRPC stream, and 500,000 single messages a second."""

import time

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.data import random_table
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.publish import MB, publish
from benchmarks.raw_stream import raw_stream
from benchmarks.scale import Scale

RATIO_MIN = 0.50
MESSAGES_PER_S_MIN = 500_000
TOPIC = "bench/warm"
RECORD_BYTES = 100


def run(scale: Scale) -> list[Measure]:
    """Read from the broker's memory, 100 B records, from the earliest to the latest."""
    table = random_table(scale.table_bytes, RECORD_BYTES)
    count = table.num_rows
    values = table.column("_value").chunk(0)
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data") as cluster,
        raw_stream() as raw,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        client.admin.create_topic(TOPIC, durability="replicated", scaling="fixed")
        publish(client, TOPIC, table)

        def batches() -> float:
            rows = 0
            began = time.perf_counter()
            with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
                for batch in subscriber.batches():
                    rows += batch.num_rows
            return _checked(rows, count) * RECORD_BYTES / (time.perf_counter() - began)

        def messages() -> float:
            rows = 0
            wanted = count // 2
            began = time.perf_counter()
            with client.subscriber(TOPIC, start="earliest", limit=wanted) as subscriber:
                for message in subscriber:
                    rows += len(message.value) == RECORD_BYTES
            return _checked(rows, wanted) / (time.perf_counter() - began)

        def to_python() -> float:
            began = time.perf_counter()
            rows = 0
            for at in range(0, count // 2, 4096):
                rows += len(values.slice(at, 4096).to_pylist())
            return rows / (time.perf_counter() - began)

        contestants = {
            "raw": lambda: raw.pull(scale.table_bytes),
            "batches": batches,
            "messages": messages,
            "to_pylist": to_python,
        }
        samples = interleaved(contestants, scale.rounds)
    raw_mb = [s / MB for s in samples["raw"]]
    batches_mb = [s / MB for s in samples["batches"]]
    return [
        yardstick("raw stream to client", raw_mb, "MB/s"),
        yardstick("pyarrow to_pylist", samples["to_pylist"], "records/s"),
        compared("subscribe_batches_warm", batches_mb, "MB/s", "raw stream to client", raw_mb, ratio_min=RATIO_MIN),
        compared(
            "subscribe_messages",
            samples["messages"],
            "records/s",
            "pyarrow to_pylist",
            samples["to_pylist"],
            value_min=MESSAGES_PER_S_MIN,
        ),
    ]


def _checked(rows: int, wanted: int) -> int:
    if rows != wanted:
        raise AssertionError(f"{rows} records were delivered where {wanted} were published")
    return rows
