"""Segments that are split, merged and moved by hand, at random, while whatever else goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.segment import Segment
from tests.faults.arena import Arena

CHANGES = 4
"""One after another, by each fault."""
PAUSE_S_MAX = 0.5
SEGMENTS_MAX = 12
"""No more are made of one topic."""
CLIENT = ClientConfig(admin_timeout_s=5.0)


async def split(arena: Arena) -> None:
    """Segments are split: in the middle of what they carry, or anywhere."""
    await _change(arena, "split", _split)


async def merge(arena: Arena) -> None:
    """Neighbours are merged."""
    await _change(arena, "merge", _merge)


async def move(arena: Arena) -> None:
    """Segments are moved to other brokers."""
    await _change(arena, "move", _move)


async def _change(arena: Arena, what: str, change: Callable[[Arena, aio.Client], Awaitable[str]]) -> None:
    """A change may be refused: the segment is sealed already, a broker is gone, nobody leads. Then nothing happened."""
    async with aio.connect(arena.cluster.bootstrap, config=CLIENT) as client:
        for _ in range(CHANGES):
            try:
                done = await change(arena, client)
            except SeaweedMQError as error:
                arena.say(f"no {what}: {error}")
            else:
                if done:
                    arena.changes += 1
                arena.say(done or f"nothing to {what}")
            await asyncio.sleep(arena.rng.uniform(0, PAUSE_S_MAX))


async def _split(arena: Arena, client: aio.Client) -> str:
    if not arena.topics:
        return ""
    topic, segments = await _segments(arena.rng.choice(list(arena.topics)), client)
    wide = [s for s in segments if s.slots.width > 1]
    if not wide or len(segments) >= SEGMENTS_MAX:
        return ""
    segment = arena.rng.choice(wide)
    at = arena.rng.choice((None, arena.rng.randrange(segment.slots.lo + 1, segment.slots.hi)))
    await client.admin.split_segment(topic, segment.id, at)
    return f"split {segment} at {at}"


async def _merge(arena: Arena, client: aio.Client) -> str:
    if not arena.topics:
        return ""
    topic, segments = await _segments(arena.rng.choice(list(arena.topics)), client)
    if len(segments) < 2:
        return ""
    first, second = arena.rng.choice(list(pairwise(segments)))
    await client.admin.merge_segments(topic, first.id, second.id)
    return f"merged {first} and {second}"


async def _move(arena: Arena, client: aio.Client) -> str:
    topic, segments = await _segments(arena.rng.choice(arena.all_topics), client)
    brokers = [status.info.id for status in (await client.admin.cluster_status()).brokers]
    segment = arena.rng.choice(segments)
    if len(brokers) < len(segment.replicas):
        return ""
    to = arena.rng.sample(brokers, len(segment.replicas))
    await client.admin.move_segment(topic, segment.id, to)
    return f"moved {segment} from {', '.join(segment.replicas)} to {', '.join(to)}"


async def _segments(topic: str, client: aio.Client) -> tuple[str, list[Segment]]:
    """The topic and its open segments, in the order of their ranges."""
    described = await client.admin.describe_topic(topic)
    return topic, sorted((s for s in described.segments if s.is_open), key=lambda s: s.slots.lo)
