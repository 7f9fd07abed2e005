"""Group lag in seconds: the age of the first record of each segment above the committed offset."""

import asyncio
from collections.abc import AsyncIterator

from seaweedmq.client.cluster.broker_stream import broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.assembler import FrameAssembler
from seaweedmq.codec.frame import FLAG_TIMESTAMP, Frame, split_frames
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import NotFound, OutOfRange, Unavailable
from seaweedmq.model.description import SegmentSelection, TopicDescription
from seaweedmq.model.messages import subscribe
from seaweedmq.model.messages.groups import GroupDescription, GroupTopic, SegmentLag
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import deadline

READS_AT_ONCE_MAX = 16
"""Limit of segments that are read concurrently."""
CREDIT_BYTES = 1
"""Credit for exactly one message."""

Lags = dict[str, dict[int, float]]
"""Topic -> segment -> seconds."""


async def lag_seconds(cluster: Cluster, group: GroupDescription) -> Lags:
    """Return the age in seconds of the first record above the committed offset, for every unfinished segment.

    It is 0 where the group has read everything. Unavailable is raised if a segment could not be reached within
    ``admin_timeout_s``.
    """
    slots = asyncio.Semaphore(READS_AT_ONCE_MAX)
    tasks = {
        (str(topic.topic), lag.segment): asyncio.create_task(_lag_s(cluster, topic, lag, slots))
        for topic in group.topics
        for lag in topic.segments
    }
    try:
        if tasks:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        lags: Lags = {str(topic.topic): {} for topic in group.topics}
        for (name, segment), task in tasks.items():
            if task.done():  # False only if a later task has failed
                lags[name][segment] = task.result()
        return lags
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _lag_s(cluster: Cluster, topic: GroupTopic, lag: SegmentLag, slots: asyncio.Semaphore) -> float:
    start = topic.start if lag.committed is None else subscribe.Start(subscribe.StartKind.OFFSET, lag.committed)
    begins_later = start.kind is subscribe.StartKind.OFFSET and start.value >= lag.end_offset
    if lag.lag_records == 0 or begins_later:
        return 0.0
    async with slots:
        timestamp_us = await _first_timestamp_us(cluster, topic.topic, lag.segment, start)
    return 0.0 if timestamp_us is None else max(0.0, (cluster.env.wall_us() - timestamp_us) / 1e6)


async def _first_timestamp_us(cluster: Cluster, name: TopicName, segment: int, start: subscribe.Start) -> int | None:
    """Return the timestamp of the first record from ``start`` on; None if there is none, or no segment any longer."""
    which = SegmentSelection(open=False, sealed_above=None, ids=(segment,))
    async for attempt in retrying(cluster.config, cluster.env.rng, deadline(cluster.config.admin_timeout_s)):
        with attempt:
            try:
                return await _read(cluster, await cluster.describe(name, which), segment, start)
            except OutOfRange:  # retention removed the next record
                return await _read(cluster, await cluster.describe(name, which), segment, subscribe.EARLIEST)
            except NotFound:
                return None
    raise AssertionError("retrying ended without a result")


async def _read(cluster: Cluster, topic: TopicDescription, number: int, start: subscribe.Start) -> int | None:
    segment = topic.segment(number)
    if segment is None:
        raise NotFound(f"segment {number} of {topic.topic.name} does not exist: retention removed it")
    address = cluster.address_of(topic, segment)
    opening = subscribe.SubscribeOpen(
        topic=topic.topic.name,
        segment=number,
        start=start,
        credit_bytes=CREDIT_BYTES,
        topic_uid=topic.topic.uid,
        takes_pieces=True,
    )
    async with broker_stream(cluster, address, lambda api: api.subscribe(_only(opening)), str(segment)) as stream:
        stream.expect(cluster.config.rpc_timeout_s)
        return await _read_first(stream.replies, topic)


async def _read_first(replies: AsyncIterator[subscribe.SubscribeReply], topic: TopicDescription) -> int | None:
    begin = 0
    assembler = FrameAssembler()
    async for reply in replies:
        match assembler.add(reply):
            case subscribe.SubscribeReady(start_offset=begin, high_watermark=end):
                if begin >= end:
                    return None
            case subscribe.SubscribeFrames(data):
                for frame in split_frames(data):
                    if frame.header.end_offset > begin:
                        return _timestamp_us(frame, begin, topic)
            case subscribe.SubscribeEnd():
                return None
    raise Unavailable(f"a broker ended the stream from {topic.topic.name} before the first record: retry")


async def _only(opening: subscribe.SubscribeOpen) -> AsyncIterator[subscribe.SubscribeRequest]:
    """Yield one request, then keep the stream open until the reader closes it."""
    yield opening
    await asyncio.Event().wait()


def _timestamp_us(frame: Frame, offset: int, topic: TopicDescription) -> int:
    """Return the timestamp of the frame's first record at or above ``offset``, in microseconds since 1970."""
    header = frame.header
    if not header.flags & FLAG_TIMESTAMP:
        return header.timestamp_min
    schema = schema_from_bytes(topic.topic.schema) if header.schema_version and topic.topic.schema else None
    column = decode_frame(frame, schema).column("_timestamp")
    return int(column[max(0, offset - header.base_offset)].value)
