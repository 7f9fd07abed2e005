"""Claim: beside other clients a heartbeat, a produce, a native publish and its delivery have a p99 of at most 3 times
the quiet one.

Neighbors are Kafka and native clients: each API at its largest request, 1,000 idle and 1,000 half-open connections,
50 connections that flood.
"""

from collections.abc import Sequence

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest.process import ClientProcess
from benchmarks.kafka.wire import coordinator_of
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.neighbors.native import create_topics
from benchmarks.neighbors.probe import CALLS, NATIVE_TOPIC, P99s, Probe
from benchmarks.neighbors.requests import GROUP, TOPIC
from benchmarks.neighbors.run import Addresses, Orders, all_neighbors, disturb
from benchmarks.scale import Scale

RATIO_MAX = 3.0
SECONDS, SECONDS_QUICK = 2.0, 0.5
ROUNDS = 3
QUICK = ("kafka_flood", "kafka_metadata", "native_flood", "native_publish")
STOP_TIMEOUT_S = 60.0


def run(scale: Scale) -> list[Measure]:
    """Measure on one broker. The quiet figures are measured again before each neighbor."""
    seconds, rounds = (SECONDS_QUICK, 1) if scale.quick else (SECONDS, ROUNDS)
    measures: list[Measure] = []
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", kafka=True) as cluster,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        client.admin.create_topic(f"kafka/{TOPIC}", partitions=1, durability="replicated")
        client.admin.create_topic(NATIVE_TOPIC, durability="replicated", scaling="fixed")
        create_topics(client)
        addresses, orders = Addresses(cluster.bootstrap, coordinator_of(cluster.kafka, GROUP)), Orders()
        with Probe(client, addresses) as calls, ClientProcess(disturb, addresses=addresses, orders=orders) as process:
            for name in scale.parts or (QUICK if scale.quick else all_neighbors()):
                quiet, beside, requests = [], [], 0
                for _ in range(rounds):
                    quiet.append(calls.p99s_ms(seconds))
                    orders.ready.clear()
                    orders.stop.clear()
                    orders.names.put(name)
                    process.expect(orders.ready)
                    beside.append(calls.p99s_ms(seconds))
                    orders.stop.set()
                    requests += orders.requests.get(timeout=STOP_TIMEOUT_S)
                measures += _compared(name, quiet, beside, scale, requests)
            orders.names.put(None)
            process.result()
    return measures


def _compared(name: str, quiet: Sequence[P99s], beside: Sequence[P99s], scale: Scale, requests: int) -> list[Measure]:
    """Return two lines for each of the calls."""
    measures: list[Measure] = []
    for call in CALLS:
        of = f"{call} p99, before {name}"
        before, while_there = [one[call] for one in quiet], [one[call] for one in beside]
        ratio_max = scale.target(RATIO_MAX)
        ours = compared(
            f"{call}_p99_beside_{name}", while_there, "ms", of, before, ratio_max=ratio_max, requests=requests
        )
        measures += [yardstick(of, before, "ms"), ours]
    return measures
