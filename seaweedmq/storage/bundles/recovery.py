"""Fencing of a dead broker's sequence, and recovery of its segments from the indexes of its bundles."""

import asyncio
import random
from collections.abc import Mapping

from seaweedmq.codec.bundle import encode_fence
from seaweedmq.core.segment.bundle_fence import (
    CreateFence,
    FenceAction,
    FenceFound,
    FenceSearch,
    ListEntries,
    ReadEntry,
)
from seaweedmq.core.segment.bundle_recovery import ReadIndexes, Recovered, RecoveredSegment, Recovery, SearchAgain
from seaweedmq.errors import AlreadyExists, StorageFailed
from seaweedmq.model.bundle import EntryHeader, EntryIndex, EntryKind
from seaweedmq.model.segment import ReplicaKey
from seaweedmq.runtime.retrying import backoff
from seaweedmq.storage.bundles.entries import SequenceEntries, new_nonce

READS_AT_ONCE = 32
"""Indexes of one broker that are read side by side, of at most 127."""
SEARCH_STEPS_MAX = 10_000
"""Limit of the steps of one search. A writer that stays alive can hold it up by some bundles; its lease has ended."""


async def end_sequence(entries: SequenceEntries, *, by: str, rng: random.Random, wall_us: int) -> FenceFound:
    """Fence a broker's sequence and return its fence: no bundle at or above it was or will be acknowledged.

    Repeated calls, also of several leaders, return the same number.

    Args:
        entries: The sequence.
        by: Id of the broker that fences, for people.
        rng: Generator for nonces and pauses.
        wall_us: Wall clock, for people.

    Raises:
        StorageFailed: If the store does not answer: a fence may or may not exist now, call again.
        Corrupt, Unsupported: If an entry cannot be read.
    """
    search = FenceSearch()
    nonce = new_nonce(rng)
    pause_s = backoff(rng, 0.05, 1.0)
    unanswered = 0
    action: FenceAction = search.begin()
    for _ in range(SEARCH_STEPS_MAX):
        match action:
            case ListEntries():
                action = search.listed(await entries.numbers())
            case ReadEntry(number):
                action = search.header_read(number, await entries.header(number))
            case CreateFence(number):
                header = EntryHeader(
                    kind=EntryKind.FENCE,
                    number=number,
                    floor=0,
                    done=0,
                    checkpoint=0,
                    nonce=nonce,
                    time_us=wall_us,
                )
                try:
                    await entries.create(number, [encode_fence(header, by)])
                    action = search.created(number)
                except AlreadyExists:
                    action = search.exists(number)
                except StorageFailed:
                    unanswered += 1
                    if unanswered > 2:
                        raise
                    await asyncio.sleep(pause_s(unanswered))
                    action = search.unanswered(number)
            case FenceFound():
                return action
    raise StorageFailed(
        f"the end of the bundles of broker {entries.broker_id} was not found in {SEARCH_STEPS_MAX} steps: "
        "its process still writes, stop it, then retry"
    )


async def recover_sequence(
    entries: SequenceEntries, *, by: str, rng: random.Random, wall_us: int
) -> Mapping[ReplicaKey, RecoveredSegment] | None:
    """Fence a broker's sequence and return what it left of each segment; None if log objects have all of its frames.

    Raises:
        StorageFailed: If the store does not answer: call again.
        Corrupt: If entries are damaged, or missing in spite of their fence.
        Unsupported: If a later version wrote one.
    """
    recovery = Recovery()
    limit = asyncio.Semaphore(READS_AT_ONCE)

    async def read(number: int) -> EntryIndex | None:
        async with limit:
            return await entries.index(number)

    action = recovery.begin(await end_sequence(entries, by=by, rng=rng, wall_us=wall_us))
    for _ in range(SEARCH_STEPS_MAX):
        match action:
            case ReadIndexes(numbers):
                found = await asyncio.gather(*(read(number) for number in numbers))
                action = recovery.read(dict(zip(numbers, found, strict=True)))
            case SearchAgain():
                action = recovery.begin(await end_sequence(entries, by=by, rng=rng, wall_us=wall_us))
            case Recovered(segments):
                return segments
            case _:
                return None
    raise StorageFailed(
        f"the bundles of broker {entries.broker_id} changed in each of {SEARCH_STEPS_MAX} attempts to read them: "
        "stop the process that deletes them, then retry"
    )
