"""Claim: one coordinator takes 5,000 OffsetCommits of a partition a second, p99 20 ms; beside it commits of twelve.

Thirty-two groups without members, each on its own connection, each waiting for its last commit.
"""

import asyncio
import itertools
import time
from typing import Any

from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest.errors import Failed
from benchmarks.kafka.wire import Talk, coordinator_of, decoded, encoded
from benchmarks.measure import Measure, compared, percentile, yardstick
from benchmarks.processes import answer, cpu_s, run_worker
from benchmarks.raw_stream import raw_stream
from benchmarks.scale import Scale
from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.kafka.wire.messages import API, CreateTopicsRequest, OffsetCommitRequest
from seaweedmq.model.kafka.codes import Code

COMMITS_PER_S_MIN = 5_000.0
P99_MS_MAX = 20.0
GROUPS = 32
VERSION = 7
INTERNAL_PARTITIONS = 8
TOPIC = "committed"
PARTITIONS = (1, 12)
"""Numbers of partitions of a commit."""
ROUNDS = 3
SECONDS, SECONDS_QUICK = 5.0, 1.0
WARM_UP_S = 0.5
COMMIT_BYTES = 512
TRIP = "raw round trip of 512 B p99, beside commits"
TRIPS_PER_S = "raw round trips a second, one after another"
COORDINATOR_TIMEOUT_S = 30.0


def run(scale: Scale) -> list[Measure]:
    """Measure on one broker with one replica."""
    found: dict[int, list[dict[str, float]]] = {partitions: [] for partitions in PARTITIONS}
    trips: list[list[float]] = []
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", kafka=True) as cluster,
        raw_stream() as raw,
    ):
        (pid,) = cluster.pids
        for _ in range(1 if scale.quick else ROUNDS):
            trips.append(raw.round_trips_ms(0.5, COMMIT_BYTES))
            seconds = SECONDS_QUICK if scale.quick else SECONDS
            for partitions, rounds in found.items():
                before_s = cpu_s(pid)
                arguments = {"bootstrap": cluster.kafka, "seconds": seconds, "partitions": partitions}
                one = run_worker("benchmarks.kafka.commits", **arguments)
                rounds.append(one | {"cpu_us": 1e6 * (cpu_s(pid) - before_s) / one["all"]})
    p99 = [percentile(trip, 0.99) for trip in trips]
    per_s = [1_000 / percentile(trip, 0.5) for trip in trips]
    measures = [yardstick(TRIPS_PER_S, per_s, "a second"), yardstick(TRIP, p99, "ms")]
    for partitions, rounds in found.items():
        suffix = "" if partitions == 1 else f"_{partitions}_partitions"
        rates, times = [one["per_s"] for one in rounds], [one["p99_ms"] for one in rounds]
        rate_min, p99_max = (COMMITS_PER_S_MIN, P99_MS_MAX) if partitions == 1 else (None, None)
        cpu_us = round(min(one["cpu_us"] for one in rounds))
        measures += [
            compared(
                f"kafka_commits{suffix}",
                rates,
                "commits/s",
                TRIPS_PER_S,
                per_s,
                value_min=rate_min,
                broker_cpu_us=cpu_us,
            ),
            compared(f"kafka_commit_p99{suffix}", times, "ms", TRIP, p99, value_max=p99_max),
        ]
    return measures


def group_names() -> list[str]:
    """Return groups of one partition of ``__consumer_offsets``, and so of one coordinator."""
    names = (f"commits-{number}" for number in itertools.count())
    return list(
        itertools.islice((name for name in names if partition_of_group(name, INTERNAL_PARTITIONS) == 0), GROUPS)
    )


async def _commit(bootstrap: str, seconds: float, partitions: int) -> dict[str, Any]:
    """Run the worker."""
    groups = group_names()
    address = await find_coordinator(bootstrap, groups[0])
    await _create(bootstrap)
    began = time.perf_counter()
    begin_s, end_s = began + WARM_UP_S, began + WARM_UP_S + seconds
    everything = await asyncio.gather(*(_commit_on(address, _request(group, partitions), end_s) for group in groups))
    done = sorted((ended_s, took_ms) for one in everything for ended_s, took_ms in one)
    counted = sorted(took_ms for ended_s, took_ms in done if begin_s <= ended_s < end_s)
    return {"per_s": len(counted) / seconds, "p99_ms": percentile(counted, 0.99), "all": len(done)}


async def find_coordinator(bootstrap: str, group: str) -> str:
    """Return ``host:port`` of a group's coordinator, once there is one: the first query makes the internal topic."""
    async with asyncio.timeout(COORDINATOR_TIMEOUT_S):
        while True:
            try:
                return await asyncio.to_thread(coordinator_of, bootstrap, group)
            except Failed:
                await asyncio.sleep(0.1)


async def _create(bootstrap: str) -> None:
    """Create a topic to commit offsets of, unless it exists."""
    talk = await Talk.open(bootstrap.split(",")[0])
    make = CreateTopicsRequest.CreatableTopic
    wanted = make(name=TOPIC, num_partitions=max(PARTITIONS), replication_factor=1, assignments=[], configs=[])
    reply = await talk.ask(API.CREATE_TOPICS, 4, topics=[wanted], timeout_ms=10_000, validate_only=False)
    talk.close()
    if reply.topics[0].error_code not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
        raise Failed(f"CreateTopics says error {reply.topics[0].error_code}")


async def _commit_on(address: str, request: bytes, end_s: float) -> list[tuple[float, float]]:
    """Return the time of each commit's answer, and its milliseconds. Replies that differ from the first are errors."""
    talk = await Talk.open(address)
    first = await talk.say(request)
    reply = decoded(API.OFFSET_COMMIT, VERSION, first)
    errors = {part.error_code for part in reply.topics[0].partitions}
    if errors != {0}:
        raise Failed(f"OffsetCommit says errors {sorted(errors)}")
    found: list[tuple[float, float]] = []
    now = time.perf_counter
    while (began_s := now()) < end_s:
        if await talk.say(request) != first:
            raise Failed("an OffsetCommit was answered otherwise than the first")
        found.append((now(), (now() - began_s) * 1e3))
    talk.close()
    return found


def _request(group: str, partitions: int) -> bytes:
    make = OffsetCommitRequest.OffsetCommitRequestTopic
    parts = [
        make.OffsetCommitRequestPartition(
            version=VERSION,
            partition_index=number,
            committed_offset=0,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for number in range(partitions)
    ]
    return encoded(
        API.OFFSET_COMMIT,
        VERSION,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[make(version=VERSION, name=TOPIC, partitions=parts)],
    )


if __name__ == "__main__":
    answer(_commit)
