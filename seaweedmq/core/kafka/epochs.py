"""Leader epochs of a partition: the ids of its segments, which rise along its lineage (KIP-101, KIP-320)."""

from collections.abc import Sequence
from typing import NamedTuple

from seaweedmq.model.segment import Segment

NO_EPOCH = -1
NO_OFFSET = -1


class EpochEnd(NamedTuple):
    """The end of an epoch."""

    epoch: int
    end_offset: int
    """Offset after its last record."""


def end_of_epoch(lineage: Sequence[Segment], high_watermark: int, epoch: int) -> EpochEnd:
    """Return the end of the largest epoch that is not above the requested one.

    It follows Kafka's ``LeaderEpochFileCache.endOffsetFor``, and is ``NO_EPOCH`` and ``NO_OFFSET`` if the epoch is
    negative or above the present one. ``lineage`` has the segments of a partition, the oldest first, the open one last,
    whose high watermark is the end that consumers see.
    """
    current = lineage[-1]
    if epoch > current.id or epoch < 0:
        return EpochEnd(NO_EPOCH, NO_OFFSET)
    if epoch == current.id:
        return EpochEnd(epoch, high_watermark)
    following = next(s for s in lineage if s.id > epoch)
    earlier = [s for s in lineage if s.id <= epoch]
    if not earlier:
        # Kafka: an epoch before the first known one ends where that one begins
        return EpochEnd(epoch, following.start_offset)
    return EpochEnd(earlier[-1].id, following.start_offset)


def epoch_of(lineage: Sequence[Segment], offset: int) -> int:
    """Return the epoch of the record at an offset; the present one for a future offset."""
    for segment in lineage:
        if segment.end_offset is not None and segment.start_offset <= offset < segment.end_offset:
            return segment.id
    return lineage[-1].id
