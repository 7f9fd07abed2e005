"""Recovery of a segment from its files after its broker is lost."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.errors import Corrupt
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState
from seaweedmq.ports import LogReader
from seaweedmq.storage.logs.lost_blocks import BLOCK_BYTES
from seaweedmq.storage.read.recovery import Recovered, earliest_offset, recover_segment
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.doubles.memory_store import MemorySegmentStore
from tests.support.segments import begin_log, make_frame, make_segment, make_topic, write_log


def producer(next_sequence: int, *acks: tuple[int, int, int], producer_id: int = 1) -> ProducerState:
    recent = tuple(FrameAck(*a) for a in acks)
    return ProducerState(producer_id=producer_id, producer_epoch=0, next_sequence=next_sequence, recent=recent)


async def test_a_segment_without_files_ends_where_it_begins(store: FileSegmentStore) -> None:
    recovered = await recover_segment(store, make_topic(), make_segment(start_offset=40))
    assert recovered == Recovered(end_offset=40, producers=())


async def test_end_and_producers_come_from_the_frames(store: FileSegmentStore) -> None:
    await write_log(
        store,
        0,
        [
            make_frame(0, 3, producer=1, first_sequence=0),
            make_frame(3, 2, producer=2, first_sequence=0),
            make_frame(5, 4, producer=1, first_sequence=3),
            make_frame(9, 4, producer=1, first_sequence=7)[:-8],
        ],
    )
    assert await recover_segment(store, make_topic(), make_segment()) == Recovered(
        end_offset=9, producers=(producer(2, (0, 2, 3), producer_id=2), producer(7, (0, 3, 0), (3, 4, 5)))
    )


async def test_what_came_before_the_last_file_is_in_its_preamble_even_if_empty(store: FileSegmentStore) -> None:
    early = ProducerState(producer_id=9, producer_epoch=0, next_sequence=50, recent=(FrameAck(40, 10, 90),))
    await write_log(store, 100, [], producers=[early])
    assert await recover_segment(store, make_topic(), make_segment()) == Recovered(end_offset=100, producers=(early,))
    await write_log(store, 100, [make_frame(100, 5, producer=9, first_sequence=50)], writer="b-2", producers=[early])
    assert await recover_segment(store, make_topic(), make_segment()) == Recovered(
        end_offset=105, producers=(producer(55, (40, 10, 90), (50, 5, 100), producer_id=9),)
    )


async def test_a_file_whose_preamble_never_reached_the_disk_is_as_if_it_were_not(store: FileSegmentStore) -> None:
    await write_log(store, 0, [make_frame(0, 10)])
    later = await write_log(store, 10, [])
    path = store.place.root / later.path
    path.write_bytes(path.read_bytes()[:30])
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 10


def stored_below(offset: int) -> ProducerState:
    """State of a producer that stored records [0, 8) and the rest of those below the offset, in one frame each."""
    recent = (FrameAck(0, 8, 0), FrameAck(8, offset - 8, 8))
    return ProducerState(producer_id=1, producer_epoch=0, next_sequence=offset, recent=recent)


@pytest.mark.parametrize("frames_behind", [0, 1])
async def test_a_preamble_is_not_believed_about_unflushed_records(store: FileSegmentStore, frames_behind: int) -> None:
    """Power was lost when [8, 10) and the next file were written: only the second reached the disk."""
    await write_log(store, 0, [make_frame(0, 8), make_frame(8, 2)[:-40]], flushed=0)
    behind = [make_frame(10, 5)] * frames_behind
    await write_log(store, 10, behind, producers=[stored_below(10)], flushed=8)
    recovered = await recover_segment(store, make_topic(), make_segment())
    assert recovered == Recovered(end_offset=8, producers=(producer(8, (0, 8, 0)),))


async def test_three_files_may_wait_for_their_fsync(store: FileSegmentStore) -> None:
    await write_log(store, 0, [make_frame(0, 8), make_frame(8, 2)[:-40]], flushed=0)
    await write_log(store, 10, [make_frame(10, 5)], producers=[stored_below(10)], flushed=8)
    await write_log(store, 15, [make_frame(15, 5)], producers=[stored_below(15)], flushed=8)
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 8


async def test_where_files_go_on_without_a_gap_they_are_one_log(store: FileSegmentStore) -> None:
    await write_log(store, 0, [make_frame(0, 8), make_frame(8, 2)], flushed=0)
    await write_log(store, 10, [make_frame(10, 5)], producers=[stored_below(10)], flushed=8)
    recovered = await recover_segment(store, make_topic(), make_segment())
    assert recovered == Recovered(end_offset=15, producers=(producer(15, (0, 8, 0), (8, 2, 8), (10, 5, 10)),))


async def test_what_a_preamble_says_was_fsynced_is_missed(store: FileSegmentStore) -> None:
    torn = await write_log(store, 0, [make_frame(0, 8), make_frame(8, 2)[:-40]], flushed=0)
    later = await write_log(store, 10, [make_frame(10, 5)], producers=[stored_below(10)], flushed=9)
    with pytest.raises(Corrupt, match=rf"{later.path} shows that records up to 9 .* {torn.path}.* damaged or cut"):
        await recover_segment(store, make_topic(), make_segment())


async def test_a_log_whose_predecessor_became_a_table_is_believed(store: FileSegmentStore) -> None:
    """Its tables may be gone also: they were made from flushed records."""
    await write_log(store, 10, [make_frame(10, 5)], producers=[stored_below(10)], flushed=8)
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 15


async def test_only_the_logs_behind_what_is_known_to_be_fsynced_are_read(store: FileSegmentStore) -> None:
    for base in (0, 10, 20, 30):
        frame = make_frame(base, 10) if base >= 20 else bytes(1_000)
        await write_log(store, base, [frame], flushed=max(0, base - 5))
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 40


async def test_a_lost_block_of_what_was_never_fsynced_ends_the_log(store: FileSegmentStore) -> None:
    """Later blocks of the same write reached the disk: valid frames follow the hole."""
    under_way = [make_frame(8 + n, 1, size=8192) for n in range(4)]
    log = await write_log(store, 0, [make_frame(0, 8), *under_way], flushed=0)
    path = store.place.root / log.path
    content = bytearray(path.read_bytes())
    second = len(content) - sum(map(len, under_way[1:]))
    block = second - second % BLOCK_BYTES
    content[block : block + BLOCK_BYTES] = bytes(BLOCK_BYTES)
    path.write_bytes(content)
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 8


async def test_a_damaged_preamble_is_an_error_and_a_lost_one_is_not(store: FileSegmentStore) -> None:
    await write_log(store, 0, [make_frame(0, 8)], flushed=0)
    later = await write_log(store, 8, [make_frame(8, 2, size=8192)], producers=[stored_below(8)], flushed=0)
    path = store.place.root / later.path
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:40] + b"?" + content[41:])
    with pytest.raises(Corrupt, match="log preamble: checksum"):
        await recover_segment(store, make_topic(), make_segment())
    path.write_bytes(bytes(BLOCK_BYTES) + content[BLOCK_BYTES:])
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 8


async def test_frames_rewritten_after_a_failed_fsync_count_once(store: FileSegmentStore) -> None:
    """b-1 could not fsync the records after offset 10, wrote them to another file, and died meanwhile."""
    frames = [make_frame(b, 10) for b in range(0, 50, 10)]
    await write_log(store, 0, frames)
    after_ten = ProducerState(producer_id=1, producer_epoch=0, next_sequence=10, recent=(FrameAck(0, 10, 0),))
    await write_log(store, 10, frames[1:3], producers=[after_ten])
    recovered = await recover_segment(store, make_topic(), make_segment())
    assert recovered.end_offset == 50
    assert recovered.producers == (producer(50, *((b, 10, b) for b in range(0, 50, 10))),)


async def test_the_longest_of_several_writers_wins(store: FileSegmentStore) -> None:
    frames = [make_frame(b, 10) for b in range(0, 50, 10)]
    await write_log(store, 0, frames[:2], writer="b-1")
    await write_log(store, 0, [*frames[:4], frames[4][:99]], writer="b-2")
    await write_log(store, 0, frames[:3], writer="b-3")
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 40


async def test_what_a_frozen_broker_wrote_after_the_seal_is_nobodys(store: FileSegmentStore) -> None:
    frames = [make_frame(0, 3, producer=1, first_sequence=0), make_frame(3, 2, producer=1, first_sequence=3)]
    await write_log(store, 0, frames)
    late = ProducerState(producer_id=1, producer_epoch=0, next_sequence=5, recent=(FrameAck(3, 2, 3),))
    await write_log(store, 5, [make_frame(5, 2, producer=1, first_sequence=5)], producers=[late])
    sealed = make_segment(end_offset=3)
    recovered = await recover_segment(store, make_topic(), sealed)
    assert recovered == Recovered(end_offset=3, producers=(producer(3, (0, 3, 0)),))


async def test_damage_in_the_middle_is_an_error_unless_another_file_gets_further(store: FileSegmentStore) -> None:
    frames = [make_frame(b, 10) for b in range(0, 50, 10)]
    broken = bytearray(frames[1])
    broken[300] ^= 4
    damaged = await write_log(store, 0, [frames[0], bytes(broken), *frames[2:4]], writer="b-1")
    with pytest.raises(Corrupt, match=rf"{damaged.path} is damaged at byte \d+, offset 10"):
        await recover_segment(store, make_topic(), make_segment())
    await write_log(store, 0, frames, writer="b-2")
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 50


async def test_writers_that_disagree_are_an_error(store: FileSegmentStore) -> None:
    await write_log(store, 0, [make_frame(0, 10)], writer="b-1")
    await write_log(store, 0, [make_frame(0, 7), make_frame(7, 7)], writer="b-2")
    with pytest.raises(Corrupt, match="straddles offset 10"):
        await recover_segment(store, make_topic(), make_segment())


async def test_a_log_shorter_than_the_table_made_of_it_was_damaged(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10)])
    convert_files(store.place, make_topic(), [log], None, 10_000)
    assert (await recover_segment(store, make_topic(), make_segment())).end_offset == 20
    path = store.place.root / log.path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt, match="damaged or cut"):
        await recover_segment(store, make_topic(), make_segment())


async def test_who_published_is_not_known_without_the_logs(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [make_frame(0, 10)])
    convert_files(store.place, make_topic(), [log], None, 10_000)
    assert (await recover_segment(store, make_topic(), make_segment())).producers_complete
    torso = await write_log(store, 10, [])
    (store.place.root / torso.path).write_bytes(b"")
    (store.place.root / log.path).unlink()
    found = await recover_segment(store, make_topic(), make_segment())
    assert (found.end_offset, found.producers_complete) == (10, False)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
async def test_synced_frames_survive_any_crash(seed: int) -> None:
    rng = random.Random(seed)
    store = MemorySegmentStore(lambda: 0)
    log = None
    end = synced = 0
    states: dict[int, ProducerState] = {}
    for _ in range(rng.randint(1, 20)):
        if log is None or rng.random() < 0.2:
            if log is not None:
                await log.sync()
                synced = end
            log = await begin_log(store, end, producers=list(states.values()))
        who, count = rng.randint(1, 3), rng.randint(1, 5)
        known = states.pop(who, ProducerState(producer_id=who, producer_epoch=0, next_sequence=0))
        await log.append([make_frame(end, count, producer=who, first_sequence=known.next_sequence)])
        states[who] = ProducerState(
            producer_id=who,
            producer_epoch=0,
            next_sequence=known.next_sequence + count,
            recent=(*known.recent[-15:], FrameAck(known.next_sequence, count, end)),
        )
        end += count
        if rng.random() < 0.3:
            await log.sync()
            synced = end
    if rng.random() < 0.7:
        store.crash(rng=rng if rng.random() < 0.7 else None)
    recovered = await recover_segment(store, make_topic(), make_segment())
    assert synced <= recovered.end_offset <= end
    assert sum(p.next_sequence for p in recovered.producers) == recovered.end_offset
    if recovered.end_offset == end:
        assert [p.producer_id for p in recovered.producers] == list(states)
        assert all(p.recent == states[p.producer_id].recent for p in recovered.producers)


@pytest.mark.parametrize("end_offset", [None, 40])
async def test_what_is_written_after_retention_is_left_over(store: FileSegmentStore, end_offset: int | None) -> None:
    """A follower that was cut off for long writes out its records: retention had removed all of them, and more."""
    topic = replace(make_topic(), retention_s=3600.0)
    await write_log(store, 20, [make_frame(20, 10), make_frame(30, 10)], writer="b-1")
    assert await earliest_offset(store, topic, make_segment(end_offset=end_offset)) == 20
    await store.record_removed(topic.name, topic.uid, {0: 20})
    await write_log(store, 5, [make_frame(5, 3)], writer="b-2")
    assert await earliest_offset(store, topic, make_segment(end_offset=end_offset)) == 20


@pytest.mark.parametrize("again", [0, 1])
async def test_a_file_whose_successor_did_not_get_as_far_is_not_left_over(store: FileSegmentStore, again: int) -> None:
    """An fsync failed; its records are rewritten to a file that begins there, and the broker dies meanwhile."""
    topic = replace(make_topic(), retention_s=3600.0)
    await write_log(store, 0, [make_frame(0, 10)], writer="b-1")
    await write_log(store, 10, [make_frame(10, 10), make_frame(20, 10), make_frame(30, 10)], writer="b-1")
    for writer in ("b-1", "b-1.1"):
        await write_log(store, 20, [make_frame(20, 10)] * again, writer=writer)
    assert await earliest_offset(store, topic, make_segment(end_offset=40)) == 0
    assert await earliest_offset(store, topic, make_segment()) == 0


@pytest.mark.parametrize("retention_s", [None, 3600.0])
async def test_the_earliest_offset_is_known_though_a_file_vanishes_meanwhile(
    store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch, retention_s: float | None
) -> None:
    topic = replace(make_topic(), retention_s=retention_s)
    log = await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10)])
    opened = store.open

    async def converted_first(file: SegmentFile) -> LogReader:
        if (store.place.root / log.path).exists():
            convert_files(store.place, make_topic(), [log], None, 10_000)
            await store.delete([log])
        return await opened(file)

    monkeypatch.setattr(store, "open", converted_first)
    assert await earliest_offset(store, topic, make_segment(end_offset=20)) == 0


async def test_the_earliest_offset_is_what_retention_left(store: FileSegmentStore) -> None:
    topic = replace(make_topic(), retention_s=3600.0)
    assert await earliest_offset(store, topic, make_segment(start_offset=5)) == 5
    await write_log(store, 20, [make_frame(20, 10)])
    assert await earliest_offset(store, topic, make_segment()) == 20
    assert await earliest_offset(store, topic, make_segment(end_offset=30)) == 20
    assert await earliest_offset(store, topic, make_segment(end_offset=20)) == 20
    await write_log(store, 0, [make_frame(0, 1)], writer="zombie", uid=6)
    assert await earliest_offset(store, topic, make_segment()) == 20


async def test_without_retention_a_segment_begins_where_it_began(store: FileSegmentStore) -> None:
    """Records missing there are lost, and their reader must be notified; those that retention removed are not lost."""
    await write_log(store, 20, [make_frame(20, 10)])
    assert await earliest_offset(store, make_topic(), make_segment(start_offset=5)) == 5
    assert await earliest_offset(store, make_topic(), make_segment(end_offset=30)) == 0
    topic = make_topic()
    await store.record_removed(topic.name, topic.uid, {0: 20, 1: 30})
    assert await earliest_offset(store, topic, make_segment(end_offset=30)) == 20
    assert await earliest_offset(store, topic, make_segment(end_offset=15)) == 15
    assert await earliest_offset(store, replace(topic, uid=topic.uid + 1), make_segment()) == 0
