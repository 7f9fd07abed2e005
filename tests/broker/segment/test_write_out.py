"""Followers write out the records they hold, whether the primary's machine, the storage or the caller fails."""

import asyncio
import random
from dataclasses import replace

import pytest

from seaweedmq.broker.broker import REPLICAS_TIMEOUT_S
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.segment.write_out import ReplicaWriter
from seaweedmq.core.segment.replica import Replica
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import StorageFailed
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import Fence, ReportSuspicions, WriteOut
from seaweedmq.model.topic import Durability, TopicName
from tests.broker.segment.test_without_etcd import all_values, replicated, store_two
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, story, values
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.support.segments import make_segment, make_topic


async def holding(testbed: Testbed, brokers: int = 3, config: BrokerConfig = CONFIG) -> tuple[Host, Host, Host]:
    """Return primary, follower and another broker; five records are acknowledged and not flushed."""
    primary, follower, others = await replicated(testbed, brokers, config)
    await (await primary.publisher()).store(frames=5)
    assert primary.inspect.segments[NAME, 0].log.flushed == 0
    return primary, follower, others[0] if others else follower


def lose_machine(testbed: Testbed, host: Host) -> None:
    writer = host.broker.id
    host.kill()
    testbed.store.crash(writer=writer)


def is_sealed(host: Host, segment: int = 0) -> bool:
    return not host.inspect.view.segments[NAME][segment].is_open


def end_offset(host: Host) -> int | None:
    return host.inspect.view.segments[NAME][0].end_offset


@pytest.mark.parametrize("op", [StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC])
@story
async def test_many_failed_attempts_do_not_keep_a_segment_from_being_sealed(testbed: Testbed, op: StorageOp) -> None:
    primary, _, other = await holding(testbed)
    testbed.store.tear = random.Random(7)
    testbed.faults.failing[op] = "no space left on device"
    lose_machine(testbed, primary)
    await asyncio.sleep(20)
    assert not is_sealed(other)
    testbed.faults.failing.clear()
    await testbed.until(lambda: is_sealed(other), patience_s=10)
    assert end_offset(other) == 5
    assert len(testbed.files(FileKind.LOG)) == 1, "what failed attempts left is gone"
    await store_two(testbed, other)
    assert await all_values(testbed, other) == values(1, 5) + values(2, 2)


@story
async def test_what_failed_attempts_leave_does_no_harm_and_goes_with_the_logs(testbed: Testbed) -> None:
    primary, _, other = await holding(testbed, config=replace(CONFIG, log_grace_s=5.0))
    testbed.store.tear = random.Random(7)
    testbed.faults.failing |= {StorageOp.APPEND: "no space left on device", StorageOp.DELETE: "input/output error"}
    lose_machine(testbed, primary)
    await asyncio.sleep(20)
    del testbed.faults.failing[StorageOp.APPEND]
    await testbed.until(lambda: is_sealed(other), patience_s=10)
    left = testbed.files(FileKind.LOG)
    assert len(left) > 3
    assert len({file.size_bytes for file in left}) > 2, "torn in different places"
    await store_two(testbed, other)
    assert await all_values(testbed, other) == values(1, 5) + values(2, 2)
    testbed.faults.failing.clear()
    await testbed.until(lambda: not testbed.files(FileKind.LOG), patience_s=30)
    assert [(f.base_offset, f.end_offset) for f in testbed.files(FileKind.TABLE)] == [(0, 5)]
    assert await all_values(testbed, other) == values(1, 5) + values(2, 2)


@story
async def test_a_leader_that_believes_files_finds_failed_attempts_harmless(testbed: Testbed) -> None:
    primary, follower, other = await holding(testbed)
    testbed.store.tear = random.Random(7)
    testbed.faults.paths = follower.broker.id
    testbed.faults.failing[StorageOp.APPEND] = "no space left on device"
    primary.kill()  # the primary's machine runs on and keeps what it has written
    await asyncio.sleep(10)
    follower.kill()
    assert len([f for f in testbed.files(FileKind.LOG) if f.writer.startswith(follower.broker.id)]) > 3
    await testbed.until(lambda: is_sealed(other))
    assert end_offset(other) == 5


