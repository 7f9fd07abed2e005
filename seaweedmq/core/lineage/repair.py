"""Open segments that lost a replica, are about to, or never had enough: which are replaced, why, and who stays."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Seal a segment and open a successor of the same range."""

    segment: Segment
    reason: str
    """In words, for people."""
    stays: tuple[str, ...]
    """Replicas that are well, in their order: they serve the successor, too, so that no more moves than must, and the
    first of them is its primary."""


def repairs(
    segments: Iterable[Segment],
    live: Collection[str],
    *,
    draining: Collection[str],
    suspected: Collection[str],
    broken: Collection[SegmentId],
) -> list[Repair]:
    """Segments that have to be replaced, the worst off first: those that nobody can write to, then those that lost a
    follower or whose replicas lost each other, then those of brokers that are being drained.

    Args:
        live, draining, suspected: broker ids.
        broken: segments whose replicas lost each other, or that were sealed and have no successor.
    """
    found: list[tuple[int, Repair]] = []
    for segment in segments:
        gone = [r for r in segment.replicas if r not in live]
        leaving = [r for r in segment.replicas if r in draining]
        if gone:
            rank, reason = int(segment.primary in live), f"broker {gone[0]} is gone"
        elif segment.key in broken:
            rank, reason = 1, "its replicas lost each other, or it was sealed without a successor"
        elif leaving:
            rank, reason = 2, f"broker {leaving[0]} is being drained"
        else:
            continue
        well = tuple(r for r in segment.replicas if r in live and r not in draining and r not in suspected)
        found.append((rank, Repair(segment=segment, reason=reason, stays=well)))
    return [repair for _, repair in sorted(found, key=lambda ranked: ranked[0])]


def reinforcements(segments: Iterable[Segment], topics: Mapping[TopicName, Topic], available: int) -> list[Repair]:
    """Segments that were opened when brokers were missing, and could have more replicas now. They are readable and
    writable, so one at a time is enough.

    Args:
        available: brokers that take new segments.
    """
    return [
        Repair(segment=segment, reason="a replica was missing", stays=segment.replicas)
        for segment in segments
        if len(segment.replicas) < min(topics[segment.topic].replicas, available)
    ]
