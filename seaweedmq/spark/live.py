"""Broker queries for what is not in files yet: end offsets in the driver, records on executors.

Imported lazily: file-only reads need no network.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from seaweedmq import aio
from seaweedmq.client.client import Client
from seaweedmq.client.defaults import system_environment
from seaweedmq.client.subscribe.options import OnMissing
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.subscribe import EARLIEST, Start, StartKind
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import after_s, backoff, retrying

_TIMEOUT_S = 30.0
_PAUSE_S = 0.05
_PAUSE_S_MAX = 1.0
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """A topic as its brokers report it at one moment."""

    description: TopicDescription
    begins: Mapping[int, int]
    """Earliest retained offset of each segment, as of some seconds ago."""
    ends: Mapping[int, int]
    """First uncommitted offset of each segment."""


def ask(bootstrap: str, topic: TopicName) -> LiveTopic:
    """Return all segments of a topic and the end offset of each.

    Unavailable is raised if for 30 seconds no broker answers, or the end offset of a segment stays unknown.
    """
    return _with_client(bootstrap, lambda client: _ask(client, topic))


def describe(bootstrap: str, topic: TopicName) -> TopicDescription:
    """Return the topic and all its segments."""
    return _with_client(bootstrap, lambda client: client.admin.describe_topic(topic))


def offsets_at(bootstrap: str, topic: TopicName, times: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Return the first offset of each segment at or after a time, or its end offset if all records are older.

    ``times`` maps a segment to (microseconds since 1970, end offset).
    """
    ranges = {number: (Start(StartKind.TIME, us), end) for number, (us, end) in times.items()}

    async def search(client: Client) -> dict[int, int]:
        async with client.read_ranges(topic, ranges) as reading:
            return await reading.begins()

    return _with_client(bootstrap, search) if ranges else {}


def read_range(
    bootstrap: str, topic: TopicName, segment: int, start: int | None, end: int, on_missing: OnMissing = "fail"
) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of ``[start, end)`` in order, with the columns that subscribers get.

    Without ``start`` it begins at the earliest retained offset. Raises as ``RangeReader.batches``.
    """
    begin = EARLIEST if start is None else Start(StartKind.OFFSET, start)

    async def batches() -> AsyncGenerator[pa.RecordBatch, None]:
        ranges = {segment: (begin, end)}
        async with (
            aio.connect(bootstrap) as client,
            client.read_ranges(topic, ranges, on_missing=on_missing) as reading,
        ):
            async for batch in reading.batches():
                yield batch

    with asyncio.Runner() as runner, closing(_stepped(runner, batches())) as stepped:
        yield from stepped


def _stepped(runner: asyncio.Runner, source: AsyncGenerator[R, None]) -> Generator[R, None, None]:
    try:
        while (item := runner.run(_next(source))) is not None:
            yield item
    finally:
        runner.run(source.aclose())


async def _next(source: AsyncGenerator[R, None]) -> R | None:
    return await anext(source, None)


async def _ask(client: Client, topic: TopicName) -> LiveTopic:
    pause_s = backoff(system_environment().rng, _PAUSE_S, _PAUSE_S_MAX)
    async for attempt in retrying(pause_s, stop=after_s(_TIMEOUT_S)):
        with attempt:
            description = await client.admin.describe_topic(topic)
            stats = {s.segment: s for s in await client.admin.topic_stats(topic)}
            ends: dict[int, int] = {}
            for segment in description.segments:
                if segment.end_offset is not None:
                    ends[segment.id] = segment.end_offset
                elif segment.id in stats:
                    ends[segment.id] = stats[segment.id].high_watermark
            for segment in description.segments:
                check_recoverable(segment)
            unclear = sorted(s.id for s in description.segments if s.id not in ends)
            if unclear:
                raise Unavailable(
                    f"end offsets of segments {unclear} of {topic} are unknown, their broker is unreachable: retry"
                )
            begins = {number: s.start_offset for number, s in stats.items()}
            return LiveTopic(description=description, begins=begins, ends=ends)
    raise AssertionError("retrying ended without a result")


def _with_client(bootstrap: str, use: Callable[[Client], Coroutine[None, None, R]]) -> R:
    async def connected() -> R:
        async with aio.connect(bootstrap) as client:
            return await use(client)

    # A separate thread: notebooks already run a loop in this one.
    with ThreadPoolExecutor(1, "seaweedmq-live") as pool:
        return pool.submit(asyncio.run, connected()).result()
