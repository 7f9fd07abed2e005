"""A member of a group that only commits, and measures how long commits fail: a process of ``failover``.

It can pause fetching, which separates a coordinator that is slow to come back from a client that is slow to find it:
librdkafka queries the coordinator on a connection on which its Fetch may be waiting for records, and replies come in
order. Its own schedule is part of the figure: it may query the broker that just died, and then another one half a
second later; and a commit that it retried meanwhile fails when the coordinator's address changes, which it considers
the death of the new one, and queries again. Seen in the log of librdkafka 2.16 with SeaweedMQ; Apache Kafka was not
tested.
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
    """Measurements of one member."""

    commits: int
    gap_s: float
    """The longest time between two successful commits."""
    rebalances: int
    """Rebalances after the first assignment."""
    failed: dict[str, int]
    """Commits that the client returned, by the name of the error: the member retries them."""


def commit_on_and_on(*, servers: str, topic: str, group: str, is_paused: bool, ready: Event, stop: Event) -> Commits:
    """Join, and commit every 20 ms until stopped.

    Args:
        is_paused: Whether not to fetch.
        ready: Set after the first commit.

    Raises:
        Failed: If the group is not formed, or lacks the last commit.
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
    consumer.poll(COMMIT_EVERY_S)  # handles a rebalance that the last commit met
    rebalances = changes - 1
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=JOIN_TIMEOUT_S)
    if not last <= found.offset <= number:
        raise Failed(f"group {group} has committed {found.offset}, and acknowledged {last}")
    consumer.close()
    return Commits(commits=commits, gap_s=gap_s, rebalances=rebalances, failed=failed)