@pytest.mark.parametrize("op", [StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC])
@story
async def test_a_storage_that_hangs_is_asked_once(testbed: Testbed, op: StorageOp) -> None:
    primary, follower, other = await holding(testbed)
    testbed.faults.paths = follower.broker.id
    gate = testbed.faults.hold(op)
    before = testbed.faults.counts[op]
    lose_machine(testbed, primary)
    await asyncio.sleep(45)  # the leader stops waiting, and retries several times
    assert not is_sealed(other)
    assert testbed.faults.counts[op] == before + 1
    gate.set()
    await testbed.until(lambda: is_sealed(other), patience_s=10)
    assert end_offset(other) == 5


@story
async def test_callers_share_one_attempt_and_one_that_goes_away_does_not_stop_it(testbed: Testbed) -> None:
    primary, follower, _ = await holding(testbed)
    segment = primary.inspect.view.segments[NAME][0]
    fence = testbed.ref(segment, segment.epoch + 1)
    assert (await follower.broker.api.call(Fence(fence))).end_offset == 5
    testbed.faults.paths = follower.broker.id
    gate = testbed.faults.hold(StorageOp.APPEND)
    calls = [asyncio.create_task(follower.broker.api.call(WriteOut(fence, 5))) for _ in range(3)]
    await asyncio.sleep(0.1)
    calls[0].cancel()
    await asyncio.sleep(0.1)
    gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] == results[2] == await follower.broker.api.call(WriteOut(fence, 5))
    assert len([f for f in testbed.files(FileKind.LOG) if f.writer.startswith(follower.broker.id)]) == 1


@pytest.mark.parametrize("brokers", [2, 3])
@story
async def test_who_is_stopped_writes_out_what_it_holds(testbed: Testbed, brokers: int) -> None:
    primary, follower, other = await holding(testbed, brokers)
    lose_machine(testbed, primary)
    await asyncio.gather(*(host.stop() for host in {follower, other}))
    fresh = await testbed.start(address="broker-9:7777")
    await testbed.until(lambda: is_sealed(fresh))
    assert end_offset(fresh) == 5
    reader = await fresh.subscriber()
    assert await reader.until(5) == values(1, 5)


@story
async def test_it_stays_while_the_storage_does_not_take_it(testbed: Testbed) -> None:
    primary, follower, _ = await holding(testbed, brokers=2)
    testbed.store.tear = random.Random(7)
    testbed.faults.failing[StorageOp.APPEND] = "no space left on device"
    lose_machine(testbed, primary)
    stopping = asyncio.create_task(follower.stop())
    await asyncio.sleep(REPLICAS_TIMEOUT_S - 5)
    assert not stopping.done()
    testbed.faults.failing.clear()
    await stopping
    fresh = await testbed.start(address="broker-9:7777")
    await testbed.until(lambda: is_sealed(fresh))
    assert end_offset(fresh) == 5


