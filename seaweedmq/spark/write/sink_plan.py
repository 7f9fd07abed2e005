"""What is found out in the driver before anything is written: is it the right storage, do the columns fit the topic.

Tasks get a :class:`SinkPlan`; they find the storage and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
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
from seaweedmq.storage.staging import topic_in_storage
from seaweedmq.storage.store.files import open_store

T = TypeVar("T")

PASSING_S = 5.0
"""A topic may be a moment older than its document in the storage, and between two segments for a moment."""
_PAUSE_S = 0.02, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """What tasks need to know."""

    root: Path
    topic: TopicName
    topic_uid: int
    ring: KeyRange
    ranges: tuple[KeyRange, ...]
    """Of the segments that were open then: frames are made for them."""
    frame_bytes_max: int
    """Limit of one frame at the brokers: a row that is larger is rejected before anything is published."""
    columns: SinkColumns


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, in a process of Spark's that has no loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def connected(options: SinkOptions) -> AsyncIterator[Cluster]:
    """The cluster. Raises Unavailable: no broker answers in time; names each and why."""
    cluster = Cluster(options.bootstrap, grpc_dialer(), system_environment(), ClientConfig())
    try:
        await cluster.connect()
        yield cluster
    finally:
        await cluster.close()


async def plan_sink(options: SinkOptions, given: pa.Schema) -> SinkPlan:
    """Look at the topic, and give it the schema of the DataFrame if it is to have one.

    Args:
        given: the DataFrame's.

    Raises:
        InvalidArgument: the columns do not fit the topic, or the storage is not the cluster's.
        NotFound: no such topic. Unavailable: no broker answers.
    """
    async with connected(options) as cluster:
        described = await cluster.describe(options.topic, OPEN)
        frame_bytes_max = described.known_frame_bytes_max
        root = await check_storage(options, described)
        columns = plan_columns(given, described.topic.schema, options.key, options.timestamp)
        if columns.schema is not None and described.topic.schema is None:
            call = AdoptSchema(options.topic, columns.schema, described.topic.uid)
            described = await cluster.call(f"give {options.topic} a schema", call)
        return SinkPlan(
            root=root,
            topic=options.topic,
            topic_uid=described.topic.uid,
            ring=described.topic.ring,
            ranges=open_ranges(described),
            frame_bytes_max=frame_bytes_max,
            columns=columns,
        )


async def check_storage(options: SinkOptions, described: TopicDescription) -> Path:
    """The root of the storage, which is the one of this topic.

    Raises:
        InvalidArgument: it is another cluster's, or none.
    """
    root = open_store(options.storage).root
    if not root.is_dir():
        raise InvalidArgument(f"storage {root} is not a directory: give the root that the brokers were started with")
    where = ", ".join(options.bootstrap)
    try:
        found = await again(lambda: asyncio.to_thread(topic_in_storage, root, options.topic), NotFound)
    except NotFound as error:
        raise InvalidArgument(f"{error}; the cluster at {where} has the topic, in another storage") from None
    if found.uid != described.topic.uid:
        raise InvalidArgument(
            f"storage {root} holds another topic {options.topic} than the cluster at {where}: give the root that these "
            "brokers were started with"
        )
    return root


def open_ranges(described: TopicDescription) -> tuple[KeyRange, ...]:
    """Slots of the open segments; all in one where they do not cover the ring, as a cluster shows only in passing."""
    ranges = tuple(sorted(segment.slots for segment in described.segments if segment.is_open))
    return ranges if covers_ring(ranges, described.topic.ring) else (described.topic.ring,)


async def again(look: Callable[[], Awaitable[T]], on: type[SeaweedMQError]) -> T:
    """Look until it succeeds, for some seconds: what is there a moment later at most is no error."""
    async for attempt in retrying(backoff(system_environment().rng, *_PAUSE_S), on=on, stop=after_s(PASSING_S)):
        with attempt:
            return await look()
    raise AssertionError("retrying ended without a result")
