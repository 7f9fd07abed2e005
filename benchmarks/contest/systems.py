"""Who takes part, and which calls of each do what a row of the report asks for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.contest.kafka.server import KafkaServer
from benchmarks.contest.redis.server import RedisServer
from benchmarks.contest.seaweedmq.server import SeaweedServer
from benchmarks.contest.server import Server

OURS = "seaweedmq"


class Way(StrEnum):
    """What a user wants to do; each system has calls for it, or has not."""

    ONE_BY_ONE = "one by one"
    STORED_ONCE = "one by one, stored once whatever is sent again"
    AT_ONCE = "many at once"
    BY_MESSAGE = "by message"
    BY_BATCH = "by batches"


@dataclass(frozen=True, slots=True)
class System:
    """One contestant."""

    title: str
    server: type[Server]
    calls: Mapping[Way, tuple[str, ...]]
    """Of several the best counts."""

    def calls_for(self, ways: Iterable[Way]) -> tuple[str, ...]:
        """Each call once that serves any of the ways."""
        return tuple(dict.fromkeys(call for way in ways for call in self.calls.get(way, ())))


SYSTEMS: Mapping[str, System] = {
    OURS: System(
        "SeaweedMQ",
        SeaweedServer,
        {
            Way.ONE_BY_ONE: ("send",),
            Way.STORED_ONCE: ("send",),
            Way.AT_ONCE: ("send_table",),
            Way.BY_MESSAGE: ("messages",),
            Way.BY_BATCH: ("batches",),
        },
    ),
    "kafka": System(
        "Apache Kafka",
        KafkaServer,
        {
            Way.ONE_BY_ONE: ("produce",),
            Way.STORED_ONCE: ("produce, idempotent",),
            Way.AT_ONCE: ("produce", "produce_batch"),
            Way.BY_MESSAGE: ("consume",),
            Way.BY_BATCH: ("consume",),
        },
    ),
    "redis": System(
        "Redis Streams",
        RedisServer,
        {
            Way.ONE_BY_ONE: ("xadd",),
            Way.AT_ONCE: ("xadd",),
            Way.BY_MESSAGE: ("xread",),
            Way.BY_BATCH: ("xread",),
        },
    ),
}
