"""Leases: a broker that may have lost its lease acknowledges nothing, and returns as another incarnation."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.errors import SeaweedMQError, StorageFailed, Unavailable
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import DeleteTopic, DescribeTopic, LocalStats, Seal
from seaweedmq.model.messages.publish import PublishAck, PublishOpen
from seaweedmq.model.topic import Durability
from seaweedmq.runtime.grouped_logger import NAMED_MAX
from tests.broker.testbed import CONFIG, NAME, TTL_S, Host, Publishing, Testbed, values
from tests.doubles.memory_store import StorageOp

OPEN = PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=1, producer_epoch=0)


async def asked(host: Host, producer: int = 1) -> Any:
    """Return the reply to a publisher that opens a stream to the first segment."""
    stream = host.publish_stream()
    await stream.send(replace(OPEN, producer_id=producer))
    return await stream.receive()


async def everything(testbed: Testbed, host: Host) -> list[bytes]:
    """Read all records of the topic, along its segments."""
    got: list[bytes] = []
    segment: int | None = 0
    while segment is not None:
        owner = host
        description = await host.api.call(DescribeTopic(NAME))
        found = next(s for s in description.segments if s.id == segment)
        if found.is_open:
            owner = await testbed.primary(host, segment=segment)
        reader = await owner.subscriber(segment=segment)
        if found.is_open:
            got += await reader.until(reader.ready.high_watermark - reader.ready.start_offset)
            return got
        end = await reader.ending()
        got += reader.values
        segment = end.successors[0] if end.successors else None
    return got


@pytest.mark.parametrize("durability", Durability)
async def test_without_etcd_nothing_is_acknowledged_after_the_lease(testbed: Testbed, durability: Durability) -> None:
    host, publisher = await testbed.publishing(durability=durability)
    await publisher.store(frames=3)
    reader = await host.subscriber()
    testbed.etcd.server.stop()
    await publisher.store()
    await asyncio.sleep(TTL_S)
    await publisher.send()
    error = await publisher.stream.failure()
    assert isinstance(error, Unavailable)
    assert "cannot renew its lease because etcd is unreachable, and acknowledges nothing until it can" in str(error)
    with pytest.raises(Unavailable, match="lease"):
        await host.publisher()
    assert await reader.until(4) == values(1, 4)
    testbed.etcd.server.start()
    await testbed.until(lambda: not host.inspect.segments[NAME, 0].failure)
    again = await host.publisher()
    assert again.ready.next_sequence == 5
    await again.store()
    assert await reader.until(6) == values(1, 6)


async def test_a_broker_whose_lease_ended_comes_back_as_another_with_what_it_had(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    await publisher.store(frames=3)
    old = host.broker.id
    host.expire_lease()
    for _ in range(200):  # it is not opened again under the lease that has ended
        assert (NAME, 0) not in host.inspect.segments or host.inspect.segments[NAME, 0].log.end == 3
        await asyncio.sleep(0.01)
    error = await publisher.stream.failure()
    assert isinstance(error, SeaweedMQError)
    assert error.retryable
    await testbed.until(lambda: (NAME, 1) in host.inspect.segments)
    assert host.broker.id != old
    await (await host.publisher(segment=1)).store(frames=2)
    assert await everything(testbed, host) == values(1, 3) + values(1, 2)
    assert not host.has_failed


async def test_a_cut_off_broker_loses_its_segment_and_acknowledges_nothing_that_is_not_in_it(testbed: Testbed) -> None:
    primary, other = await testbed.pair(3)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    primary.meta.is_cut_off = True
    acknowledged = 3
    for _ in range(60):
        if publisher.stream.ended:
            break
        await publisher.send()
        await asyncio.sleep(0.2)
    acknowledged += sum(len(r.frames) for r in publisher.stream.replies if isinstance(r, PublishAck))
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    end = other.inspect.view.segments[NAME][0].end_offset
    assert end is not None
    assert acknowledged <= end
    primary.meta.is_cut_off = False
    await testbed.until(lambda: len(other.inspect.view.brokers) == 3)
    successor = await testbed.primary(other, segment=1)
    await (await successor.publisher(2, segment=1)).store(frames=2)
    assert await everything(testbed, other) == values(1, end) + values(2, 2)


async def zombie(testbed: Testbed, frames: int) -> tuple[Host, Publishing]:
    """Freeze a broker in the middle of a write of this many frames, and wake it once it has been replaced."""
    primary, other = await testbed.pair(2)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    held = testbed.faults.hold(StorageOp.APPEND)
    for _ in range(frames):
        await publisher.send()
    await testbed.until(lambda: primary.inspect.segments[NAME, 0].log.end == 3 + frames)
    primary.freeze()
    del testbed.faults.held[StorageOp.APPEND]
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    held.set()
    primary.thaw()
    await asyncio.sleep(3 * TTL_S)
    return other, publisher


@pytest.mark.parametrize("frames", [1, 12])
async def test_what_a_frozen_broker_writes_to_a_sealed_segment_is_nothing(testbed: Testbed, frames: int) -> None:
    other, publisher = await zombie(testbed, frames)
    assert not any(isinstance(r, PublishAck) for r in publisher.stream.replies)
    assert sum(f.size_bytes for f in testbed.files(FileKind.LOG)) > 0
    stream = await other.subscriber()
    assert (await stream.ending()).end_offset == 3
    assert stream.values == values(1, 3)
    sealed = await asked(other)
    assert (sealed.end_offset, sealed.next_sequence, sealed.successors) == (3, 3, (1,))
    assert [(a.first_sequence, a.base_offset) for a in sealed.recent] == [(0, 0), (1, 1), (2, 2)]


async def test_a_killed_broker_is_replaced_and_its_files_are_read_once_for_all_publishers(testbed: Testbed) -> None:
    primary, other = await testbed.pair(3)
    for producer in (1, 2, 3):
        await (await primary.publisher(producer)).store(frames=producer)
    before = testbed.loop.time()
    primary.kill()
    await testbed.until(lambda: 1 in other.inspect.view.segments.get(NAME, {}))
    assert testbed.loop.time() - before < 2 * TTL_S + 1
    gate = testbed.faults.hold(StorageOp.OPEN)
    opened_before = testbed.faults.counts[StorageOp.OPEN]
    answers = [asyncio.create_task(asked(other, 1 + number % 3)) for number in range(6)]
    await asyncio.sleep(0.1)
    gate.set()
    told = [await answer for answer in answers]
    assert {(sealed.end_offset, sealed.successors) for sealed in told} == {(6, (1,))}
    assert [(sealed.next_sequence, len(sealed.recent)) for sealed in told] == [(1, 1), (2, 2), (3, 3)] * 2
    assert (await asked(other, 2)).next_sequence == 2
    (_,) = testbed.files(FileKind.LOG)
    assert testbed.faults.counts[StorageOp.OPEN] - opened_before == 2, "its preamble and its frames"
    assert (await asked(other, 9)).next_sequence == 0, "a stranger"


async def test_a_dead_broker_is_one_line_in_each_log(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    hosts = await testbed.several(3, segments=24, replicas=3)
    await testbed.until(lambda: sum(len(h.inspect.segments) for h in hosts) == 24)
    victim = next(h for h in hosts if not h.inspect.leads)
    dead = victim.broker.id
    lost = sum(segment.primary != dead for segment in hosts[0].inspect.view.open_of(NAME).values())
    victim.kill()
    await asyncio.sleep(1)
    ending = f" more: follower {dead} lost: the connection to the broker was lost"
    lines = [message.removesuffix(ending) for message in caplog.messages if message.endswith(ending)]
    assert len(lines) == 2
    assert sum(int(line.split(" and ")[1]) + NAMED_MAX for line in lines) == lost


@pytest.mark.parametrize("op", [StorageOp.LIST, StorageOp.DELETE, StorageOp.PUT, StorageOp.CHECK])
async def test_no_failure_of_the_storage_in_the_background_ends_a_broker(testbed: Testbed, op: StorageOp) -> None:
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    testbed.faults.failing[op] = "input/output error"
    await asyncio.sleep(200)
    await publisher.store(frames=3)
    assert not any(h.has_failed for h in hosts)
    testbed.faults.failing.clear()
    await asyncio.sleep(100)
    assert testbed.files(FileKind.TABLE)


async def test_a_new_cluster_does_not_start_where_it_cannot_write(testbed: Testbed) -> None:
    testbed.faults.failing[StorageOp.PUT] = "read-only file system"
    with pytest.raises(StorageFailed, match="read-only file system"):
        await testbed.start()
    testbed.hosts.pop()


async def test_a_leader_that_rejects_load_reports_harms_none(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = await testbed.cluster(3)
    leader = testbed.leader()
    answers = 0

    async def nonsense(reports: object) -> None:
        nonlocal answers
        answers += 1
        raise SeaweedMQError("an internal error of the leader")

    monkeypatch.setattr(leader.broker.api, "report_load", nonsense)
    await asyncio.sleep(60)
    assert not any(h.has_failed for h in hosts)
    assert 20 < answers < 600
    monkeypatch.undo()
    await testbed.until(lambda: leader.inspect.leader.placement.loads.keys() == {h.broker.id for h in hosts}, 30)


async def test_brokers_report_to_a_new_leader_though_the_old_one_is_only_frozen(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    old = testbed.leader()
    await testbed.until(lambda: len(old.inspect.leader.placement.loads) == 3)
    old.freeze()
    others = [h for h in hosts if h is not old]
    await testbed.until(lambda: any(h.inspect.leads for h in others))
    new = next(h for h in others if h.inspect.leads)
    await testbed.until(lambda: new.inspect.leader.placement.loads.keys() == {h.broker.id for h in others}, 5)
    old.thaw()
    await testbed.until(lambda: len(new.inspect.leader.placement.loads) == 3)


async def test_losing_the_lease_while_topics_are_deleted_and_storage_is_slow_ends_no_broker(testbed: Testbed) -> None:
    host = await testbed.single(segments=8)
    for n in range(8):
        await (await host.publisher(segment=n)).store(slots=(n * 8192, n * 8192))
    testbed.faults.paths = "/00000000/"
    held = testbed.faults.hold(StorageOp.SYNC)
    for n in range(8):
        await (await host.publisher(2, segment=n)).send(slots=(n * 8192, n * 8192))
    await asyncio.sleep(0.1)
    await host.api.call(DeleteTopic(NAME))
    host.expire_lease()
    await asyncio.sleep(0.1)
    held.set()
    await asyncio.sleep(5 * TTL_S)
    assert not host.has_failed
    await testbed.topic(host)
    await (await host.publisher()).store()


async def test_a_broker_that_wakes_up_without_etcd_makes_no_tables_of_what_is_uncommitted(testbed: Testbed) -> None:
    config = replace(CONFIG, log_roll_age_s=1.0, maintenance_interval_s=1.0)
    primary, other = await testbed.pair(2, config)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    held = testbed.faults.hold(StorageOp.APPEND)
    await publisher.send()
    await testbed.until(lambda: primary.inspect.segments[NAME, 0].log.end == 4)
    primary.freeze()
    del testbed.faults.held[StorageOp.APPEND]
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    primary.meta.is_cut_off = True
    held.set()
    primary.thaw()
    await asyncio.sleep(20)
    assert max(f.end_offset or 0 for f in testbed.files(FileKind.TABLE)) == 3
    primary.meta.is_cut_off = False
    await testbed.until(lambda: len(other.inspect.view.brokers) == 2)
    assert await everything(testbed, other) == values(1, 3)


async def test_what_is_assigned_to_a_broker_before_it_knows_that_it_is_registered_is_served(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    leader = testbed.leader()
    other = next(h for h in hosts if h is not leader)
    transact = other.meta.transact

    async def slowly_answered(*args: Any) -> int | None:
        revision = await transact(*args)
        await asyncio.sleep(1.0)
        return revision

    other.meta.transact = slowly_answered  # type: ignore[method-assign]
    other.expire_lease()
    await testbed.until(lambda: len(leader.inspect.view.brokers) == 1)
    await testbed.until(lambda: len(leader.inspect.view.brokers) == 2)
    description = await testbed.topic(leader, segments=2)
    assigned = {(NAME, s.id) for s in description.segments if s.primary not in (leader.broker.id, other.broker.id)}
    assert assigned
    await testbed.until(lambda: assigned <= other.inspect.segments.keys())


@pytest.mark.parametrize("duty", ["view", "fsync", "segments", "leader", "load", "maintenance"])
async def test_a_duty_that_is_cancelled_by_accident_ends_the_broker(testbed: Testbed, duty: str) -> None:
    (host,) = await testbed.cluster(1)
    of = f" of {host.address}"
    (task,) = (t for t in asyncio.all_tasks() if t.get_name().startswith(f"{duty} of ") and t.get_name().endswith(of))
    task.cancel()
    with pytest.raises(AssertionError, match=f"{duty} of .* was cancelled before its time"):
        await host.broker.failed
    host.kill()


async def test_the_figures_of_a_segment_that_others_may_have_ended_are_left_out(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(segments=2)
    await publisher.store(frames=3)
    assert [(s.segment, s.high_watermark) for s in await host.api.call(LocalStats(NAME))] == [(0, 3), (1, 0)]
    alive = host.session.alive
    testbed.etcd.server.stop()
    await testbed.until(lambda: not alive())
    assert await host.api.call(LocalStats(NAME)) == ()
    testbed.etcd.server.start()
    await testbed.until(alive)
    segment = host.inspect.view.segments[NAME][1]
    await host.api.call(Seal(testbed.ref(segment)))
    assert [s.segment for s in await host.api.call(LocalStats(NAME))] == [0]


# --- a suspended and resumed machine: its monotonic clock stood still, its lease expired


async def test_a_broker_whose_machine_slept_knows_at_once_that_its_lease_may_have_ended(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    session = primary.session

    async def remaining_s() -> float:
        return session.remaining_s

    before_s = await testbed.network.spawn(primary.owner, remaining_s())
    await primary.suspend(TTL_S)
    assert await testbed.network.spawn(primary.owner, remaining_s()) == pytest.approx(before_s - TTL_S)
    assert not session.alive()


async def test_what_a_machine_had_under_way_when_it_fell_asleep_is_not_acknowledged(testbed: Testbed) -> None:
    primary, other = await testbed.pair(2)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    held = testbed.faults.hold(StorageOp.APPEND)
    await publisher.send()
    await testbed.until(lambda: primary.inspect.segments[NAME, 0].log.end == 4)
    testbed.loop.suspend(primary.owner)
    del testbed.faults.held[StorageOp.APPEND]
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    primary.meta.is_cut_off = True  # its network comes back later than the machine
    held.set()
    testbed.loop.resume(primary.owner)
    await asyncio.sleep(TTL_S / 2)
    assert not any(isinstance(r, PublishAck) for r in publisher.stream.replies)
    primary.meta.is_cut_off = False
    await testbed.until(lambda: len(other.inspect.view.brokers) == 2)
    reader = await other.subscriber()
    assert (await reader.ending()).end_offset == 3
    assert reader.values == values(1, 3)


async def test_a_leader_whose_machine_slept_leads_no_more(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    leader = testbed.leader()
    sleeping = asyncio.create_task(leader.suspend(3 * TTL_S))
    await testbed.until(lambda: any(h.inspect.leads for h in hosts if h is not leader))
    await sleeping
    assert not leader.inspect.leads
    await testbed.until(lambda: len(testbed.leader().inspect.view.brokers) == 3)


LATE_S = (0.2, 0.5)
FRAMES = 30


async def test_a_slow_network_delays_everything_and_loses_nothing(testbed: Testbed) -> None:
    hosts = await testbed.several(3, replicas=3)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    testbed.network.faults.latency_s_min, testbed.network.faults.latency_s_max = LATE_S
    began = testbed.loop.time()
    for _ in range(FRAMES):
        await publisher.send()
    assert await publisher.acks(FRAMES) == [(n, n) for n in range(FRAMES)]
    assert testbed.loop.time() - began > CONFIG.replica_timeout_s, "so late that a silent replica would be replaced"
    assert await (await primary.subscriber()).until(FRAMES) == values(1, FRAMES)
    (segment,) = primary.inspect.view.open_of(next(iter(primary.inspect.view.topics))).values()
    assert (segment.id, len(segment.replicas)) == (0, 3), "no replica is given up for being far away"
