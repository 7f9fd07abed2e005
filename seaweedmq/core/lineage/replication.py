"""Under-replicated segments: open ones with fewer live replicas than their topic requests.

A segment is under-replicated from the loss of a replica until repair has opened a successor on another broker. If
brokers are missing, it stays so until one comes back.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from seaweedmq.model.segment import Segment


def live_replicas(segment: Segment, live: Collection[str]) -> int:
    """Count the replicas of a segment on registered brokers."""
    return sum(replica in live for replica in segment.replicas)


def under_replicated(segments: Iterable[Segment], wanted: int, live: Collection[str]) -> Counter[int]:
    """Count one topic's open segments below ``wanted`` replicas by their live replicas; files hold sealed records."""
    counts = Counter(live_replicas(segment, live) for segment in segments if segment.is_open)
    return Counter({there: count for there, count in counts.items() if there < wanted})


def describe_under_replicated(segments: Collection[Segment], wanted: int, live: Collection[str]) -> str:
    """Return a readable sentence; "" if no segment is under-replicated. Arguments: see :func:`under_replicated`."""
    counts = under_replicated(segments, wanted, live)
    if not counts:
        return ""
    opened = sum(segment.is_open for segment in segments)
    parts = [f"{count} of {opened} segments with {there} of {wanted}" for there, count in sorted(counts.items())]
    return f"under-replicated: {', '.join(parts)} replicas"
