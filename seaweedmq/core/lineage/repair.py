"""Selection of open segments to repair: those that lost a replica, will soon lose one, or never had enough."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A repair: seal a segment and open a successor of the same range."""

    segment: Segment
    reason: str
    """Reason of the repair, as readable text."""
    healthy_replicas: tuple[str, ...]
    """Healthy replicas, in order: they also serve the successor, to move little, the first as its primary."""


def repairs(
    segments: Iterable[Segment],
    live: Collection[str],
    *,
    draining: Collection[str],
    suspected: Collection[str],
    broken: Collection[SegmentId],
) -> list[Repair]:
    """Return the open segments to replace, the most urgent first.

    The order is: segments without a live primary; segments that lost a follower or whose replicas lost each other;
    segments on draining brokers. ``broken`` are those whose replicas lost each other, or that were sealed and have no
    successor; ``suspected`` brokers may have failed.
    """
    found: list[tuple[int, Repair]] = []
    for segment in segments:
        gone = [r for r in segment.replicas if r not in live]
        leaving = [r for r in segment.replicas if r in draining]
        if gone:
            rank, reason = int(segment.primary in live), f"broker {gone[0]} is not registered"
        elif segment.key in broken:
            rank, reason = 1, "its replicas lost each other, or it was sealed without a successor"
        elif leaving:
            rank, reason = 2, f"broker {leaving[0]} is being drained"
        else:
            continue
        well = tuple(r for r in segment.replicas if r in live and r not in draining and r not in suspected)
        found.append((rank, Repair(segment=segment, reason=reason, healthy_replicas=well)))
    return [repair for _, repair in sorted(found, key=lambda ranked: ranked[0])]


def reinforcements(segments: Iterable[Segment], topics: Mapping[TopicName, Topic], available: int) -> list[Repair]:
    """Return the segments that were opened when brokers were missing and could have more replicas now.

    Each is readable and writable, so one repair at a time is enough. ``available`` brokers accept new segments.
    """
    return [
        Repair(segment=segment, reason="a replica was missing", healthy_replicas=segment.replicas)
        for segment in segments
        if len(segment.replicas) < min(topics[segment.topic].replicas, available)
    ]
