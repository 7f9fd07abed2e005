"""Selection of the segments that a log file records, so that files alone tell how its segment came to be. Pure.

The documents of a topic are written some seconds after its metadata. A segment may take records before any document
knows it, so each of its log files records the segment itself, the transition that opened it, and those just before:
predecessors that stored nothing have no file that could do so.
"""

from collections.abc import Mapping

from seaweedmq.model.segment import Segment

RECENT_US = 60_000_000
"""Age, when the segment was opened, up to which transitions are recorded: documents are written within seconds."""
RECORDED_MAX = 64
"""Segments that one log file records. A line takes some 250 bytes."""


def provenance(segment: Segment, known: Mapping[int, Segment]) -> tuple[Segment, ...]:
    """Return the segment, then the segments that took part in the transitions it comes from, the nearest first.

    Args:
        known: segments of its topic by id, as the metadata has them now.
    """
    found = {segment.id: segment}
    generation = [segment]
    while generation:
        predecessors = [
            known[number] for s in generation for number in s.predecessors if number in known and number not in found
        ]
        for predecessor in predecessors:
            for number in (predecessor.id, *predecessor.successors):
                if number not in found and number in known:
                    found[number] = known[number]
        if len(found) > RECORDED_MAX:
            break
        generation = [p for p in predecessors if p.opened_us and p.opened_us >= segment.opened_us - RECENT_US]
    # Without their producers: those are recorded apart, and may be thousands.
    return tuple(found.values())[:RECORDED_MAX]
