"""Claims: a group reads batches at 0.8 of a plain subscriber, 300,000 single acknowledged messages a second, and 50
members redistribute 500 segments within 3 s, moving no more of them than needed.
"""

import asyncio
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Mapping

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.data import random_table
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.publish import MB, publish
from benchmarks.scale import Scale
from seaweedmq import aio
from seaweedmq.errors import NotFound

RATIO_MIN = 0.80
MESSAGES_PER_S_MIN = 300_000
SETTLE_S_MAX = 3.0
MOVES_RATIO_MAX = 1.0
TOPIC = "bench/grouped"
SHARED = "bench/shared"
GROUP = "members"
RECORD_BYTES = 100
MEMBERS = 50
SEGMENTS = 500
LEAVING = 10
LOOK_S = 0.02
WAIT_S = 60.0


def run(scale: Scale) -> list[Measure]:
    """Read from the broker's memory, 100 B records; then rebalance on three brokers."""
    return [*_reading(scale), *_rebalancing(scale)]


def _reading(scale: Scale) -> list[Measure]:
    table = random_table(scale.table_bytes, RECORD_BYTES)
    count = table.num_rows
    groups = itertools.count()
    joins_s = []
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data") as cluster,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        client.admin.create_topic(TOPIC, durability="replicated", scaling="fixed")
        publish(client, TOPIC, table)

        def batches(group: str | None) -> float:
            """Measure from the first batch on: joining takes as long for any records."""
            rows = 0
            opening = began = time.perf_counter()
            with client.subscriber(TOPIC, group=group, start="earliest", limit=count) as subscriber:
                for batch in subscriber.batches():
                    began = began if rows else time.perf_counter()
                    rows += batch.num_rows
                    subscriber.ack(batch)
                elapsed_s = time.perf_counter() - began
            if group is not None:
                joins_s.append(began - opening)
            return _checked(rows, count) * RECORD_BYTES / elapsed_s / MB

        def messages(group: str | None) -> float:
            rows = 0
            wanted = count // 2
            began = time.perf_counter()
            with client.subscriber(TOPIC, group=group, start="earliest", limit=wanted) as subscriber:
                for message in subscriber:
                    began = began if rows else time.perf_counter()
                    rows += 1
                    message.ack()
                elapsed_s = time.perf_counter() - began
            return _checked(rows, wanted) / elapsed_s

        contestants = {
            "plain batches": lambda: batches(None),
            "group batches": lambda: batches(f"g{next(groups)}"),
            "plain messages": lambda: messages(None),
            "group messages": lambda: messages(f"g{next(groups)}"),
        }
        samples = interleaved(contestants, scale.rounds)
    plain, grouped = samples["plain batches"], samples["group batches"]
    return [
        yardstick("plain subscriber, batches", plain, "MB/s"),
        yardstick("plain subscriber, messages", samples["plain messages"], "records/s"),
        compared(
            "group_batches",
            grouped,
            "MB/s",
            "plain subscriber, batches",
            plain,
            ratio_min=RATIO_MIN,
            join_s=statistics.median(joins_s),
        ),
        compared(
            "group_messages_acked",
            samples["group messages"],
            "records/s",
            "plain subscriber, messages",
            samples["plain messages"],
            value_min=MESSAGES_PER_S_MIN,
        ),
    ]


def _rebalancing(scale: Scale) -> list[Measure]:
    rounds = max(1, scale.rounds // 2)
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", brokers=3) as cluster,
    ):
        looks_s, leaves_s, joins_s, moved, needed = asyncio.run(_rebalance(cluster.bootstrap, rounds))
    return [
        yardstick("describe the group", looks_s, "s"),
        compared("group_settle_leave", leaves_s, "s", "describe the group", looks_s, value_max=SETTLE_S_MAX),
        compared("group_settle_join", joins_s, "s", "describe the group", looks_s, value_max=SETTLE_S_MAX),
        yardstick("fewest moves", needed, "segments"),
        compared("group_moves", moved, "segments", "fewest moves", needed, ratio_max=MOVES_RATIO_MAX),
    ]


async def _rebalance(
    bootstrap: str, rounds: int
) -> tuple[list[float], list[float], list[float], list[float], list[float]]:
    """Let ten of the members leave, then ten others join; return seconds of a call, to settle, and numbers of moves."""
    looks_s, leaves_s, joins_s, moved, needed = [], [], [], [], []
    async with aio.connect(bootstrap) as client:
        await client.admin.create_topic(SHARED, segments=SEGMENTS, scaling="fixed")
        members = await asyncio.gather(*(_join(client) for _ in range(MEMBERS)))
        owners = await _settled(client, MEMBERS)
        for _ in range(rounds):
            began = time.perf_counter()
            await client.admin.describe_group(GROUP)
            looks_s.append(time.perf_counter() - began)

            began = time.perf_counter()
            left = {member.member for member in members[:LEAVING]}
            await asyncio.gather(*(member.close() for member in members[:LEAVING]))
            after = await _settled(client, MEMBERS - LEAVING)
            leaves_s.append(time.perf_counter() - began)
            moves = sum(owners[segment] != after[segment] for segment in owners)
            least = sum(owner in left for owner in owners.values())

            began = time.perf_counter()
            members = members[LEAVING:] + await asyncio.gather(*(_join(client) for _ in range(LEAVING)))
            owners = await _settled(client, MEMBERS)
            joins_s.append(time.perf_counter() - began)
            moves += sum(owners[segment] != after[segment] for segment in owners)
            least += LEAVING * (SEGMENTS // MEMBERS)
            moved.append(float(moves))
            needed.append(float(least))
    return looks_s, leaves_s, joins_s, moved, needed


async def _join(client: aio.Client) -> aio.GroupSubscriber:
    return await client.subscriber(SHARED, group=GROUP, start="earliest")


async def _settled(client: aio.Client, members: int) -> Mapping[int, str]:
    """Return the owner of each segment, once all have one and the numbers per member differ by at most one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            owners = await _owners(client)
            counts = Counter(owners.values())
            if len(owners) == SEGMENTS and len(counts) == members and max(counts.values()) - min(counts.values()) <= 1:
                return owners
            await asyncio.sleep(LOOK_S)


async def _owners(client: aio.Client) -> dict[int, str]:
    try:
        description = await client.admin.describe_group(GROUP)
    except NotFound:
        return {}
    return {lag.segment: lag.owner for topic in description.topics for lag in topic.segments if lag.owner}


def _checked(rows: int, wanted: int) -> int:
    if rows != wanted:
        raise AssertionError(f"{rows} records were delivered where {wanted} were published")
    return rows
