"""Troubles of a topic in a ``FakeCluster`` during publishing, and the records stored afterwards."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from tests.client.fake_broker import FakeCluster

TROUBLES = ("split", "split", "merge", "merge", "merge", "drop", "lose", "failover", "failover")
SEGMENTS_MAX = 8


def open_segments(cluster: FakeCluster, name: TopicName) -> list[Segment]:
    return [stored.meta for stored in cluster.segments[name].values() if stored.meta.is_open]


def stored(cluster: FakeCluster, name: TopicName) -> list[tuple[int, int, bytes | None, bytes]]:
    """Return (offset, segment, key, value) of every record, by offset."""
    records = []
    for number, segment in cluster.segments[name].items():
        for data in segment.frames:
            (frame,) = split_frames(data)
            batch = decode_frame(frame, None)
            for i, row in enumerate(batch.to_pylist()):
                records.append((frame.header.base_offset + i, number, row.get("_key"), row["_value"]))
    return sorted(records)


def lose_tail(cluster: FakeCluster, name: TopicName, segment: int, frames: int) -> None:
    """Fail over: drop the frames that were appended and not acknowledged."""
    kept = cluster.segments[name][segment]
    lost = kept.headers[frames:]
    if not lost:
        return
    del kept.frames[frames:], kept.headers[frames:], kept.ends[frames:]
    kept.end = lost[0].base_offset
    # the new primary rebuilds the producers from its log
    kept.producers = type(kept.producers)()
    for header in kept.headers:
        ack = FrameAck(header.first_sequence, header.record_count, header.base_offset)
        kept.producers.follow(header.producer_id, header.producer_epoch, ack)


async def trouble(
    cluster: FakeCluster,
    name: TopicName,
    segment: Segment,
    what: str,
    rng: random.Random,
    interrupt: Callable[[], Awaitable[None]],
) -> None:
    """Cause one of ``TROUBLES`` in a segment.

    Args:
        interrupt: Called while only one side of a merge knows of it.
    """
    segments = open_segments(cluster, name)
    if what == "split" and segment.slots.width > 1 and len(segments) < SEGMENTS_MAX:
        cluster.seal(str(name), segment.id, (rng.randint(segment.slots.lo + 1, segment.slots.hi - 1),))
    elif what == "merge":
        right = next((s for s in segments if s.slots.lo == segment.slots.hi), None)
        if right is not None:
            cluster.silent = {rng.choice((segment.id, right.id, -1))}  # one side learns of it later than the other
            cluster.merge(str(name), segment.id, right.id)
            for _ in range(rng.randint(0, 80)):
                await asyncio.sleep(0)
            await interrupt()
            cluster.silent = set()
            cluster.wake()
    elif what == "drop":
        cluster.drop_connections()
    elif what == "lose":
        cluster.lose_acks = rng.randint(1, 2)
    elif what == "failover":
        frames = frame_counts(cluster, name)
        cluster.holds_acks = True
        await asyncio.sleep(rng.choice((0, 0.001, 0.01)))
        _succeed(cluster, name, segment.id, frames[segment.id], rng)
        cluster.release_acks()


async def lose_broker(cluster: FakeCluster, name: TopicName, rng: random.Random) -> None:
    """Fail over all segments of a broker, which comes back empty."""
    broker = rng.choice(sorted(cluster.brokers))
    frames = frame_counts(cluster, name)
    cluster.holds_acks = True
    await asyncio.sleep(rng.choice((0, 0.001, 0.01)))
    cluster.kill(broker)
    cluster.release_acks()
    await asyncio.sleep(rng.choice((0, 0.01, 0.2)))
    for segment in open_segments(cluster, name):
        if segment.primary == broker:
            _succeed(cluster, name, segment.id, frames[segment.id], rng)
    cluster.dead.discard(broker)


def frame_counts(cluster: FakeCluster, name: TopicName) -> dict[int, int]:
    return {number: len(segment.frames) for number, segment in cluster.segments[name].items()}


def _succeed(cluster: FakeCluster, name: TopicName, segment: int, acked: int, rng: random.Random) -> None:
    """Replace a segment, with some or none of the frames behind those that may be acknowledged."""
    kept = cluster.segments[name][segment]
    if kept.meta.is_open:
        lose_tail(cluster, name, segment, rng.randint(acked, len(kept.frames)))
        cluster.seal(str(name), segment)
