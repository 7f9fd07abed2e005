"""A shard on a real broker, in virtual time, with a state machine that has nothing to do with Kafka."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from seaweedmq.errors import StaleMetadata, Unavailable
from seaweedmq.shards.machine import MachineKind, Pair
from seaweedmq.shards.shard import Shard
from seaweedmq.shards.shard_log import ShardLog
from tests.broker.testbed import NAME, Host, Testbed, story

ADDED = 100


@dataclass(frozen=True)
class Add:
    token: int
    name: str


@dataclass(frozen=True)
class Tick:
    """No counter needs it."""


@dataclass(frozen=True)
class Total:
    token: int
    total: int


@dataclass(frozen=True)
class Outcome:
    records: tuple[tuple[str, int], ...] = ()
    replies: tuple[Total, ...] = ()
    prompt: tuple[Total, ...] = ()


@dataclass
class Counters:
    """Counters by name."""

    totals: dict[str, int] = field(default_factory=dict)
    wake_at: float | None = None

    def load(self, record: tuple[str, int]) -> None:
        self.totals[record[0]] = record[1]

    def begin(self, now: float, at_ms: int) -> None:
        pass

    def handle(self, event: Add | Tick, now: float, at_ms: int) -> Outcome:
        assert isinstance(event, Add)
        total = self.totals[event.name] = self.totals.get(event.name, 0) + 1
        return Outcome(records=((event.name, total),), replies=(Total(event.token, total),))

    def snapshot(self) -> Iterator[tuple[str, int]]:
        return iter(self.totals.items())

    def close(self) -> None:
        self.totals.clear()


def encode(record: tuple[str, int]) -> Pair:
    return record[0].encode(), str(record[1]).encode()


COUNTERS: MachineKind[Counters, Add | Tick] = MachineKind(
    name="counter",
    new=Counters,
    tick=Tick(),
    encode=encode,
    decode=lambda key, value: (key.decode(), int(value)),
    nothing=("", 0),
    loading_error=Unavailable,
)


def shard_of(host: Host, marks: list[int]) -> Shard[Counters, Add | Tick]:
    partitions, cluster, runtime = host.broker.ports
    log = ShardLog(partitions.leads(NAME, 0), cluster.view, frame_bytes_max=runtime.config.frame_bytes_max)
    return Shard(log, COUNTERS, env=runtime.env, raise_mark=marks.append, snapshot_after_bytes=100_000)


@story
async def test_a_machine_of_any_kind_is_loaded_asked_and_restored(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host, NAME, partitions=1)
    marks: list[int] = []
    first = shard_of(host, marks)
    with pytest.raises(Unavailable, match="partition 0 of test/topic is being loaded: retry"):
        first.submit(lambda token: Add(token, "a"))
    running = asyncio.create_task(first.run())
    await testbed.until(lambda: first.is_active)
    for number in range(ADDED):
        answer = first.submit(lambda token: Add(token, f"counter {token % 2}"))
        assert not answer.done(), "the record is not committed yet"
        assert (await answer).total == number // 2 + 1
    await testbed.until(lambda: marks)
    assert 0 < marks[0] < first.partition.end
    running.cancel()
    await asyncio.wait([running])
    with pytest.raises(StaleMetadata, match="no longer leads"):
        first.submit(lambda token: Add(token, "a"))

    second = shard_of(host, marks)
    running = asyncio.create_task(second.run())
    await testbed.until(lambda: second.is_active)
    assert await second.read(lambda state: dict(state.totals)) == {"counter 0": ADDED // 2, "counter 1": ADDED // 2}
    running.cancel()
    await asyncio.wait([running])
