"""Storage in memory fails the way a machine and its disk do."""

import random

import pytest

from seaweedmq.codec.paths import table_path
from seaweedmq.errors import StorageFailed, Unavailable
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.support.segments import NAME, begin_log, make_preamble


def make_store() -> MemorySegmentStore:
    return MemorySegmentStore(lambda: 1_000)


async def test_a_crash_loses_what_was_not_synced() -> None:
    failing = False

    async def fault(op: StorageOp, path: str) -> None:
        if failing and op is StorageOp.SYNC:
            raise StorageFailed(f"{op} {path}")

    store = MemorySegmentStore(lambda: 1_000, fault)
    log, other = await begin_log(store, 0), await begin_log(store, 0, writer="b-2")
    assert await log.append([b"synced"], sync=True)
    await other.append([b"synced"])
    await other.sync()
    await other.append([b"lost"])
    failing = True
    assert not await log.append([b"lost"], sync=True)
    with pytest.raises(StorageFailed, match="continue in another file"):
        await log.sync()
    store.crash()
    for each in (log, other):
        assert bytes(store.files[each.path].data)[-6:] == b"synced"
        with pytest.raises(StorageFailed):
            await each.append([b"from the grave"])
        with pytest.raises(StorageFailed):
            await each.sync()


async def test_a_file_never_synced_vanishes_with_its_machine_only_and_tables_never_overlap() -> None:
    store = make_store()
    await begin_log(store, 0, writer="b-1")
    await begin_log(store, 0, writer="b-2")
    store.crash("b-1")
    assert [f.writer for f in await store.list_files(NAME, 0)] == ["b-2"]
    store = make_store()
    await store.put_file(table_path(NAME, 0, 10, 20), b"first")
    for base, end in ((10, 20), (0, 11), (19, 30), (12, 13)):
        with pytest.raises(Unavailable, match="were converted by another process meanwhile"):
            await store.put_file(table_path(NAME, 0, base, end), b"second")
    for segment, base, end in ((0, 0, 10), (0, 20, 30), (1, 10, 20)):
        await store.put_file(table_path(NAME, segment, base, end), b"beside it")


async def test_a_crash_may_tear_the_last_write() -> None:
    kept = set()
    for seed in range(50):
        store = make_store()
        log = await begin_log(store, 0)
        await log.sync()
        await log.append([b"0123456789"])
        store.crash(rng=random.Random(seed))
        data = bytes(store.files[log.path].data)[len(make_preamble(0)) :]
        assert b"0123456789".startswith(data.rstrip(b"\0"))
        kept.add(len(data))
    assert len(kept) > 5


async def test_a_crash_keeps_any_pages_of_what_was_not_synced() -> None:
    first, second, third = b"1" * 4_096, b"2" * 4_096, b"3" * 4_096
    survived = set()
    for seed in range(200):
        store = make_store()
        log = await begin_log(store, 0)
        await log.append([b"synced"])
        await log.sync()
        synced = len(store.files[log.path].data)
        await log.append([first, second, third])
        store.crash(rng=random.Random(seed))
        data = bytes(store.files[log.path].data)
        assert data.startswith(make_preamble(0) + b"synced")
        survived.add(tuple(page[:1] in data[synced:] for page in (first, second, third)))
    assert survived >= {(True, True, True), (False, True, True), (True, False, True), (True, True, False)}


async def test_a_name_that_was_not_synced_may_survive_a_crash_and_one_that_was_does() -> None:
    survived = set()
    for seed in range(20):
        store = make_store()
        await begin_log(store, 0, writer="b-1")
        await store.fence(NAME, 1, 0)  # fsyncs the folder of the segment's logs
        await begin_log(store, 10, writer="b-1")
        await begin_log(store, 20, writer="b-1")
        store.crash("b-1", random.Random(seed))
        survived.add(tuple(f.base_offset for f in await store.list_files(NAME, 0)))
    assert survived == {(0,), (0, 10), (0, 20), (0, 10, 20)}


async def test_a_failing_append_poisons_the_writer_and_may_leave_a_part() -> None:
    store = make_store()
    store.tear = random.Random(1)
    log = await begin_log(store, 0)

    async def full(op: StorageOp, path: str) -> None:
        if op is StorageOp.APPEND:
            raise StorageFailed(f"{path} is full")

    store.fault = full
    with pytest.raises(StorageFailed, match="full"):
        await log.append([b"0123456789"])
    assert len(store.files[log.path].data) <= len(make_preamble(0)) + 10
    with pytest.raises(StorageFailed, match="continue in another file"):
        await log.append([b"more"])
