"""Catalogs: own changes during a listing, and when a listing is saved."""

import asyncio

import pytest

from seaweedmq.codec.object_keys import TopicKey
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.storage.object_store import catalog
from seaweedmq.storage.object_store.catalog import Catalogs, TopicCatalog
from tests.doubles.memory_objects import MemoryBucket, ObjectAnswer, ObjectOp, ObjectRequest
from tests.support.segments import NAME
from tests.support.stores import bucket, object_store, put_log, put_table


def file(base: int, segment: int = 0) -> SegmentFile:
    return SegmentFile(
        topic=NAME,
        segment=segment,
        kind=FileKind.LOG,
        base_offset=base,
        end_offset=base + 10,
        writer="b-1",
        size_bytes=1,
        path=f"{segment}/{base}",
        modified_us=1,
    )


async def test_own_changes_during_a_listing_are_applied_to_it() -> None:
    known = TopicCatalog()

    async def listed() -> list[SegmentFile]:
        found = [file(10), file(0)]
        known.add(file(20))
        known.remove(file(0))
        return found

    assert not known.covers(0, 5)
    await known.renew(listed)
    assert known.files(0) == [file(10), file(20)]
    assert [known.covers(0, offset) for offset in (9, 10, 29, 30)] == [False, True, True, False]
    known.add(file(0, segment=1))
    known.remove(file(10))
    assert (known.files(), len(known)) == ([file(20), file(0, segment=1)], 2)


async def test_a_listing_is_shared_by_those_that_asked_before_it_began() -> None:
    known = TopicCatalog()
    listings: list[asyncio.Event] = []

    async def listed() -> list[SegmentFile]:
        listings.append(asyncio.Event())
        await listings[-1].wait()
        return [file(len(listings))]

    first = asyncio.create_task(known.renew(listed))
    await asyncio.sleep(0)
    later = [asyncio.create_task(known.renew(listed)) for _ in range(3)]
    await asyncio.sleep(0)
    listings[0].set()
    await first
    assert not any(task.done() for task in later), "the first listing began before they asked"
    await asyncio.sleep(0)
    listings[1].set()
    await asyncio.gather(*later)
    assert (len(listings), known.files()) == (2, [file(2)])


async def test_a_failed_listing_leaves_the_catalog_as_it_was() -> None:
    known = TopicCatalog()

    async def listed() -> list[SegmentFile]:
        return [file(0)]

    async def failed() -> list[SegmentFile]:
        known.add(file(10))
        raise OSError

    await known.renew(listed)
    with pytest.raises(OSError):
        await known.renew(failed)
    assert known.files() == [file(0), file(10)]


async def test_the_topics_read_longest_ago_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "FILES_MAX", 2)
    catalogs = Catalogs()

    async def listed() -> list[SegmentFile]:
        return [file(0)]

    made = []
    for uid in (1, 2, 3):
        made.append(catalogs.of(TopicKey(NAME, uid)))
        await made[-1].renew(listed)
    catalogs.of(TopicKey(NAME, 1))
    catalogs.shrink()
    assert catalogs.of(TopicKey(NAME, 1)) is made[0]
    assert catalogs.of(TopicKey(NAME, 3)) is made[2]
    assert not catalogs.of(TopicKey(NAME, 2)).is_listed


async def test_reads_list_once_and_again_for_an_offset_that_is_missing() -> None:
    stored = bucket()
    store, other = object_store(stored), object_store(stored)
    log = await put_log(store, 0, b"x")

    def listings() -> int:
        return stored.applied[ObjectOp.LIST]

    async def read(offset: int) -> list[str]:
        return [each.path for each in await store.list_files(NAME, 0, uid=7, covering=offset)]

    assert await read(0) == await read(9) == [log.path]
    assert listings() == 1
    own = await put_log(store, 10, b"x")
    assert (await read(15), listings()) == ([log.path, own.path], 1)
    theirs = await put_log(other, 20, b"x")
    assert (await read(15), listings()) == ([log.path, own.path], 1)
    assert (await read(25), listings()) == ([log.path, own.path, theirs.path], 2)
    await other.delete([log])
    assert len(await store.list_files(NAME, 0, uid=7)) == 2, "a call without an offset always lists"


async def test_pages_in_any_order_with_repetitions_are_one_listing() -> None:
    stored = bucket()
    written = object_store(stored)
    logs = [await put_log(written, base, b"x", segment=segment) for segment in (0, 1) for base in (0, 10, 20)]
    table = await put_table(written, 30, 40)

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        answer = stored.apply(request)
        if isinstance(answer, tuple):
            return tuple(reversed(answer)) + answer[:2]
        return answer

    listed = await object_store(stored, carry).list_topic_files(NAME, uid=7)
    assert [each.path for each in listed] == [*(log.path for log in logs[:3]), table, *(log.path for log in logs[3:])]


async def test_a_listing_that_misses_an_own_object_is_completed() -> None:
    """Objects that are written while a store lists may be missing."""
    stored: MemoryBucket = bucket()
    begun, answered = asyncio.Event(), asyncio.Event()

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        answer = stored.apply(request)
        if request.op is ObjectOp.LIST:
            begun.set()
            await answered.wait()
        return answer

    store = object_store(stored, carry)
    listing = asyncio.create_task(store.list_files(NAME, 0, uid=7))
    await begun.wait()
    log = await put_log(store, 0, b"x")
    answered.set()
    assert await listing == [log]
