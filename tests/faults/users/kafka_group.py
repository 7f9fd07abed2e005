"""A consumer group of librdkafka members, their delivered records, and the times for which they could not commit."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.faults.users.kafka_member import LOG_LEVEL, SESSION_S
from tests.faults.users.members import LOOK_S, Members
from tests.support.history import (
    History,
    Outcome,
    Polled,
    Sent,
    Violation,
    elsewhere,
    one_value_per_offset,
    refused_and_read,
    short,
    unknown_values,
)
from tests.support.kafka_group_history import Assigned, Committed, Given, Partition, Tenures, check_tenures

WATCH_S = 0.25
ASK_TIMEOUT_S = 2.0
WATCHER = "the watcher"
FORGIVEN = {
    *(
        "_WAIT_COORD",
        "_TRANSPORT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_STATE",
        "_ASSIGNMENT_LOST",
        "_DESTROY",
        "_NO_OFFSET",
    ),
    *("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "REQUEST_TIMED_OUT"),
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
}
"""Accepted reasons of a rejected commit: no coordinator, a frozen member, or one that the group removed."""


@dataclass(slots=True, kw_only=True)
class KafkaGroup(Members):
    """A Kafka group; ``watch`` constantly queries its coordinator, as monitoring does."""

    session_s: float = SESSION_S
    partitions: int
    """Number of partitions of each topic."""
    strategy: str
    tenures: Tenures = field(default_factory=Tenures)
    owners: dict[str, set[Partition]] = field(default_factory=dict)
    """Current partitions of each member."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Number of rejected commits by error name."""
    waits_ns: list[tuple[int, int]] = field(default_factory=list)
    """Commits: the time of success, and the nanoseconds since the first attempt."""

    def command(self, name: str, path: Path) -> list[str]:
        place = [self.bootstrap, self.name, name, str(path)]
        return ["tests.faults.users.kafka_member", *place, self.strategy, *self.topics]

    def take(self, member: str, lines: list[bytes]) -> None:
        for line in lines:
            what, *words = line.split(b"\t")
            match what.decode():
                case "given":
                    self._given(member, *words)
                case "committed":
                    since, begin, end, generation, topic, partition, offset = words
                    self._committed(
                        member, int(generation), (topic.decode(), int(partition)), int(offset), int(begin), int(end)
                    )
                    self.waits_ns.append((int(end), int(end) - int(since)))
                case "assigned":
                    at, generation, topic, partition = words
                    place = (topic.decode(), int(partition))
                    self.owners.setdefault(member, set()).add(place)
                    self.tenures.assigned.append(
                        Assigned(member=member, generation=int(generation), partition=place, at_ns=int(at))
                    )
                case "revoked":
                    _, topic, partition = words
                    self.owners.setdefault(member, set()).discard((topic.decode(), int(partition)))
                case "refused":
                    name = words[-1].decode()
                    self.refusals[name] = self.refusals.get(name, 0) + 1

    def _given(
        self, member: str, at: bytes, topic: bytes, partition: bytes, offset: bytes, key: bytes, brief: bytes
    ) -> None:
        name, number, place = topic.decode(), int(partition), int(offset)
        self.delivered[name].append(
            Polled(reader=member, segment=number, partition=number, offset=place, key=key, value=brief)
        )
        self.tenures.given.append(Given(member=member, partition=(name, number), offset=place, at_ns=int(at)))

    def _committed(self, who: str, generation: int, place: Partition, offset: int, begin: int, end: int) -> None:
        self.tenures.committed.append(
            Committed(who=who, generation=generation, partition=place, offset=offset, begin_ns=begin, end_ns=end)
        )

    async def until_shared(self, timeout_s: float) -> None:
        """Wait until every partition has one owner and every member has some. Raises TimeoutError."""
        wanted = sorted((topic, partition) for topic in self.topics for partition in range(self.partitions))
        async with asyncio.timeout(timeout_s):
            while True:
                await asyncio.to_thread(self.collect)
                owned = [self.owners.get(member.name, set()) for member in self.members]
                if all(owned) and sorted(place for places in owned for place in places) == wanted:
                    return
                await asyncio.sleep(LOOK_S)

    async def watch(self, threads: Executor) -> None:
        """Query until cancelled."""
        loop = asyncio.get_running_loop()
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.name, "client.id": "watcher", "log_level": LOG_LEVEL}
        )
        places = [TopicPartition(topic, p) for topic in self.topics for p in range(self.partitions)]
        try:
            while True:
                begin = time.monotonic_ns()
                try:
                    said = await loop.run_in_executor(threads, lambda: consumer.committed(places, ASK_TIMEOUT_S))
                except KafkaException as error:
                    name = f"asked: {error.args[0].name()}"
                    self.refusals[name] = self.refusals.get(name, 0) + 1
                else:
                    for one in said:
                        if one.error is None and one.offset >= 0:
                            self._committed(
                                WATCHER, -1, (one.topic, one.partition), one.offset, begin, time.monotonic_ns()
                            )
                await asyncio.sleep(WATCH_S)
        finally:
            threads.submit(consumer.close)

    def generations(self, begin_ns: int, end_ns: int) -> set[int]:
        tenures = self.tenures
        return {
            *(c.generation for c in tenures.committed if begin_ns < c.begin_ns < end_ns and c.who != WATCHER),
            *(a.generation for a in tenures.assigned if begin_ns < a.at_ns < end_ns),
        }

    def commit_wait_s(self, since_ns: int) -> float:
        """Return the longest time in seconds for which a member could not commit."""
        return max((wait for at, wait in self.waits_ns if at > since_ns), default=0) / 1e9

    def check(self, sent: Mapping[str, Sequence[Sent]]) -> list[Violation]:
        """Judge, after everything was delivered. Values of ``sent`` are ``brief``."""
        self.collect()
        violations = check_tenures(self.tenures)
        for topic, records in sent.items():
            polled = self.delivered[topic]
            history = History(list(records), polled)
            given = {p.value for p in polled}
            for rule in (
                one_value_per_offset(polled),
                unknown_values(history),
                refused_and_read(history),
                elsewhere(history),
            ):
                violations += rule
            violations += [
                Violation("lost", f"no member got {short(s.value)}, acknowledged at {s.segment}:{s.offset}")
                for s in records
                if s.outcome is Outcome.ACKED and s.value not in given
            ]
        unknown = {name: count for name, count in self.refusals.items() if name.removeprefix("asked: ") not in FORGIVEN}
        violations += [Violation("error", f"{count} commits of {self.name}: {name}") for name, count in unknown.items()]
        return violations
