"""Journals of groups as objects."""

import asyncio

import pytest

from seaweedmq.codec.paths import journal_name
from seaweedmq.errors import NotFound, StorageFailed
from seaweedmq.storage.object_store import journals
from seaweedmq.storage.object_store.root import ObjectRoot
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects
from tests.support.object_carriers import LateWrites, doubled
from tests.support.stores import bucket, object_store

NAME = journal_name(1, 2, 3)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    monkeypatch.setattr(journals, "CHUNK_BYTES", 100)
    monkeypatch.setattr(journals, "APPEND_INTERVAL_S", 0.0)
    return bucket()


async def test_few_objects_hold_a_long_journal(stored: MemoryBucket) -> None:
    store = object_store(stored)
    journal = await store.create_journal(NAME)
    written = b""
    for number in range(500):
        line = b"%d," % number
        await journal.append([line])
        written += line
        assert await store.read_journal(NAME) == written
    assert journal.size_bytes == len(written)
    largest = max(each.state.size_bytes for each in stored.stored.values())
    assert largest < 110
    assert len(stored.stored) < len(written) / 100 + 40, "shorter objects are deleted at each boundary"


async def test_an_append_whose_answer_is_lost_is_read_once(stored: MemoryBucket) -> None:
    objects = MemoryObjects(stored)
    doubling = MemoryObjects(stored, carry=doubled(stored))
    await objects.create("unrelated", [])
    journal = journals.ObjectJournal(doubling, ObjectRoot(doubling), NAME)
    for line in (b"one", b"two" * 60, b"three"):
        await journal.append([line])
    assert await journals.read_journal(objects, NAME) == b"one" + b"two" * 60 + b"three"


async def test_after_a_failure_a_journal_takes_no_more_and_is_read_as_far_as_it_is_whole(stored: MemoryBucket) -> None:
    network = LateWrites(stored)
    store = object_store(stored, network.carry)
    journal = await store.create_journal(NAME)
    await journal.append([b"one"])
    network.is_late = lambda request: True
    with pytest.raises(StorageFailed, match="no answer"):
        await journal.append([b"two"])
    network.is_late = lambda request: False
    for call in (journal.append([b"three"]), journal.sync()):
        with pytest.raises(StorageFailed, match=r"accepts no more because .*: continue in another journal"):
            await call
    assert await store.read_journal(NAME) == b"one"
    network.release()
    assert await store.read_journal(NAME) == b"onetwo", "it was never acknowledged, and may be there"


async def test_a_cancelled_append_ends_a_journal(stored: MemoryBucket) -> None:
    never = asyncio.Event()

    class Hanging(MemoryObjects):
        async def create(self, *_: object, **__: object) -> str:
            await never.wait()
            return ""

    objects = Hanging(stored)
    journal = journals.ObjectJournal(objects, ObjectRoot(objects), NAME)
    append = asyncio.create_task(journal.append([b"one"]))
    await asyncio.sleep(0.01)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    with pytest.raises(StorageFailed):
        await journal.append([b"two"])


async def test_what_arrives_late_for_a_deleted_journal_is_no_journal(stored: MemoryBucket) -> None:
    network = LateWrites(stored)
    store = object_store(stored, network.carry)
    journal = await store.create_journal(NAME)
    await journal.append([b"x" * 100])
    network.is_late = lambda request: True
    with pytest.raises(StorageFailed):
        await journal.append([b"late"])
    network.is_late = lambda request: False
    await store.delete_journals([NAME])
    network.release()
    with pytest.raises(NotFound):
        await store.read_journal(NAME)
    await store.delete_journals(await store.list_journals())
    assert not stored.stored


async def test_parts_of_other_sizes_than_their_names_say_are_ignored(stored: MemoryBucket) -> None:
    store = object_store(stored)
    journal = await store.create_journal(NAME)
    await journal.append([b"one"])
    for start, end, content in ((0, 9, b"cut"), (3, 2, b""), (3, 3, b""), (7, 8, b"x")):
        await store.objects.put(f"groups/{NAME}/{start:020d}-{end:020d}", [content])
    assert await store.read_journal(NAME) == b"one"


async def test_appends_keep_their_interval(stored: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "APPEND_INTERVAL_S", 0.05)
    journal = await object_store(stored).create_journal(NAME)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(4):
        await journal.append([b"x"])
    assert loop.time() - began >= 0.15
