"""Appending without a stream: admission, order and durability. Every kind of listener is built on it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.appender import Acknowledgements, Appender
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.errors import Closed, Fenced, InvalidArgument, StaleMetadata
from seaweedmq.model.config import KIB
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, frame
from tests.doubles.memory_store import StorageOp


async def opened(testbed: Testbed) -> tuple[Host, OpenSegment]:
    """Return a broker, and the first segment of a topic with two."""
    host = await testbed.single(segments=2)
    segment = host.inspect.segments[NAME, 0]
    segment.open_producer(1, 0, 0)
    return host, segment


def appender_to(host: Host, segment: OpenSegment) -> Appender:
    lookup = Lookup(host.inspect.view, host.inspect.segments, SealedProducers(host.testbed.store))
    return Appender(segment, lookup, frame_bytes_max=CONFIG.frame_bytes_max)


def made(count: int = 1, first: int = 0, **fields: int) -> Frame:
    (found,) = split_frames(frame(count, first=first, **fields))  # type: ignore[arg-type]
    return found


def receiving(found: Frame) -> Callable[[], Awaitable[Frame]]:
    async def receive() -> Frame:
        return found

    return receive


async def test_each_request_waits_for_its_own_frames_though_they_share_a_segment(testbed: Testbed) -> None:
    host, segment = await opened(testbed)
    appender = appender_to(host, segment)
    written = testbed.faults.hold(StorageOp.APPEND)
    requests = []
    for first in range(3):
        request = Acknowledgements(appender)
        request.add(await appender.append(made(1, first)))
        request.end()
        requests.append(request)
    waiting = asyncio.gather(*(request.next() for request in requests))
    await asyncio.sleep(1)
    assert not waiting.done()
    written.set()
    assert [[a.base_offset for a in acks] for acks in await waiting] == [[0], [1], [2]]
    assert [await request.next() for request in requests] == [(), (), ()]


REFUSED = (
    (made(size=80 * KIB), InvalidArgument, "above the limit of 65536"),
    (made(slots=(0, 40_000)), StaleMetadata, r"which has \[0, 32768\)"),
    (made(first=9), InvalidArgument, "resend from 0"),
)


async def test_neither_what_is_refused_nor_what_does_not_come_holds_memory(testbed: Testbed) -> None:
    host, segment = await opened(testbed)
    appender = appender_to(host, segment)
    for refused, kind, sentence in REFUSED:
        for appending in (appender.append(refused), appender.append_announced(refused.header, receiving(refused))):
            with pytest.raises(kind, match=sentence):
                await appending
            assert host.inspect.memory.logs.used == 0
            assert not appender.is_waiting

    async def receive() -> Frame:
        raise Closed("the connection was lost")

    with pytest.raises(Closed, match="was lost"):
        await appender.append_announced(made().header, receive)
    assert host.inspect.memory.logs.used == 0
    assert (await appender.append(made())).base_offset == 0


async def test_who_waits_for_memory_asks_for_no_payload_and_appends_nothing_after_a_stop(testbed: Testbed) -> None:
    host, segment = await opened(testbed)
    appender = appender_to(host, segment)
    budget: MemoryBudget = host.inspect.memory.logs
    taken = budget.limit
    assert budget.take_now(taken)
    asked: list[int] = []

    async def receive() -> Frame:
        asked.append(budget.used)
        return made()

    appending = asyncio.create_task(appender.append_announced(made().header, receive))
    await asyncio.sleep(1)
    assert appender.is_waiting
    assert not asked
    budget.give(taken)
    await appending
    assert asked[0] >= made().header.frame_bytes
    assert not appender.is_waiting

    await testbed.until(lambda: segment.log.committed == 1)
    host.evict()
    assert budget.take_now(taken)
    waiting = asyncio.create_task(appender.append(made(first=1)))
    await asyncio.sleep(1)
    appender.stop(Fenced("another broker serves the segment"))
    budget.give(taken)
    with pytest.raises(Fenced, match="another broker serves the segment"):
        await waiting
    assert (segment.log.end, budget.used) == (1, 0)
