"""Encoded batches of native frames: cached for the next reader within a limit, and made once for concurrent readers."""

import asyncio
import threading
from typing import Any

import pytest

from seaweedmq.codec.frame import Frame, decode_header, stamp
from seaweedmq.codec.kafka.header import read_header
from seaweedmq.errors import Corrupt
from seaweedmq.kafka.data import reencode
from seaweedmq.kafka.data.reencode import Reencoder
from tests.broker.testbed import frame as frame_bytes
from tests.broker.testbed import values
from tests.kafka.in_process_client import records_of

HEADER_BYTES = len(stamp(frame_bytes(), 0))
UID = 7


def frame(offset: int, size: int = 1_000) -> Frame:
    """Return a frame of two records from an offset, some ``2 * size`` bytes."""
    data = frame_bytes(2, first=offset, size=size)
    header = stamp(data[:HEADER_BYTES], offset)
    return Frame(decode_header(header), header, memoryview(data)[HEADER_BYTES:])


class Making:
    """An encoder like ``reencode`` that records its calls, and waits while ``go_on`` is clear."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self._encoded = reencode.encoded

    def __call__(self, one: Frame, segment: int) -> tuple[bytes, ...]:
        self.offsets.append(one.header.base_offset)
        assert self.go_on.wait(20)
        return self._encoded(one, segment)


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Making:
    making = Making()
    monkeypatch.setattr(reencode, "encoded", making)
    return making


async def begun(making: Making, count: int = 1) -> None:
    async with asyncio.timeout(20):
        while len(making.offsets) < count:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.001)


async def test_batches_have_the_offsets_of_the_frame_and_are_made_once(making: Making) -> None:
    reencoder = Reencoder(1 << 20)
    made = await reencoder.batches(UID, 3, frame(40, size=0))
    assert records_of(b"".join(made)) == [(40 + n, None, value) for n, value in enumerate(values(1, 2, 40))]
    assert {read_header(batch).leader_epoch for batch in made} == {3}
    assert await reencoder.batches(UID, 3, frame(40, size=0)) is made
    assert making.offsets == [40]


async def test_what_was_not_asked_for_the_longest_gives_way(making: Making) -> None:
    size = sum(map(len, await Reencoder(1).batches(UID, 0, frame(0))))
    making.offsets.clear()
    reencoder = Reencoder(3 * size + size // 2)
    for offset in (0, 2, 4, 0, 6):
        await reencoder.batches(UID, 0, frame(offset))
    assert making.offsets == [0, 2, 4, 6], "three fit"
    for offset in (0, 4, 6):
        await reencoder.batches(UID, 0, frame(offset))
    assert making.offsets == [0, 2, 4, 6], "the one that went is 2"
    await reencoder.batches(UID, 0, frame(2))
    assert making.offsets == [0, 2, 4, 6, 2]


async def test_one_that_is_larger_than_all_that_may_be_kept_stays_for_who_reads_it_in_parts(making: Making) -> None:
    reencoder = Reencoder(3_000)
    await reencoder.batches(UID, 0, frame(0, size=500))
    for _ in range(3):
        await reencoder.batches(UID, 0, frame(2, size=5_000))
    assert making.offsets == [0, 2]
    for _ in range(2):
        await reencoder.batches(UID, 0, frame(4, size=500))
        await reencoder.batches(UID, 0, frame(6, size=500))
    assert making.offsets == [0, 2, 4, 6], "and then goes first"


async def test_two_who_ask_at_the_same_time_share_one_encoding(making: Making) -> None:
    reencoder = Reencoder(1 << 20)
    making.go_on.clear()
    asking = [asyncio.create_task(reencoder.batches(UID, 0, frame(0))) for _ in range(5)]
    await begun(making)
    other = asyncio.create_task(reencoder.batches(UID, 0, frame(2)))
    await begun(making, 2)
    making.go_on.set()
    first, *rest = await asyncio.gather(*asking)
    assert all(one is first for one in rest)
    await other
    assert making.offsets == [0, 2], "another frame does not wait for it"


async def test_who_is_gone_keeps_nobody_from_what_both_wanted(making: Making) -> None:
    reencoder = Reencoder(1 << 20)
    making.go_on.clear()
    leaving, staying = [asyncio.create_task(reencoder.batches(UID, 0, frame(0))) for _ in range(2)]
    await begun(making)
    leaving.cancel()
    making.go_on.set()
    assert records_of(b"".join(await staying))[0][0] == 0
    assert leaving.cancelled()


async def test_a_frame_that_is_damaged_is_an_error_for_each_and_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: Any) -> tuple[bytes, ...]:
        raise Corrupt("a frame without an end")

    reencoder = Reencoder(1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(reencode, "encoded", damaged)
        found = await asyncio.gather(*(reencoder.batches(UID, 0, frame(0)) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in found] == [Corrupt, Corrupt]
    assert records_of(b"".join(await reencoder.batches(UID, 0, frame(0))))[0][0] == 0


async def test_large_frames_are_made_one_after_another(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reencode, "LARGE_BYTES", 10_000)
    reencoder = Reencoder(1 << 20)
    making.go_on.clear()
    large = [asyncio.create_task(reencoder.batches(UID, 0, frame(offset, size=20_000))) for offset in (0, 2, 4)]
    small = asyncio.create_task(reencoder.batches(UID, 0, frame(6)))
    await begun(making, 2)
    await asyncio.sleep(0.05)
    assert making.offsets == [0, 6]
    making.go_on.set()
    await asyncio.gather(*large, small)
    assert sorted(making.offsets) == [0, 2, 4, 6]


async def test_a_reader_that_goes_frees_the_turn_of_large_frames_once_its_thread_has_ended(
    making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencode, "LARGE_BYTES", 10_000)
    reencoder = Reencoder(1 << 20)
    making.go_on.clear()
    leaving, staying = (asyncio.create_task(reencoder.batches(UID, 0, frame(at, size=20_000))) for at in (0, 2))
    await begun(making)
    leaving.cancel()
    await asyncio.sleep(0.05)
    assert making.offsets == [0], "the thread holds memory until it ends"
    making.go_on.set()
    assert await staying
    assert leaving.cancelled()