@pytest.mark.parametrize("hangs", [False, True])
@story
async def test_in_the_end_it_goes_and_says_what_may_be_lost(
    testbed: Testbed, hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    primary, follower, _ = await holding(testbed, brokers=2)
    if hangs:
        gate = testbed.faults.hold(StorageOp.APPEND)
    else:
        testbed.faults.failing[StorageOp.APPEND] = "no space left on device"
    lose_machine(testbed, primary)
    began = testbed.loop.time()
    await follower.stop()
    assert REPLICAS_TIMEOUT_S <= testbed.loop.time() - began < 58, "before a supervisor kills it"
    assert "could not write out test/topic#0 in 30 s" in caplog.text
    if hangs:
        gate.set()


@story
async def test_a_leader_that_asks_for_it_meanwhile_is_answered(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    primary, follower, _ = await holding(testbed, brokers=2)
    segment = primary.inspect.view.segments[NAME][0]
    testbed.faults.paths = follower.broker.id
    gate = testbed.faults.hold(StorageOp.APPEND)
    fence = testbed.ref(segment, segment.epoch + 1)
    lose_machine(testbed, primary)
    assert follower.inspect.incarnation is not None
    closing = asyncio.create_task(follower.inspect.followers.close(20.0))
    await asyncio.sleep(0.1)
    assert (await follower.api.call(Fence(fence))).end_offset == 5
    asking = asyncio.create_task(follower.api.call(WriteOut(fence, 5)))
    await asyncio.sleep(0.1)
    gate.set()
    assert (await asking).end_offset == 5
    await closing
    assert "replicas dropped" not in caplog.text
    assert len([f for f in testbed.files(FileKind.LOG) if f.writer.startswith(follower.broker.id)]) == 1


@story
async def test_what_is_sealed_meanwhile_is_not_waited_for(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    primary, follower, _ = await holding(testbed)
    testbed.faults.paths = follower.broker.id
    gate = testbed.faults.hold(StorageOp.APPEND)
    assert follower.inspect.incarnation is not None
    closing = asyncio.create_task(follower.inspect.followers.close(20.0))
    await asyncio.sleep(0.1)
    assert not closing.done()
    await (await primary.publisher(2)).send()  # the primary notices, and has the segment replaced
    await testbed.until(lambda: is_sealed(follower))
    await asyncio.sleep(0.1)
    assert closing.done()
    await closing
    assert "replicas dropped" not in caplog.text
    gate.set()


@story
async def test_all_of_a_cluster_is_stopped_at_once_after_a_machine_was_lost(testbed: Testbed) -> None:
    hosts = await testbed.cluster(4)
    names = [TopicName("test", f"topic{number}") for number in range(6)]
    for name in names:
        await testbed.topic(hosts[0], name=name, replicas=2, durability=Durability.REPLICATED)
    for name in names:
        await (await (await testbed.primary(hosts[0], name=name)).publisher(name=name)).store(frames=5)
    lost = await testbed.primary(hosts[0], name=names[0])
    assert any(owned.log.flushed == 0 for owned in lost.inspect.segments.values())
    lose_machine(testbed, lost)
    await asyncio.gather(*(host.stop() for host in hosts if host.lives))
    fresh = await testbed.start(address="broker-9:7777")
    for name in names:
        await testbed.until(lambda name=name: not fresh.inspect.view.segments[name][0].is_open)  # type: ignore[misc]
        assert fresh.inspect.view.segments[name][0].end_offset == 5


@story
async def test_a_suspicion_ends_with_the_broker_that_has_it(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    primary, follower, _ = await holding(testbed)
    asked = asyncio.Event()
    given_up = asyncio.Event()

    async def suspect(leader: Leader, suspicion: ReportSuspicions) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    monkeypatch.setattr(Leader, "suspect", suspect)
    primary.kill()
    await asked.wait()
    await follower.broker.stop()
    await testbed.until(given_up.is_set, patience_s=1)


async def test_each_of_those_who_wait_for_one_attempt_gets_an_error_of_its_own() -> None:
    async def broken(op: StorageOp, path: str) -> None:
        await asyncio.sleep(0)
        raise StorageFailed("no space left on device")

    replica = Replica(name="test/topic#0", start_offset=0, epoch=1)
    replica.append(1, 7, 0, 0, LogEntry(0, 1, 1, b"header", b"payload"), 0.0)
    store = MemorySegmentStore(lambda: 0, broken)
    writing = ReplicaWriter(store, make_topic(), make_segment(0), replica, "b-1", random.Random(1))
    errors = await asyncio.gather(*(writing.run() for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in errors] == [StorageFailed] * 3
    assert len(set(map(id, errors))) == 3
