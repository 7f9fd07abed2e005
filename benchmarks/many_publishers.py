"""200 publishers of one client, a topic each: the time to the first acknowledgement of all, and the cost of a record
per second each. The client is a separate process; a part of the suite ``topics``.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seaweedmq
from benchmarks.cluster import running_cluster
from benchmarks.measure import Measure, compared, percentile, yardstick
from benchmarks.processes import CORE, answer, cpu_s, run_worker
from benchmarks.raw_stream import raw_stream
from benchmarks.scale import Scale
from seaweedmq import aio

PUBLISHERS = 200
RECORDS_PER_S = 1
"""Rate of each."""
RECORD = b"x" * 100
FIRST_ACKS_S_MAX = 0.2
WARM_UP_S = 1.0
ROUNDS = 3
RAW_S = 0.5
RAW_MESSAGE_BYTES = 512
TRIP = "raw round trip, beside 200 publishers"


def publishing(folder: Path, scale: Scale) -> list[Measure]:
    """Measure on a cluster of one broker, topics of one segment, written."""
    rounds = 1 if scale.quick else ROUNDS
    with running_cluster(folder / "publishers") as cluster, raw_stream() as raw:
        with seaweedmq.connect(cluster.bootstrap) as client:
            names = [_topic_name(number) for number in range(PUBLISHERS)]
            client.admin.create_topics(names, durability="replicated", scaling="fixed")
        trip_s = [percentile(raw.round_trips_ms(RAW_S, RAW_MESSAGE_BYTES), 0.5) / 1e3 for _ in range(rounds)]
        found = run_worker(
            "benchmarks.many_publishers",
            bootstrap=cluster.bootstrap,
            pids=cluster.pids,
            rounds=rounds,
            seconds=scale.traffic_s,
        )
    first_acks = f"first_acks_{PUBLISHERS}_publishers"
    name = f"one_a_second_{PUBLISHERS}_topics"
    rate = {"records_per_s": round(found["records_per_s"])}
    return [
        yardstick(TRIP, trip_s, "s"),
        compared(first_acks, found["first_acks_s"], "s", TRIP, trip_s, value_max=FIRST_ACKS_S_MAX),
        compared(f"{name}_broker_cpu", [found["broker_percent"]], "%", CORE, [100.0], **rate),
        compared(f"{name}_client_cpu", [found["client_percent"]], "%", CORE, [100.0], **rate),
    ]


def _topic_name(number: int) -> str:
    return f"bench/many-{number}"


async def _measure(bootstrap: str, pids: Sequence[int], rounds: int, seconds: float) -> dict[str, Any]:
    """Run the worker: each round has a new client."""
    first_acks_s: list[float] = []
    for _ in range(rounds):
        async with aio.connect(bootstrap) as client:
            began = time.perf_counter()
            await asyncio.gather(*(_first_ack(client, number) for number in range(PUBLISHERS)))
            first_acks_s.append(time.perf_counter() - began)
    async with aio.connect(bootstrap) as client:
        publishers = await asyncio.gather(*(_first_ack(client, number) for number in range(PUBLISHERS)))
        await _send_in_turn(publishers, WARM_UP_S)
        broker_s, own_s, began = _sum_cpu_s(pids), time.process_time(), time.perf_counter()
        sent = await _send_in_turn(publishers, seconds)
        elapsed_s = time.perf_counter() - began
        broker_s, own_s = _sum_cpu_s(pids) - broker_s, time.process_time() - own_s
    return {
        "first_acks_s": first_acks_s,
        "records_per_s": sent / elapsed_s,
        "broker_percent": 100 * broker_s / elapsed_s,
        "client_percent": 100 * own_s / elapsed_s,
    }


async def _first_ack(client: aio.Client, number: int) -> aio.Publisher:
    publisher = await client.publisher(_topic_name(number))
    await (await publisher.send(RECORD))
    return publisher


async def _send_in_turn(publishers: Sequence[aio.Publisher], seconds: float) -> int:
    """Send a record per second to each, evenly spread; return their number after the last acknowledgement."""
    loop = asyncio.get_running_loop()
    rate = RECORDS_PER_S * len(publishers)
    count = round(seconds * rate)
    began_s = loop.time()
    for number in range(count):
        await asyncio.sleep(max(0.0, began_s + number / rate - loop.time()))
        await publishers[number % len(publishers)].send(RECORD)
    for publisher in publishers:
        await publisher.flush()
    return count


def _sum_cpu_s(pids: Sequence[int]) -> float:
    return sum(map(cpu_s, pids))


if __name__ == "__main__":
    answer(_measure)
