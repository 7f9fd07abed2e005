"""A member of a group that does nothing but commit, and sees how long it can not: a process of ``failover``.

It can be told not to fetch, which tells a coordinator that is slow to come back from a client that is slow to find it:
librdkafka asks for the coordinator on a connection on which its Fetch may be waiting for records, and replies come in
order. Its own schedule is part of the figure: it may ask the broker that just died, and then asks another one half a
second later; and a commit that it tried again meanwhile fails when the coordinator's address changes, which it takes
for the death of the new one, and asks again. Seen in the log of librdkafka 2.16 against us; Apache Kafka was not tried.
"""

import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.contest.errors import Failed

COMMIT_EVERY_S = 0.02
JOIN_TIMEOUT_S = 60.0
SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """What a member met."""

    commits: int
    gap_s: float
    """The longest time between two commits that went well."""
    rebalances: int
    """After the first assignment."""
    failed: dict[str, int]
    """Commits that the client gave back, by the name of the error: the member tries again."""


def commit_on_and_on(*, servers: str, topic: str, group: str, is_paused: bool, ready: Event, stop: Event) -> Commits:
    """Join, and commit every 20 ms until told to stop.

    Args:
        is_paused: do not fetch.
        ready: set after the first commit.

    Raises:
        Failed: the group does not come about, or has not what was committed.
    """
    changes = commits = number = last = 0
    failed: dict[str, int] = {}

    def changed(_: object, partitions: list[Any]) -> None:
        nonlocal changes
        changes += 1

    consumer = Consumer(SETTINGS | {"bootstrap.servers": servers, "group.id": group})
    consumer.subscribe([topic], on_assign=changed, on_revoke=changed, on_lost=changed)
    end = time.monotonic() + JOIN_TIMEOUT_S
    while not changes:
        if time.monotonic() > end:
            raise Failed(f"group {group} has no partitions after {JOIN_TIMEOUT_S:.0f} s")
        consumer.poll(0.1)
    if is_paused:
        consumer.pause(consumer.assignment())
    committed_s, gap_s = 0.0, 0.0
    while not stop.is_set():
        consumer.poll(COMMIT_EVERY_S)
        number += 1
        try:
            results = consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
            error = results[0].error
        except KafkaException as raised:
            error = raised.args[0]
        if error is not None:
            failed[error.name()] = failed.get(error.name(), 0) + 1
            continue
        now_s = time.monotonic()
        gap_s = max(gap_s, now_s - committed_s if commits else 0.0)
        committed_s, commits, last = now_s, commits + 1, number
        ready.set()
    consumer.poll(COMMIT_EVERY_S)  # hears of a rebalance that the last commit met
    rebalances = changes - 1
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=JOIN_TIMEOUT_S)
    if not last <= found.offset <= number:
        raise Failed(f"group {group} has committed {found.offset}, and was told that it has {last}")
    consumer.close()
    return Commits(commits=commits, gap_s=gap_s, rebalances=rebalances, failed=failed)
