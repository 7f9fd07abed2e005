"""Selection of the segments that a log file records, so that files alone show the lineage of its segment.

The documents of a topic are written some seconds after its metadata. A segment may take records before any document
names it. So each of its log files records the segment itself, the transition that opened it, and recent ones before:
predecessors that stored nothing have no file of their own.
"""

from collections.abc import Mapping

from seaweedmq.model.segment import Segment

RECENT_US = 60_000_000
"""Age at the segment's opening up to which transitions are recorded: documents are written within seconds."""
RECORDED_MAX = 64
"""Most segments that one log file records. A line takes about 250 bytes."""


def provenance(segment: Segment, known: Mapping[int, Segment]) -> tuple[Segment, ...]:
    """Return the segment of the log file, then those of the transitions that led to it, the nearest first."""
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
    # Without their producers: those are recorded separately, and may be thousands.
    return tuple(found.values())[:RECORDED_MAX]
