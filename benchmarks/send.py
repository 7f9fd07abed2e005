"""Claim: one process sends 800,000 records of 100 B a second, one call each."""

import itertools
import time

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale

RECORDS_PER_S_MIN = 800_000
RECORD_BYTES = 100
DISTINCT_RECORDS = 50_000
KEYS = 1_000


def run(scale: Scale) -> list[Measure]:
    """Call ``send`` in a loop, to the last acknowledgement; without and with keys, over one and four segments."""
    values = [number.to_bytes(RECORD_BYTES, "big") for number in range(DISTINCT_RECORDS)]
    keys = [f"key-{number % KEYS}".encode() for number in range(DISTINCT_RECORDS)]
    repeats = -(-scale.send_records // DISTINCT_RECORDS)
    count = repeats * DISTINCT_RECORDS
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data") as cluster,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        for segments in (1, 4):
            client.admin.create_topic(
                f"bench/send-{segments}", segments=segments, durability="replicated", scaling="fixed"
            )

        def plain() -> float:
            with client.publisher("bench/send-1") as publisher:
                send = publisher.send
                began = time.perf_counter()
                for value in itertools.chain.from_iterable(itertools.repeat(values, repeats)):
                    send(value)
                publisher.flush(timeout=120)
                return count / (time.perf_counter() - began)

        def keyed() -> float:
            with client.publisher("bench/send-4") as publisher:
                send = publisher.send
                began = time.perf_counter()
                for _ in range(repeats):
                    for value, key in zip(values, keys, strict=True):
                        send(value, key=key)
                publisher.flush(timeout=120)
                return count / (time.perf_counter() - began)

        def calls() -> float:
            publisher = _Nothing()
            send = publisher.send
            began = time.perf_counter()
            for value in itertools.chain.from_iterable(itertools.repeat(values, repeats)):
                send(value)
            return count / (time.perf_counter() - began)

        samples = interleaved({"plain": plain, "keyed": keyed, "calls": calls}, scale.rounds)
    return [
        yardstick("python method calls", samples["calls"], "calls/s"),
        compared(
            "send_100b",
            samples["plain"],
            "records/s",
            "python method calls",
            samples["calls"],
            value_min=RECORDS_PER_S_MIN,
        ),
        compared("send_100b_keyed_4_segments", samples["keyed"], "records/s", "python method calls", samples["calls"]),
    ]


class _Nothing:
    """A method that only counts: the cost of a call itself."""

    def __init__(self) -> None:
        self.count = 0

    def send(self, value: bytes, *, key: bytes | None = None) -> None:
        self.count += 1
