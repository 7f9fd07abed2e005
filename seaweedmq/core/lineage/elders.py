"""Which sealed segments may still tell something of the producers that go on in their successor. Pure."""

from collections.abc import Iterator, Mapping

from seaweedmq.core.lineage.pruning import sealed_at_us
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.segment import Segment

GENERATIONS_MAX = 1_000
"""So many segments back at most: a partition that moved more often than once a second is not looked into further."""


def elders(segment: Segment, known: Mapping[int, Segment], within_s: float) -> Iterator[Segment]:
    """The sealed segments that came before, the nearest first, in which somebody may have stored something less than
    ``within_s`` before the segment was opened; none once that is below 0.

    Who is named in none of them has stored nothing since. It is not looked further: who was idle for so long in a later
    segment may have been forgotten there, and what it had sent before is no word on where it is.

    A segment that has several predecessors has no elders: Kafka's partitions never merge.
    """
    for _ in range(GENERATIONS_MAX):
        if within_s < 0 or len(segment.predecessors) != 1:
            return
        elder = known.get(segment.predecessors[0])
        if elder is None or elder.is_open:
            return
        yield elder
        lived_us = (sealed_at_us(elder, known) or 0) - elder.opened_us
        within_s -= max(0, lived_us) / US_PER_S
        segment = elder
