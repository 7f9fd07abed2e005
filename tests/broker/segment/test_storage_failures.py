"""Group commit and failing storage: only flushed records are acknowledged, and no acknowledged record is lost."""

import asyncio
from collections.abc import Sequence

import pytest

from seaweedmq.broker.segment import segment_files
from seaweedmq.errors import StaleMetadata, StorageFailed
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import AlterTopic
from seaweedmq.model.topic import Durability, TopicChange
from tests.broker.testbed import CONFIG, NAME, PATIENCE_S, TTL_S, Testbed, values
from tests.doubles.memory_store import MemoryLogWriter, StorageOp
from tests.support.tracebacks import depth


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small writes and their fsyncs separate calls, as those of large ones are."""
    monkeypatch.setattr(segment_files, "SYNCED_WRITE_BYTES_MAX", 0)


async def stored_values(testbed: Testbed, count: int) -> list[bytes]:
    """Return the values that survive a power loss of every machine at this moment."""
    for host in testbed.hosts:
        host.kill()
    testbed.store.crash()
    testbed.faults.failing.clear()
    testbed.faults.held.clear()
    host = await testbed.start()
    await testbed.until(lambda: any(h.inspect.segments for h in testbed.hosts if h.lives), 10 * TTL_S)
    first = await host.subscriber()
    end = await first.ending()
    return first.values[:count] if end else []


async def test_stored_is_acknowledged_only_after_the_fsync_which_many_frames_share(testbed: Testbed) -> None:
    host = await testbed.single()
    synced = testbed.faults.hold(StorageOp.SYNC)
    reader = await host.subscriber()
    publishers = [await host.publisher(n) for n in range(1, 21)]
    for publisher in publishers:
        for _ in range(10):
            await publisher.send()
    await testbed.until(lambda: host.inspect.segments[NAME, 0].log.end == 200)
    assert await publishers[0].quiet(3)
    assert testbed.files(FileKind.LOG)[0].size_bytes > 200
    assert reader.values == []
    synced.set()
    for publisher in publishers:
        await publisher.acks(10)
    assert len(await reader.until(200)) == 200
    assert testbed.faults.counts[StorageOp.SYNC] <= 2


async def test_replicated_is_acknowledged_before_the_fsync_which_follows_within_the_interval(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(durability=Durability.REPLICATED)
    for _ in range(20):
        await publisher.store()
    assert testbed.faults.counts[StorageOp.SYNC] == 0
    before = testbed.loop.time()
    log = host.inspect.segments[NAME, 0].log
    await testbed.until(lambda: log.flushed == 20)
    assert testbed.loop.time() - before <= CONFIG.flush_interval_s + 0.1
    assert testbed.faults.counts[StorageOp.SYNC] == 1


async def test_a_small_write_and_its_fsync_are_one_call(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    host, publisher = await testbed.publishing()
    synced: list[bool] = []
    append = MemoryLogWriter.append

    async def noted(self: MemoryLogWriter, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        synced.append(sync)
        return await append(self, chunks, sync=sync)

    monkeypatch.setattr(MemoryLogWriter, "append", noted)
    await publisher.store(frames=3)
    assert synced == [True] * 3
    assert testbed.faults.counts[StorageOp.SYNC] == 3
    assert host.inspect.segments[NAME, 0].log.flushed == 3


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("op", [StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC])
async def test_publishers_hear_that_the_storage_fails(testbed: Testbed, op: StorageOp, durability: Durability) -> None:
    host, publisher = await testbed.publishing(durability=durability)
    if op is not StorageOp.CREATE:
        await publisher.store(frames=3)
    testbed.faults.failing[op] = "no space left on device"
    await publisher.send(2)
    if (op, durability) == (StorageOp.SYNC, Durability.REPLICATED):
        await publisher.acks()
        await testbed.until(lambda: host.inspect.segments[NAME, 0].failure)
        await publisher.send(2)
        with pytest.raises(StorageFailed, match="no space left on device"):
            await publisher.stream.receive()
    else:
        with pytest.raises(StorageFailed, match="no space left on device"):
            await publisher.acks()
    with pytest.raises(StorageFailed):
        await host.publisher()
    testbed.faults.failing.clear()
    await testbed.until(lambda: not host.inspect.segments[NAME, 0].failure)
    again = await host.publisher()
    await again.store(frames=3)
    assert await (await host.subscriber()).until(again.next) == values(1, again.next)
    assert not host.has_failed


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("op", [StorageOp.APPEND, StorageOp.SYNC])
async def test_storage_that_fails_for_long_leaves_few_files(testbed: Testbed, op: StorageOp, is_full: bool) -> None:
    """A full one is noticed without the creation of files, and its end within 2 s."""
    host, publisher = await testbed.publishing()
    await publisher.store(frames=3)
    reason = "no space left on device" if is_full else "input/output error"
    testbed.faults.failing = dict.fromkeys((op, StorageOp.CHECK) if is_full else (op,), reason)
    await publisher.send(2)
    assert isinstance(await publisher.stream.failure(), StorageFailed)
    await asyncio.sleep(300 if is_full else 900)
    assert len(testbed.files(FileKind.LOG)) <= (3 if is_full else 250)
    testbed.faults.failing.clear()
    patience_s = 2.1 if is_full else PATIENCE_S
    await testbed.until(lambda: not host.inspect.segments[NAME, 0].failure, patience_s)
    await (await host.publisher()).store(frames=3)
    assert await (await host.subscriber()).until(8) == values(1, 8)
    assert len(testbed.files(FileKind.LOG)) <= 3
    assert await stored_values(testbed, 8) == values(1, 8)


async def test_after_a_failed_fsync_unflushed_records_are_written_again_and_flushed_ones_become_a_table(
    testbed: Testbed,
) -> None:
    """The kernel may have dropped the pages: a second fsync that works proves nothing."""
    host, publisher = await testbed.publishing()
    await publisher.store(frames=3)
    (bad,) = testbed.files(FileKind.LOG)
    testbed.faults.failing[StorageOp.SYNC] = "input/output error"
    testbed.faults.paths = bad.path
    await publisher.send(2)
    assert await publisher.acks() == [(3, 3)]
    again = next(f for f in testbed.files(FileKind.LOG) if f.path != bad.path)
    assert again.base_offset == 3
    lost = testbed.store.files[bad.path]
    lost.data[lost.synced_bytes + 200 :] = bytes(len(lost.data) - lost.synced_bytes - 200)
    await publisher.store(frames=3)
    await testbed.until(lambda: sum((t.end_offset or 0) - t.base_offset for t in testbed.files(FileKind.TABLE)) == 5)
    assert not host.inspect.segments[NAME, 0].files.sealed
    assert await stored_values(testbed, 8) == values(1, 8)


@pytest.mark.usefixtures("apart")
async def test_a_write_under_way_when_the_fsync_of_its_file_fails_is_not_forgotten(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    await publisher.store()
    held = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    await testbed.until(lambda: host.inspect.segments[NAME, 0].log.written == 2)
    appending = testbed.faults.hold(StorageOp.APPEND)
    await publisher.send()
    await asyncio.sleep(0.1)
    testbed.faults.failing[StorageOp.SYNC] = "input/output error"
    testbed.faults.paths = testbed.files(FileKind.LOG)[0].path
    held.set()
    await asyncio.sleep(0.1)
    appending.set()
    await asyncio.sleep(5)
    testbed.faults.failing.clear()
    again = await host.publisher()
    await again.store(frames=2)
    assert again.next == 5
    assert await stored_values(testbed, 5) == values(1, 5)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("is_copied", [True, False], ids=["after the copy", "before it"])
async def test_a_write_to_an_abandoned_file_is_repeated(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    host, publisher = await testbed.publishing()
    await publisher.store()
    held = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    await testbed.until(lambda: host.inspect.segments[NAME, 0].log.written == 2)
    answered, append = asyncio.Event(), MemoryLogWriter.append

    async def answer_late(self: MemoryLogWriter, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        synced = await append(self, chunks, sync=sync)
        await answered.wait()
        return synced

    monkeypatch.setattr(MemoryLogWriter, "append", answer_late)
    await publisher.send()
    await asyncio.sleep(0.1)
    monkeypatch.undo()
    testbed.faults.failing[StorageOp.SYNC] = "input/output error"
    copying = testbed.faults.hold(StorageOp.CREATE)
    testbed.faults.paths = "/log/"
    if is_copied:
        copying.set()
    held.set()
    await asyncio.sleep(0.1)
    testbed.faults.failing.clear()
    answered.set()
    await asyncio.sleep(0.1)
    copying.set()
    assert isinstance(await publisher.stream.failure(), StorageFailed)
    await testbed.until(lambda: not host.inspect.segments[NAME, 0].failure)
    again = await host.publisher()
    await again.store()
    assert await stored_values(testbed, again.next) == values(1, 4)


@pytest.mark.usefixtures("apart")
async def test_changing_the_durability_takes_effect_at_once(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(durability=Durability.REPLICATED)
    await publisher.store(frames=3)
    await host.api.call(AlterTopic(NAME, TopicChange(durability=Durability.STORED)))
    log = host.inspect.segments[NAME, 0].log
    await testbed.until(lambda: log.flushed == 3)
    held = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    assert await publisher.quiet(3)
    await host.api.call(AlterTopic(NAME, TopicChange(durability=Durability.REPLICATED)))
    assert await publisher.acks() == [(3, 3)]
    held.set()


async def test_stopping_a_broker_stores_everything_it_took(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(durability=Durability.REPLICATED)
    for _ in range(10):
        await publisher.send()
    await testbed.until(lambda: host.inspect.segments[NAME, 0].log.end == 10)
    await host.stop()
    assert await publisher.acks(10) == [(n, n) for n in range(10)]
    assert await stored_values(testbed, 10) == values(1, 10)


@pytest.mark.parametrize("hangs", [False, True])
async def test_stopping_while_the_storage_fails_or_hangs_ends_and_loses_nothing(testbed: Testbed, hangs: bool) -> None:
    host, publisher = await testbed.publishing()
    await publisher.store(frames=5)
    if hangs:
        testbed.faults.hold(StorageOp.SYNC)
    else:
        testbed.faults.failing[StorageOp.APPEND] = "no space left on device"
    await publisher.send()
    if hangs:
        await testbed.until(lambda: testbed.faults.counts[StorageOp.SYNC] == 6)
    before = testbed.loop.time()
    await host.stop()
    assert testbed.loop.time() - before < (60 if hangs else 30)
    assert await stored_values(testbed, 5) == values(1, 5)


async def test_the_failure_that_every_publisher_is_told_keeps_nothing_of_them_alive(testbed: Testbed) -> None:
    host = await testbed.single()
    publishers = [await host.publisher(producer) for producer in range(1, 41)]
    testbed.faults.failing[StorageOp.APPEND] = "no space left"
    segment = host.inspect.segments[NAME, 0]
    await publishers[0].send()
    assert isinstance(await publishers[0].stream.failure(), StorageFailed)
    kept = segment.failure
    assert kept is not None
    before = depth(kept)
    for publisher in publishers[1:20]:
        await publisher.send(size=50_000)
    failures = [await publisher.stream.failure() for publisher in publishers[:20]]
    await segment.close(StaleMetadata("another broker serves it"))
    for publisher in publishers[20:]:
        await publisher.send(size=50_000)
    failures += [await publisher.stream.failure() for publisher in publishers[20:]]
    assert len({id(failure) for failure in failures}) == len(publishers)
    assert depth(kept) == before
    assert segment.rejection is not None
    assert depth(segment.rejection) == 0
    testbed.faults.failing.clear()
