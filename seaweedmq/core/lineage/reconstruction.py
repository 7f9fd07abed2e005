"""Reconstruction of a topic's metadata from its surviving records.

A record of a segment comes from ``lineage.json``, from the preamble of a log file, or from an older etcd. Each may be
outdated, and segments that stored nothing may be in none. The reconstruction relies on two facts. The segments that
ever covered a slot succeed each other in the order of their ids. And a segment without a record has no file, since the
file would contain the record. So for each slot, the segment with the highest id is the last one that stored anything,
and all others there are sealed. Where the last one is sealed as well, a new segment continues.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seaweedmq.errors import Corrupt
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Topic

SPARE_IDS = 1_000
"""Number of ids that each recovery skips before its first new one: lost segments may have had them, and clients may
know those ids. The next recovery skips as many more, since the new segments may have stored nothing either."""
NO_BROKER = "recovered"
"""Replica of a segment whose brokers are unknown. No broker has this id, so the leader replaces the segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstructed:
    """A topic and all of its segments, ready to be written to etcd."""

    topic: Topic
    segments: tuple[Segment, ...]
    """Segments by id. The open ones partition the ring."""
    opened: tuple[int, ...]
    """Ids of new segments, which continue slots whose last segment is sealed and has no known successor."""


def latest_topic(document: Topic, other: Topic | None) -> Topic:
    """Return the later of two versions of a topic's record, with values that only grow merged from both.

    A record of another topic of the same name is ignored.
    """
    if other is None or other.uid != document.uid:
        return document
    later = other if other.next_segment > document.next_segment else document
    marks = max(len(document.low_watermarks), len(other.low_watermarks))
    low = tuple(
        max(mark)
        for mark in zip(_filled(document.low_watermarks, marks), _filled(other.low_watermarks, marks), strict=True)
    )
    pruned = document.pruned.including(number for lo, hi in other.pruned.ranges for number in range(lo, hi))
    partitions = None if later.partitions is None else max(document.partitions or 1, other.partitions or 1)
    return replace(later, low_watermarks=low, pruned=pruned, partitions=partitions)


def merged(topic: Topic, records: Iterable[Segment]) -> dict[int, Segment]:
    """Return the best record of each unpruned segment by id, or raise Corrupt if two records contradict each other."""
    best: dict[int, Segment] = {}
    for record in records:
        if record.id in topic.pruned:
            continue
        known = best.get(record.id)
        if known is not None and (known.slots != record.slots or known.start_offset != record.start_offset):
            raise Corrupt(
                f"{record}: one record has slots {known.slots} from offset {known.start_offset}, another one "
                f"{record.slots} from offset {record.start_offset}: move away the file that another cluster wrote"
            )
        if known is None or _rank(record) > _rank(known):
            best[record.id] = record
    return dict(sorted(best.items()))


def unsealed(topic: Topic, records: Mapping[int, Segment]) -> dict[int, int]:
    """Return an upper bound of the end offset of each segment that is sealed but has no record of the seal.

    The bound is the start of a successor. The segment's files have the exact end, which :func:`reconstruct` needs.
    """
    bounds: dict[int, int] = {}
    for chain, _ in _chains(topic, records):
        for number, successor in pairwise(chain):
            if records[number].is_open:
                start = records[successor].start_offset
                bounds[number] = min(bounds.get(number, start), start)
    return bounds


def first_free_id(topic: Topic, records: Mapping[int, Segment], files: Collection[int] = ()) -> int:
    """Return an id above all that the records name. ``files``: ids of segments that have files."""
    named = [number for s in records.values() for number in (s.id, *s.predecessors, *s.successors)]
    pruned = [hi - 1 for _, hi in topic.pruned.ranges]
    return max(topic.next_segment, max((*named, *files, *pruned), default=-1) + 1)


def first_new_id(topic: Topic, records: Mapping[int, Segment], files: Collection[int], *, generation: int) -> int:
    """Return an id that no segment had before the recovery that begins this generation: see ``SPARE_IDS``."""
    return first_free_id(topic, records, files) + SPARE_IDS * generation


