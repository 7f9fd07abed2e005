"""Catch-up reads from log objects that other brokers replace, and the journal of groups' recovery."""

import pytest

from seaweedmq.broker.recovery.groups import find_groups
from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.paths import journal_name
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_journal import JournalChange, JournalFrame, JournalKind, encode_journal_frame
from seaweedmq.errors import DataLoss, OutOfRange
from seaweedmq.model.files import SegmentFile
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.recovery import recover_segment
from tests.doubles.memory_objects import MemoryBucket, ObjectOp
from tests.support.segments import NAME, make_frame, make_preamble, make_segment, make_topic, records_of
from tests.support.stores import bucket, object_store


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seaweedmq.storage.read.reader.RELIST_DELAY_S", 0.0001)


async def put(store: ObjectSegmentStore, *bases: int, end: int, writer: str = "b-1") -> SegmentFile:
    """Put a log object with a frame at each base, up to the next one or the end."""
    frames = [make_frame(base, after - base) for base, after in zip(bases, [*bases[1:], end], strict=True)]
    content = [make_preamble(bases[0], writer), *frames]
    return await store.create_log_object(
        NAME, 7, 0, base_offset=bases[0], end_offset=end, writer=writer, content=content
    )


async def offsets(store: ObjectSegmentStore, start: int, end: int) -> list[int]:
    found: list[int] = []
    async for chunk in read_segment(store, make_topic(), 0, start, end, chunk_bytes=1_000):
        assert list(split_frames(chunk.data))
        found += [offset for offset, _ in records_of(chunk.data, make_topic())]
    return [offset for offset in found if start <= offset < end]


async def test_records_are_read_from_log_objects_in_one_listing() -> None:
    stored = bucket()
    store = object_store(stored)
    await put(store, 0, 4, end=10)
    await put(store, 10, end=15)
    for start, end in ((0, 15), (7, 12), (14, 15)):
        assert await offsets(store, start, end) == list(range(start, end))
    assert stored.applied[ObjectOp.LIST] == 1


async def test_a_reader_finds_what_replaced_a_log_object() -> None:
    stored: MemoryBucket = bucket()
    store, other = object_store(stored), object_store(stored)
    first, second = await put(store, 0, end=10), await put(store, 10, end=20)
    assert await offsets(store, 0, 20) == list(range(20))
    await put(other, 0, end=20, writer="b-2")
    await other.delete([first, second])
    assert await offsets(store, 0, 20) == list(range(20))
    await put(other, 20, end=25)
    assert await offsets(store, 15, 25) == list(range(15, 25)), "a gap is listed again"


async def test_missing_records_are_reported_after_a_listing() -> None:
    stored = bucket()
    store, other = object_store(stored), object_store(stored)
    logs = [await put(store, base, end=base + 10) for base in (0, 10, 20)]
    assert await offsets(store, 0, 30) == list(range(30))
    await other.delete(logs[1:2])
    with pytest.raises(DataLoss, match=r"10"):
        await offsets(store, 0, 30)
    await other.record_removed(NAME, 7, {0: 20})
    with pytest.raises(OutOfRange, match="removed by retention"):
        await offsets(store, 10, 30)


async def test_a_segment_is_recovered_from_its_log_objects() -> None:
    store = object_store(bucket())
    await put(store, 0, 4, end=10)
    await put(store, 10, end=15, writer="b-2")
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 15


async def test_groups_are_recovered_from_the_last_whole_journal() -> None:
    store = object_store(bucket())

    def line(kind: JournalKind, value: bytes) -> bytes:
        change = JournalChange(f"{keys.GROUPS_ROOT}x", value)
        return encode_journal_frame(JournalFrame(kind=kind, revision=5, changes=(change,)))

    for number, lines in enumerate(((b"one", b"two"), (b"three",))):
        journal = await store.create_journal(journal_name(0, 1, number))
        await journal.append([line(JournalKind.SNAPSHOT, lines[0])])
        for each in lines[1:]:
            await journal.append([line(JournalKind.CHANGES, each)])
    await store.create_journal(journal_name(0, 2, 0))
    found = await find_groups(store)
    assert (found.journal, dict(found.values)) == (journal_name(0, 1, 1), {f"{keys.GROUPS_ROOT}x": b"three"})
