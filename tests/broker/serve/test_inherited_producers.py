"""Kafka producers continue in the successor of their segment, and may repeat there what they sent before."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from seaweedmq.broker.serve.appender import Acknowledgements, Appender
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.core.lineage import topology
from seaweedmq.errors import SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import SealSegment
from seaweedmq.model.segment import Segment
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, frame
from tests.doubles.memory_store import StorageOp

ME, OTHER = 5_000, 6_000
IDLE_S = 60.0
CONF = replace(CONFIG, producer_idle_s=IDLE_S)


class Partition:
    """The one partition of a topic, on any broker; returns the outcome of each append as a value."""

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed

    @property
    def segment(self) -> Segment:
        view = self.testbed.leader().inspect.view
        (found,) = view.open_of(NAME).values()
        return found

    @property
    def primary(self) -> Host:
        return next(h for h in self.testbed.hosts if h.lives and h.broker.id == self.segment.primary)

    async def appender(self) -> Appender:
        await self.testbed.until(lambda: (NAME, self.segment.id) in self.primary.inspect.segments)
        host = self.primary
        lookup = Lookup(host.inspect.view, host.inspect.segments, SealedProducers(self.testbed.store))
        return Appender(host.inspect.segments[NAME, self.segment.id], lookup, frame_bytes_max=CONFIG.frame_bytes_max)

    async def send(self, first: int, count: int = 1, *, producer: int = ME, epoch: int = 0, stored: bool = True) -> str:
        appender = await self.appender()
        end = appender.segment.log.end
        try:
            ack = await appender.append(_made(first, count, producer, epoch))
        except SeaweedMQError as error:
            return type(error).__name__
        pending = Acknowledgements(appender)
        pending.add(ack)
        if stored:
            assert await pending.next() == (ack,)
        return f"{'stored at' if ack.base_offset == end else 'repeat of'} {ack.base_offset}"

    async def sealed(self) -> None:
        """Seal the segment; if a replica died, wait until the leader has sealed it for the repair."""
        before = self.segment.id
        with contextlib.suppress(StaleMetadata, Unavailable):
            await self.testbed.leader().api.call(SealSegment(NAME, before))
        await self.testbed.until(lambda: self.segment.id != before)

    async def failed(self) -> None:
        before, primary = self.segment.id, self.primary
        primary.kill()
        await self.testbed.until(lambda: any(h.lives and h.inspect.leads for h in self.testbed.hosts))
        await self.testbed.until(lambda: self.segment.id != before)

    async def hop(self, how: str) -> None:
        await (self.sealed() if how == "sealed" else self.failed())


def _made(first: int, count: int, producer: int, epoch: int) -> Frame:
    (found,) = split_frames(frame(count, producer=producer, epoch=epoch, first=first))
    return found


async def started(testbed: Testbed, brokers: int = 3, replicas: int = 2, config: object = CONF) -> Partition:
    hosts = await testbed.cluster(brokers, config)  # type: ignore[arg-type]
    await testbed.topic(hosts[0], replicas=replicas, partitions=1)
    return Partition(testbed)


@pytest.mark.parametrize("how", ["sealed", "failed"])
@pytest.mark.parametrize("replicas", [1, 2])
async def test_five_frames_in_flight_of_which_some_were_stored(testbed: Testbed, how: str, replicas: int) -> None:
    told = await started(testbed, 4, replicas)
    assert [await told.send(first, 10) for first in (0, 10, 20)] == ["stored at 0", "stored at 10", "stored at 20"]
    await told.hop(how)
    answers = [await told.send(first, 10) for first in (0, 10, 20, 30, 40)]
    assert answers == ["repeat of 0", "repeat of 10", "repeat of 20", "stored at 30", "stored at 40"]
    assert await told.send(60, 10) == "OutOfOrderSequence"


@pytest.mark.parametrize("how", ["sealed", "failed"])
async def test_frames_of_several_generations_are_sent_again(testbed: Testbed, how: str) -> None:
    told = await started(testbed, 6)
    for first in (0, 10, 20):
        assert await told.send(first, 10) == f"stored at {first}"
        await told.hop(how)
    answers = [await told.send(first, 10) for first in (0, 10, 20, 30)]
    assert answers == ["repeat of 0", "repeat of 10", "repeat of 20", "stored at 30"]
    await told.sealed()
    answers = [await told.send(first, 10) for first in (0, 10, 20, 30)]
    assert answers == ["repeat of 0", "repeat of 10", "repeat of 20", "repeat of 30"]


@pytest.mark.parametrize("how", ["sealed", "failed"])
async def test_who_sent_nothing_to_a_generation_is_known_to_the_next(testbed: Testbed, how: str) -> None:
    told = await started(testbed, 6)
    assert await told.send(0, 10) == "stored at 0"
    assert await told.send(0, 10, producer=OTHER) == "stored at 10"
    await told.hop(how)
    assert await told.send(10, 10, producer=OTHER) == "stored at 20"
    await told.hop(how)
    await told.hop(how)
    assert await told.send(20, 10) == "OutOfOrderSequence"
    assert await told.send(0, 10) == "repeat of 0"
    assert await told.send(10, 10) == "stored at 30"
    assert await told.send(0, 10, producer=OTHER) == "repeat of 10"


async def test_who_is_not_in_the_record_is_searched_in_files(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "SEALED_SEQUENCES_MAX", 2)
    told = await started(testbed, 3)
    producers = range(5_000, 5_005)
    for at, producer in enumerate(producers):
        assert await told.send(0, producer=producer) == f"stored at {at}"
    await told.sealed()
    assert [await told.send(0, producer=p) for p in producers] == [f"repeat of {n}" for n in range(5)]
    assert [await told.send(1, producer=p) for p in producers] == [f"stored at {n}" for n in range(5, 10)]
    assert await told.send(0, producer=OTHER) == "stored at 10"
    await told.sealed()
    assert await told.send(1, producer=OTHER) == "stored at 11"


async def test_files_are_read_for_a_repeat_only_and_without_them_it_is_a_duplicate(testbed: Testbed) -> None:
    told = await started(testbed)
    assert await told.send(0, 10, epoch=2) == "stored at 0"
    await told.sealed()
    testbed.faults.failing[StorageOp.OPEN] = "it is gone"
    before = testbed.faults.counts[StorageOp.OPEN]
    assert await told.send(10, 10, epoch=2) == "stored at 10"
    assert await told.send(0, 10, producer=OTHER) == "stored at 20"
    assert testbed.faults.counts[StorageOp.OPEN] == before
    assert await told.send(0, 10, epoch=2) == "DuplicateSequence"
    assert await told.send(20, 10, epoch=2, stored=False) == "stored at 30"
    testbed.faults.failing.clear()
    assert await told.send(0, 10, epoch=2) == "repeat of 0"
    await told.sealed()
    assert await told.send(30, epoch=1) == "Fenced"
    assert await told.send(30, epoch=3) == "OutOfOrderSequence"
    assert await told.send(0, epoch=3) == "stored at 40"


async def test_files_that_may_know_a_producer_hold_it_up(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "SEALED_SEQUENCES_MAX", 1)
    told = await started(testbed)
    assert await told.send(0, 10) == "stored at 0"
    assert await told.send(0, 10, producer=OTHER) == "stored at 10"
    await told.sealed()
    testbed.faults.failing[StorageOp.OPEN] = "it is gone"
    assert await told.send(0, 10) == "StorageFailed"
    testbed.faults.failing.clear()
    reading = testbed.faults.hold(StorageOp.OPEN)
    before = testbed.loop.time()
    assert await told.send(0, 10) == "Unavailable"
    assert testbed.loop.time() - before < 4
    assert await told.send(10, producer=OTHER) == "stored at 20", "its place is in the record"
    reading.set()
    assert await told.send(0, 10) == "repeat of 0"
    await told.sealed()
    await testbed.store.delete(testbed.files(FileKind.LOG))
    await testbed.store.delete(testbed.files(FileKind.LOG, segment=1))
    assert await told.send(0, 1, producer=7_000) == "stored at 21", "where no file can know it"


async def test_who_comes_back_after_a_long_time_begins_where_it_says(testbed: Testbed) -> None:
    told = await started(testbed)
    assert await told.send(0, 10) == "stored at 0"
    await told.sealed()
    await asyncio.sleep(IDLE_S / 2)
    await told.sealed()
    await asyncio.sleep(IDLE_S / 2 - 5)
    assert await told.send(5, 10) == "OutOfOrderSequence"
    await asyncio.sleep(10)
    await told.sealed()
    assert await told.send(90, 10) == "stored at 10"
    assert await told.send(80, 10) == "OutOfOrderSequence"


STEP_S = 16 * 60.0
CLOCKS = replace(CONFIG, producer_idle_s=900.0)


@pytest.mark.parametrize("step_s", [STEP_S, -STEP_S, 20 * 86_400.0, -20 * 86_400.0])
@pytest.mark.parametrize("how", ["sealed", "failed"])
async def test_a_repeat_is_one_though_all_clocks_step_meanwhile(testbed: Testbed, how: str, step_s: float) -> None:
    told = await started(testbed, 6, 2, CLOCKS)
    assert await told.send(0, 10) == "stored at 0"
    await told.hop(how)
    for host in testbed.hosts:
        host.ahead_s += step_s
    await told.hop(how)
    assert await told.send(30, 10) == "OutOfOrderSequence"
    assert await told.send(0, 10) == "repeat of 0"
    assert await told.send(10, 10) == "stored at 10"


@pytest.mark.parametrize("ahead_s", [STEP_S, -STEP_S])
async def test_a_repeat_is_one_though_the_next_leader_has_another_clock(testbed: Testbed, ahead_s: float) -> None:
    told = await started(testbed, 4, 2, CLOCKS)
    for host in testbed.hosts:
        if not host.inspect.leads:
            host.ahead_s = ahead_s
    assert await told.send(0, 10) == "stored at 0"
    await told.sealed()
    testbed.leader().kill()
    await testbed.until(lambda: any(h.lives and h.inspect.leads for h in testbed.hosts))
    await told.sealed()
    assert await told.send(20, 10) == "OutOfOrderSequence"
    assert await told.send(0, 10) == "repeat of 0"


async def all_restarted(testbed: Testbed, told: Partition, config: object) -> None:
    """Restart every broker, one after another: the last ones have seen nothing of the earlier records."""
    for host in [h for h in testbed.hosts if h.lives]:
        await testbed.start(config)  # type: ignore[arg-type]
        await host.stop()
        await testbed.until(lambda: any(h.lives and h.inspect.leads for h in testbed.hosts))
        await testbed.until(lambda: told.primary)


async def test_brokers_that_have_just_started_find_what_was_stored_before_them(testbed: Testbed) -> None:
    told = await started(testbed, 2, 2, CLOCKS)
    assert await told.send(0, 10) == "stored at 0"
    await told.sealed()
    assert await told.send(0, 10, producer=OTHER) == "stored at 10"
    await all_restarted(testbed, told, CLOCKS)
    assert await told.send(20, 10) == "OutOfOrderSequence", "no later segment can have forgotten it"
    assert await told.send(0, 10) == "repeat of 0"
    assert await told.send(10, 10) == "stored at 20"


@pytest.mark.parametrize("has_logs", [True, False])
async def test_a_producer_that_a_later_segment_forgot_continues(testbed: Testbed, has_logs: bool) -> None:
    """The producer is idle for longer than segments remember it, and only the record of an old segment has it."""
    config = replace(CONF, partition_roll_age_s=1_000.0 if has_logs else 2.0, log_grace_s=4.0, maintenance_interval_s=1)
    told = await started(testbed, 2, 2, config)
    assert await told.send(0, 10) == "stored at 0"
    await told.sealed()
    assert await told.send(10, 80) == "stored at 10"
    await asyncio.sleep(IDLE_S + 10)
    assert await told.send(0, 10, producer=OTHER) == "stored at 90"
    await asyncio.sleep(20)
    await all_restarted(testbed, told, config)
    if has_logs:
        assert await told.send(95, 10) == "OutOfOrderSequence", "the files of the later segment have it"
    assert await told.send(90, 10) == "stored at 100"
