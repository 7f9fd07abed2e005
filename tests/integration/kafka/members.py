"""Members of groups, of each client, in threads: they read, and report their partitions and records.

As a program (``python -m tests.integration.kafka.members CLIENT BOOTSTRAP GROUP TOPIC``) it is a member that can be
killed, and prints its partitions whenever they change.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError

from tests.integration.kafka.records import TIMEOUT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

ROOT = Path(__file__).parents[3]
POLL_S = 0.1


class Got(NamedTuple):
    partition: int
    offset: int
    value: bytes | None


class Member:
    """A member that reads until ``leave``. ``settings`` have its client's own names."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.mine: frozenset[int] = frozenset()
        """Its current partitions."""
        self.got: list[Got] = []
        self.history: list[frozenset[int]] = []
        """Its sets of partitions, one after another."""
        self._bootstrap, self._group, self._topic, self._settings = bootstrap, group, topic, settings
        self._leaving = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, args=(_CLIENTS[client],), name=f"{client} in {group}")
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the member did not stop"
        if self._failed is not None:
            raise self._failed

    def _guarded(self, run: "Callable[[Member], None]") -> None:
        try:
            run(self)
        except BaseException as error:  # noqa: BLE001 - raised by leave
            self._failed = error

    def _has(self, mine: frozenset[int]) -> None:
        if mine != self.mine:
            self.mine = mine
            self.history.append(mine)

    def _librdkafka(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
            | {name.replace("_", "."): value for name, value in self._settings.items()}
        )
        consumer.subscribe([self._topic])
        while not self._leaving.is_set():
            for message in consumer.consume(500, POLL_S):
                if message.error() is None:
                    self.got.append(Got(message.partition(), message.offset(), message.value()))
                elif message.error().code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise AssertionError(message.error())
            self._has(frozenset(each.partition for each in consumer.assignment()))
        consumer.close()

    def _aiokafka(self) -> None:
        asyncio.run(self._read_aiokafka())

    async def _read_aiokafka(self) -> None:
        async with AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=1_000,
            **self._settings,
        ) as consumer:
            while not self._leaving.is_set():
                for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                    self.got += [Got(r.partition, r.offset, r.value) for r in records]
                self._has(frozenset(each.partition for each in consumer.assignment()))

    def _kafka_python(self) -> None:
        consumer = KafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap.split(","),
            group_id=self._group,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=1_000,
            **self._settings,
        )
        while not self._leaving.is_set():
            for records in consumer.poll(int(POLL_S * 1000)).values():
                self.got += [Got(r.partition, r.offset, r.value) for r in records]
            self._has(frozenset(each.partition for each in consumer.assignment()))
        consumer.close()


_CLIENTS: dict[str, Callable[[Member], None]] = {
    "librdkafka": Member._librdkafka,  # noqa: SLF001 - its own
    "aiokafka": Member._aiokafka,  # noqa: SLF001
    "kafka-python": Member._kafka_python,  # noqa: SLF001
}
CLIENTS = tuple(_CLIENTS)
COOPERATIVE: Mapping[str, Any] = {"librdkafka": "cooperative-sticky", "kafka-python": [CooperativeStickyAssignor]}
"""Values of ``partition_assignment_strategy`` with which clients give up only reassigned partitions."""


def until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def shared(members: list[Member], partitions: int) -> bool:
    """Whether each partition has one member, and the shares are about equal."""
    shares = [member.mine for member in members]
    sizes = sorted(map(len, shares))
    return sum(sizes) == partitions == len(frozenset().union(*shares)) and sizes[-1] - sizes[0] <= 1


def process(client: str, bootstrap: str, group: str, topic: str, folder: Path | None = None) -> "subprocess.Popen[str]":
    """A member that can be killed, with the packages of a folder of ``elsewhere`` if one is given."""
    path = os.pathsep.join(map(str, (folder, ROOT) if folder else (ROOT,)))
    command = [sys.executable, "-W", "ignore", "-m", __name__, client, bootstrap, group, topic]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )


def main() -> None:
    client, bootstrap, group, topic = sys.argv[1:]
    member, told = Member(client, bootstrap, group, topic), 0
    while True:
        time.sleep(POLL_S)
        while told < len(member.history):
            print(*sorted(member.history[told]), flush=True)
            told += 1


if __name__ == "__main__":
    main()