def reconstruct(
    topic: Topic, records: Mapping[int, Segment], *, ends: Mapping[int, int], first_new: int, now_us: int
) -> Reconstructed:
    """Return the topic with a lineage, of :func:`merged` records, whose open segments partition its ring.

    ``ends`` has the end offsets, according to the files, of the segments that :func:`unsealed` returns. New segments
    begin at id ``first_new``, to which ``next_segment`` rises in any case.
    """
    topic = _with_all_partitions(topic, records)
    bounds = unsealed(topic, records)
    known = {
        number: _sealed(segment, min(bounds[number], ends[number]), now_us) if number in bounds else segment
        for number, segment in records.items()
    }
    chains = _chains(topic, known)
    new = _new_segments(topic, known, chains, max(first_new, max(known, default=-1) + 1), now_us)
    known |= {segment.id: segment for segment in new}
    before: dict[int, set[int]] = {number: set() for number in known}
    for chain, _ in _chains(topic, known):
        for number, successor in pairwise(chain):
            before[successor].add(number)
    for number, segment in known.items():
        if any(p not in known and p not in topic.pruned for p in segment.predecessors):
            pruned = {p for p in segment.predecessors if p in topic.pruned}
            known[number] = replace(segment, predecessors=tuple(sorted(before[number] | pruned)))
    after: dict[int, list[int]] = {number: [] for number in known}
    for segment in known.values():
        for predecessor in segment.predecessors:
            if predecessor in after:
                after[predecessor].append(segment.id)
    linked = tuple(
        segment if segment.is_open else replace(segment, successors=tuple(sorted(after[number])))
        for number, segment in sorted(known.items())
    )
    next_segment = max(topic.next_segment, first_new, max(known, default=-1) + 1)
    return Reconstructed(
        topic=replace(topic, next_segment=next_segment), segments=linked, opened=tuple(s.id for s in new)
    )


def _filled(marks: Sequence[int], length: int) -> tuple[int, ...]:
    return (*marks, *[0] * (length - len(marks)))


def _rank(record: Segment) -> tuple[bool, int, bool, int]:
    """Return the rank of a version of a segment's record: a segment is sealed once, and then loses its producers."""
    return not record.is_open, record.epoch, record.sequences_complete, len(record.sequences)


def _with_all_partitions(topic: Topic, records: Mapping[int, Segment]) -> Topic:
    if topic.partitions is None:
        return topic
    partitions = max([topic.partitions, *(segment.slots.hi for segment in records.values())])
    if partitions == topic.partitions:
        return topic
    return replace(topic, partitions=partitions, segments_min=max(topic.segments_min, partitions))


def _chains(topic: Topic, records: Mapping[int, Segment]) -> list[tuple[list[int], KeyRange]]:
    """Return the ids that cover each range of slots, ascending; a partition's range is its slot.

    The ranges are in order, and no segment's bound lies within one.
    """
    ring = _with_all_partitions(topic, records).ring
    if topic.partitions is not None:
        by_slot: dict[int, list[int]] = {slot: [] for slot in range(ring.lo, ring.hi)}
        for number, segment in sorted(records.items()):
            for slot in range(segment.slots.lo, segment.slots.hi):
                by_slot[slot].append(number)
        return [(chain, KeyRange(slot, slot + 1)) for slot, chain in by_slot.items()]
    edges = {ring.lo, ring.hi}
    for segment in records.values():
        edges |= {segment.slots.lo, segment.slots.hi}
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for number, segment in records.items():
        starting.setdefault(segment.slots.lo, []).append(number)
        ending.setdefault(segment.slots.hi, []).append(number)
    chains = []
    covering: set[int] = set()
    for lo, hi in pairwise(sorted(edges)):
        covering.difference_update(ending.get(lo, ()))
        covering.update(starting.get(lo, ()))
        chains.append((sorted(covering), KeyRange(lo, hi)))
    return chains


def _sealed(segment: Segment, end_offset: int, now_us: int) -> Segment:
    return replace(
        segment,
        state=SegmentState.SEALED,
        end_offset=max(segment.start_offset, end_offset),
        sealed_us=max(segment.opened_us, now_us),
    )


def _new_segments(
    topic: Topic, known: Mapping[int, Segment], chains: Sequence[tuple[list[int], KeyRange]], first: int, now_us: int
) -> list[Segment]:
    """Return segments for the slots without an open one. Adjacent slots of one predecessor share one."""
    gaps: list[tuple[int | None, KeyRange]] = []
    for chain, slots in chains:
        last = chain[-1] if chain else None
        if last is not None and known[last].is_open:
            continue
        if gaps and topic.partitions is None and gaps[-1][0] == last and gaps[-1][1].hi == slots.lo:
            gaps[-1] = last, KeyRange(gaps[-1][1].lo, slots.hi)
        else:
            gaps.append((last, slots))
    return [
        Segment(
            topic=topic.name,
            id=first + number,
            slots=slots,
            epoch=1,
            state=SegmentState.OPEN,
            replicas=(NO_BROKER,) if last is None else known[last].replicas,
            predecessors=() if last is None else (last,),
            start_offset=max(topic.low_watermark(slots), 0 if last is None else known[last].end_offset or 0),
            opened_us=now_us,
        )
        for number, (last, slots) in enumerate(gaps)
    ]
