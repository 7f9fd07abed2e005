"""Checks in the driver before a write: the storage is the cluster's, and the columns fit the topic.

Tasks get a :class:`SinkPlan`; they use the storage and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import uvloop

from seaweedmq.aio import grpc_dialer, system_environment
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import InvalidArgument, NotFound, SeaweedMQError
from seaweedmq.model.description import OPEN, TopicDescription
from seaweedmq.model.messages.calls import AdoptSchema
from seaweedmq.model.ring import KeyRange, covers_ring
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import after_s, backoff, retrying
from seaweedmq.spark.write.sink_columns import SinkColumns, plan_columns
from seaweedmq.spark.write.sink_options import SinkOptions
from seaweedmq.storage.place import Place
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.staging import topic_in_storage

T = TypeVar("T")

RETRY_S = 5.0
"""Retry time in seconds: a topic may be slightly newer than its document in the storage, or in a transition."""
_PAUSE_S = 0.02, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """The data that tasks need."""

    place: Place
    topic: TopicName
    topic_uid: int
    ring: KeyRange
    ranges: tuple[KeyRange, ...]
    """Slot ranges of the segments that were open at planning time; each frame is built for one."""
    frame_bytes_max: int
    """Limit of one frame at the brokers, in bytes; a larger row is rejected before anything is published."""
    columns: SinkColumns


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a Spark process that has no loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def connected(options: SinkOptions) -> AsyncIterator[Cluster]:
    """Yield a connected cluster."""
    cluster = Cluster(options.bootstrap, grpc_dialer(), system_environment(), ClientConfig())
    try:
        await cluster.connect()
        yield cluster
    finally:
        await cluster.close()


async def plan_sink(options: SinkOptions, given: pa.Schema) -> SinkPlan:
    """Check the topic, and give it the DataFrame's schema if it is to adopt one.

    InvalidArgument is raised if the columns do not fit the topic, or the storage is not the cluster's.
    """
    async with connected(options) as cluster:
        described = await cluster.describe(options.topic, OPEN)
        frame_bytes_max = described.known_frame_bytes_max
        place = await check_storage(options, described)
        columns = plan_columns(given, described.topic.schema, options.key, options.timestamp)
        if columns.schema is not None and described.topic.schema is None:
            call = AdoptSchema(options.topic, columns.schema, described.topic.uid)
            described = await cluster.call(f"give {options.topic} a schema", call)
        return SinkPlan(
            place=place,
            topic=options.topic,
            topic_uid=described.topic.uid,
            ring=described.topic.ring,
            ranges=open_ranges(described),
            frame_bytes_max=frame_bytes_max,
            columns=columns,
        )


async def check_storage(options: SinkOptions, described: TopicDescription) -> Place:
    """Return the place of the storage, after checking that it is the topic's.

    Raises:
        InvalidArgument: If the storage is another cluster's or does not exist.
    """
    place = parse_place(options.storage)
    if not place.exists():
        raise InvalidArgument(f"storage {place} is not a directory: give the root that the brokers use")
    where = ", ".join(options.bootstrap)
    try:
        found = await again(lambda: asyncio.to_thread(topic_in_storage, place, options.topic), NotFound)
    except NotFound as error:
        raise InvalidArgument(f"{error}; the cluster at {where} has the topic, in another storage") from None
    if found.uid != described.topic.uid:
        raise InvalidArgument(
            f"storage {place} holds another topic {options.topic} than the cluster at {where}: give the root that its "
            "brokers use"
        )
    return place


def open_ranges(described: TopicDescription) -> tuple[KeyRange, ...]:
    """Return the slot ranges of the open segments.

    Returns the whole ring as one range if they do not cover it, which happens briefly during a transition.
    """
    ranges = tuple(sorted(segment.slots for segment in described.segments if segment.is_open))
    return ranges if covers_ring(ranges, described.topic.ring) else (described.topic.ring,)


async def again(request: Callable[[], Awaitable[T]], on: type[SeaweedMQError]) -> T:
    """Repeat ``request`` until it succeeds, for up to ``RETRY_S``, since the error may be momentary."""
    async for attempt in retrying(backoff(system_environment().rng, *_PAUSE_S), on=on, stop=after_s(RETRY_S)):
        with attempt:
            return await request()
    raise AssertionError("retrying ended without a result")
