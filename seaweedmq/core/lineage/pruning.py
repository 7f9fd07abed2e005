"""What the metadata need not remember of sealed segments any more. Pure.

Of a segment that was sealed long ago nobody will send a frame again, so its producers' sequences can go; and one that
was sealed long ago and has no records (any more) can go whole: its id is kept among the topic's ``pruned``.
Predecessors go first, so that whoever knows a segment knows what came after it.
"""

from collections.abc import Collection, Mapping

from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic

PRUNED_RANGES_MAX = 20_000
"""Runs of pruned ids in a topic's record, which stays far below etcd's 1.5 MiB with them. There is one more run than
there are runs of segments that stay."""

CLOCK_DOUBT_S = 1.5 * DELIVERY_TIMEOUT_S_MAX
"""Wall clocks jump. What is due by them is let go of only once it was due for this long by a clock that never does, or
for as long as it is kept, if that is shorter; publishers wait less."""


def sealed_at_us(segment: Segment, known: Mapping[int, Segment]) -> int | None:
    """When it was sealed; None if it is open. What did not note it has successors that were opened at the same time."""
    if segment.is_open:
        return None
    if segment.sealed_us:
        return segment.sealed_us
    return max((known[s].opened_us for s in segment.successors if s in known), default=0)


def trimmable(known: Mapping[int, Segment], before_us: int) -> list[Segment]:
    """Segments of a topic that were sealed before a moment and still have their producers' sequences."""
    return [s for s in known.values() if s.sequences and (sealed_at_us(s, known) or 0) < before_us and not s.is_open]


def may_lose_its_files(topic: Topic, segment: Segment) -> bool:
    """Whether a sealed segment can be without files in good order: it has no record, retention removes them, or a low
    watermark is above them. Else its records are lost, and it stays, so that readers learn of that."""
    end = segment.end_offset
    return end == segment.start_offset or topic.expires or (end or 0) <= topic.low_watermark(segment.slots)


def prunable(
    topic: Topic, known: Mapping[int, Segment], without_files: Collection[int], before_us: int, count_max: int
) -> list[Segment]:
    """Segments of a topic that may be forgotten now, by id: sealed before a moment, without files, and without
    predecessors that stay. Fewer, where the topic's record could not tell all of them from those that stay."""
    going: dict[int, Segment] = {}
    runs = len(topic.pruned.ranges)
    fitting = 0
    for number in sorted(without_files):
        segment = known.get(number)
        if segment is None or segment.is_open or not may_lose_its_files(topic, segment):
            continue
        if (sealed_at_us(segment, known) or 0) >= before_us:
            continue
        if any(p in known and p not in going for p in segment.predecessors):
            continue
        if number not in topic.pruned:
            runs += 1 - (number - 1 in topic.pruned or number - 1 in going) - (number + 1 in topic.pruned)
        going[number] = segment
        if runs <= PRUNED_RANGES_MAX:
            fitting = len(going)
        if len(going) == count_max:
            break
    return list(going.values())[:fitting]
