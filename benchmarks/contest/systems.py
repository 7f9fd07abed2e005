"""The systems, and the calls of each for a row of the report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.contest.kafka.server import KafkaServer
from benchmarks.contest.redis.server import RedisServer
from benchmarks.contest.seaweedmq.server import SeaweedServer
from benchmarks.contest.server import Server

OURS = "seaweedmq"


class Way(StrEnum):
    """A way to publish or consume; a system has calls for it, or has none."""

    ONE_BY_ONE = "one by one"
    STORED_ONCE = "one by one, stored once in spite of retries"
    AT_ONCE = "many at once"
    BY_MESSAGE = "by message"
    BY_BATCH = "by batches"


@dataclass(frozen=True, slots=True)
class System:
    """One contestant."""

    title: str
    server: type[Server]
    calls: Mapping[Way, tuple[str, ...]]
    """Calls for each way; the best of several counts."""

    def calls_for(self, ways: Iterable[Way]) -> tuple[str, ...]:
        """Return each call once that serves any of the ways."""
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
