"""Random manual splits, merges and moves of segments during other faults."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.segment import Segment
from tests.faults.testbed import FaultTestbed

CHANGES = 4
"""Number of changes, one after another, by each fault."""
PAUSE_S_MAX = 0.5
SEGMENTS_MAX = 12
"""Largest number of segments that splits create in one topic."""
CLIENT = ClientConfig(admin_timeout_s=5.0)


async def split(testbed: FaultTestbed) -> None:
    """Split segments in the middle of their load, or anywhere."""
    await _change(testbed, "split", _split)


async def merge(testbed: FaultTestbed) -> None:
    await _change(testbed, "merge", _merge)


async def move(testbed: FaultTestbed) -> None:
    await _change(testbed, "move", _move)


async def _change(
    testbed: FaultTestbed, what: str, change: Callable[[FaultTestbed, aio.Client], Awaitable[str]]
) -> None:
    """Request a change. A rejection has no effect: the segment is sealed already, a broker unreachable, or no leader
    elected."""
    async with aio.connect(testbed.cluster.bootstrap, config=CLIENT) as client:
        for _ in range(CHANGES):
            try:
                done = await change(testbed, client)
            except SeaweedMQError as error:
                testbed.say(f"no {what}: {error}")
            else:
                if done:
                    testbed.changes += 1
                testbed.say(done or f"nothing to {what}")
            await asyncio.sleep(testbed.rng.uniform(0, PAUSE_S_MAX))


async def _split(testbed: FaultTestbed, client: aio.Client) -> str:
    if not testbed.topics:
        return ""
    topic, segments = await _segments(testbed.rng.choice(list(testbed.topics)), client)
    wide = [s for s in segments if s.slots.width > 1]
    if not wide or len(segments) >= SEGMENTS_MAX:
        return ""
    segment = testbed.rng.choice(wide)
    at = testbed.rng.choice((None, testbed.rng.randrange(segment.slots.lo + 1, segment.slots.hi)))
    await client.admin.split_segment(topic, segment.id, at)
    return f"split {segment} at {at}"


async def _merge(testbed: FaultTestbed, client: aio.Client) -> str:
    if not testbed.topics:
        return ""
    topic, segments = await _segments(testbed.rng.choice(list(testbed.topics)), client)
    if len(segments) < 2:
        return ""
    first, second = testbed.rng.choice(list(pairwise(segments)))
    await client.admin.merge_segments(topic, first.id, second.id)
    return f"merged {first} and {second}"


async def _move(testbed: FaultTestbed, client: aio.Client) -> str:
    topic, segments = await _segments(testbed.rng.choice(testbed.all_topics), client)
    brokers = [status.info.id for status in (await client.admin.cluster_status()).brokers]
    segment = testbed.rng.choice(segments)
    if len(brokers) < len(segment.replicas):
        return ""
    to = testbed.rng.sample(brokers, len(segment.replicas))
    await client.admin.move_segment(topic, segment.id, to)
    return f"moved {segment} from {', '.join(segment.replicas)} to {', '.join(to)}"


async def _segments(topic: str, client: aio.Client) -> tuple[str, list[Segment]]:
    """Return the topic and its open segments, in the order of their ranges."""
    described = await client.admin.describe_topic(topic)
    return topic, sorted((s for s in described.segments if s.is_open), key=lambda s: s.slots.lo)
