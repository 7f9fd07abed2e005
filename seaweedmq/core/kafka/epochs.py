"""Leader epochs of a partition: the ids of its segments, which rise along its lineage (KIP-101, KIP-320)."""

from collections.abc import Sequence
from typing import NamedTuple

from seaweedmq.model.segment import Segment

NO_EPOCH = -1
NO_OFFSET = -1


class EpochEnd(NamedTuple):
    """The last records of an epoch."""

    epoch: int
    end_offset: int
    """Offset after them."""


def end_of_epoch(lineage: Sequence[Segment], high_watermark: int, epoch: int) -> EpochEnd:
    """Where the largest epoch ended that is not above the one asked for. Kafka's ``LeaderEpochFileCache.endOffsetFor``.

    Args:
        lineage: the segments of a partition, the oldest first, the open one last.
        high_watermark: of the open one, which is the end as consumers see it.

    ``NO_EPOCH`` and ``NO_OFFSET``: the epoch is above the present one, or none.
    """
    current = lineage[-1]
    if epoch > current.id or epoch < 0:
        return EpochEnd(NO_EPOCH, NO_OFFSET)
    if epoch == current.id:
        return EpochEnd(epoch, high_watermark)
    following = next(s for s in lineage if s.id > epoch)
    earlier = [s for s in lineage if s.id <= epoch]
    if not earlier:
        # Kafka: an epoch before the first one that is known ends where that one begins
        return EpochEnd(epoch, following.start_offset)
    return EpochEnd(earlier[-1].id, following.start_offset)


def epoch_of(lineage: Sequence[Segment], offset: int) -> int:
    """The epoch in which the record at an offset was written; the present one of an offset yet to come."""
    for segment in lineage:
        if segment.end_offset is not None and segment.start_offset <= offset < segment.end_offset:
            return segment.id
    return lineage[-1].id
