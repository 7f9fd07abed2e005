"""What the metadata need not remember of sealed segments any more. Pure.

The moments before which a segment has to be sealed come from ``core.clock_doubt``: confirmed by a steady clock.

Of a segment that was sealed long ago nobody will send a frame again, so its producers' sequences can go; and one that
was sealed long ago and has no records (any more) can go whole: its id is kept among the topic's ``pruned``.
Predecessors go first, so that whoever knows a segment knows what came after it.
"""

from collections.abc import Callable, Collection, Mapping

from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic

PRUNED_RANGES_MAX = 20_000
"""Runs of pruned ids in a topic's record, which stays far below etcd's 1.5 MiB with them. There is one more run than
there are runs of segments that stay."""


def sealed_at_us(segment: Segment, known: Mapping[int, Segment]) -> int | None:
    """When it was sealed; None if it is open. What did not note it has successors that were opened at the same time."""
    if segment.is_open:
        return None
    if segment.sealed_us:
        return segment.sealed_us
    return max((known[s].opened_us for s in segment.successors if s in known), default=0)


def is_older(
    known: Mapping[int, Segment], before_us: int, sealed_for_s: Callable[[Segment], float], period_s: float
) -> Callable[[Segment], bool]:
    """Return the test whether a segment was sealed a period ago, by its stamp or by a steady clock: the stamp of a
    clock that was ahead says nothing for days.

    Args:
        before_us: the moment a period ago, by a confirmed clock.
        sealed_for_s: for how long a segment has been known to be sealed, by a steady clock.
    """

    def test(segment: Segment) -> bool:
        if segment.is_open:
            return False
        return (sealed_at_us(segment, known) or 0) < before_us or 0 < period_s <= sealed_for_s(segment)

    return test


def trimmable(known: Mapping[int, Segment], is_old: Callable[[Segment], bool]) -> list[Segment]:
    """Segments of a topic that are old enough and still have their producers' sequences."""
    return [s for s in known.values() if s.sequences and is_old(s)]


def may_lose_its_files(topic: Topic, segment: Segment) -> bool:
    """Whether a sealed segment can be without files in good order: it has no record, retention removes them, or a low
    watermark is above them. Else its records are lost, and it stays, so that readers learn of that."""
    end = segment.end_offset
    return end == segment.start_offset or topic.expires or (end or 0) <= topic.low_watermark(segment.slots)


def prunable(
    topic: Topic,
    known: Mapping[int, Segment],
    without_files: Collection[int],
    is_old: Callable[[Segment], bool],
    count_max: int,
) -> list[Segment]:
    """Segments of a topic that may be forgotten now, by id: old enough (:func:`is_older`), without files, and without
    predecessors that stay. Fewer, where the topic's record could not tell all of them from those that stay."""
    going: dict[int, Segment] = {}
    runs = len(topic.pruned.ranges)
    fitting = 0
    for number in sorted(without_files):
        segment = known.get(number)
        if segment is None or segment.is_open or not may_lose_its_files(topic, segment):
            continue
        if not is_old(segment):
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
