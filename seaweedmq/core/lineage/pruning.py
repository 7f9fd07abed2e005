"""Selection of sealed segments that the metadata can drop, in part or whole.

``core.clock_doubt`` supplies the cutoff times, which a steady clock has confirmed.

A segment that was sealed long ago receives no more frames, so its producer sequences can be dropped. A segment that was
also left without records can be pruned: its id stays in the topic's ``pruned``. Predecessors are pruned first, so that
the successors of a known segment are known.
"""

from collections.abc import Callable, Collection, Mapping

from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic

PRUNED_RANGES_MAX = 20_000
"""Limit of the ranges of pruned ids in a topic's record, which stays far below etcd's 1.5 MiB with them. There is at
most one range more than there are ranges of remaining segments."""


def sealed_at_us(segment: Segment, known: Mapping[int, Segment]) -> int | None:
    """Return the time when a segment was sealed, None if it is open.

    Without a timestamp of its own, the opening time of its successors is returned: both happen in one transition.
    """
    if segment.is_open:
        return None
    if segment.sealed_us:
        return segment.sealed_us
    return max((known[s].opened_us for s in segment.successors if s in known), default=0)


def is_older(
    known: Mapping[int, Segment], before_us: int, sealed_for_s: Callable[[Segment], float], period_s: float
) -> Callable[[Segment], bool]:
    """Return a predicate whether a segment was sealed at least a period ago, by its timestamp or by a steady clock.

    ``before_us`` is the time one period ago, by a confirmed clock. The steady clock of ``sealed_for_s`` is needed
    because the timestamp of a clock that was ahead is useless for days.
    """

    def test(segment: Segment) -> bool:
        if segment.is_open:
            return False
        return (sealed_at_us(segment, known) or 0) < before_us or 0 < period_s <= sealed_for_s(segment)

    return test


def trimmable(known: Mapping[int, Segment], is_old: Callable[[Segment], bool]) -> list[Segment]:
    """Return the segments of a topic that are old enough and still have producer sequences."""
    return [s for s in known.values() if s.sequences and is_old(s)]


def may_lose_its_files(topic: Topic, segment: Segment) -> bool:
    """Whether a sealed segment may legitimately have no files.

    It has no records, retention removes them, or a low watermark is above them. Otherwise its records are lost, and the
    segment stays, so that readers learn of the loss.
    """
    end = segment.end_offset
    return end == segment.start_offset or topic.expires or (end or 0) <= topic.low_watermark(segment.slots)


def prunable(
    topic: Topic,
    known: Mapping[int, Segment],
    without_files: Collection[int],
    is_old: Callable[[Segment], bool],
    count_max: int,
) -> list[Segment]:
    """Return at most ``count_max`` segments of a topic that can be pruned now, by id.

    They are old enough (:func:`is_older`), without files, and without predecessors that stay. Fewer are returned if the
    topic's record could not hold all ranges of pruned ids.
    """
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
