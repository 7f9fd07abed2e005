"""Start of a stream without a checkpoint: options ``startingOffsets`` and ``startingTimestamp``."""

from collections.abc import Mapping

from seaweedmq.core.lineage.frontier import Frontier, LineageGraph, beginning, beginning_at, everything
from seaweedmq.core.lineage.lineage import below_offset
from seaweedmq.errors import OutOfRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import StoredFiles
from seaweedmq.spark.streams.stream_options import StreamOptions
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.time_offsets import find_in_files
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.snapshot import TopicSnapshot, list_files, list_removed
from seaweedmq.storage.store.files import run_with_files


def starting_frontier(
    place: Place, topic: Topic, lineage: LineageGraph, ends: Mapping[int, int], options: StreamOptions
) -> Frontier:
    """Return the first frontier of a query; ``ends`` holds the end offsets of open segments.

    InvalidArgument is raised if a named segment does not exist, or precedes another named one; OutOfRange if an offset
    lies beyond the end of its segment.
    """
    earliest, gone = _earliest(place, topic, lineage)
    starting = options.starting
    if options.starting_us is not None:
        return _at_time(place, topic, lineage, ends, earliest, gone, options.starting_us)
    if starting.by_segment:
        snapshot = TopicSnapshot(topic=topic, segments=tuple(lineage.segments.values()), files=())
        named = {}
        for number, offset in starting.by_segment.items():
            segment = snapshot.segment(number)
            end = _end(segment, ends)
            _check(segment, offset, end)
            lowest = max(earliest.get(number, 0), segment.start_offset)
            named[number] = end if offset is None else offset or lowest  # removed offsets are reported as lost
        return beginning_at(lineage, earliest, named, gone - named.keys())
    if starting.default is None:
        return everything(lineage, beginning(lineage, earliest, gone), ends)
    first = starting.default
    for segment in lineage.segments.values():
        if segment.is_open:
            _check(segment, first, max(_end(segment, ends), segment.start_offset))
    begins = {number: max(first, earliest.get(number, 0)) for number in lineage.segments}
    return beginning(lineage, begins, gone | below_offset(lineage.segments.values(), first))


def _check(segment: Segment, offset: int | None, end: int) -> None:
    if offset is not None and offset > end:
        how = "ends" if segment.end_offset is not None else "is committed up to"
        raise OutOfRange(
            f"option 'startingOffsets' is offset {offset} of {segment}, which {how} {end}: give a lower one, or "
            "latest; without option 'bootstrap' an open segment is read up to the end of its tables"
        )


def _end(segment: Segment, ends: Mapping[int, int]) -> int:
    if segment.end_offset is not None:
        return segment.end_offset
    return max(ends.get(segment.id, 0), segment.start_offset)


def _earliest(place: Place, topic: Topic, lineage: LineageGraph) -> tuple[dict[int, int], set[int]]:
    """Return the first offsets of segments from which records were removed, and the segments without any left.

    Retention or manual deletion removed them.
    """
    begin: dict[int, int] = {}
    for file in list_files(place, topic.name, lineage.segments) if topic.expires else ():
        begin[file.segment] = min(file.base_offset, begin.get(file.segment, file.base_offset))
    removed = list_removed(place, topic)
    if not (topic.has_retention or removed):
        return {}, set()
    earliest: dict[int, int] = {}
    gone: set[int] = set()
    for number, segment in sorted(lineage.segments.items()):
        low = max(topic.low_watermark(segment.slots), segment.start_offset, removed.get(number, 0))
        end = segment.end_offset
        first = max(low, begin.get(number, low if end is None or not topic.expires else end))
        if end is not None and first >= end:
            if all(p in gone or p not in lineage.segments for p in segment.predecessors):
                gone.add(number)
        elif first > segment.start_offset:
            earliest[number] = first
    trimmed = [number for number in beginning(lineage, earliest, gone) if number in earliest]
    exact = _exact(place, topic, [lineage.segments[number] for number in trimmed])
    return earliest | exact, gone


def _exact(place: Place, topic: Topic, segments: list[Segment]) -> dict[int, int]:
    """Return the first offsets by the files' contents: a file may be left over from what retention removed."""

    async def search(store: StoredFiles) -> dict[int, int]:
        return {segment.id: await earliest_offset(store, topic, segment) for segment in segments}

    return run_with_files(place, search)


def _at_time(
    place: Place,
    topic: Topic,
    lineage: LineageGraph,
    ends: Mapping[int, int],
    earliest: Mapping[int, int],
    gone: set[int],
    timestamp_us: int,
) -> Frontier:
    wanted = {}
    for number, segment in lineage.segments.items():
        start, end = max(segment.start_offset, earliest.get(number, 0)), _end(segment, ends)
        if start < end:
            wanted[number] = timestamp_us, start, end
    found = find_in_files(place, topic, wanted)
    skipped = set(gone)
    begins = dict(earliest)
    for number in sorted(lineage.segments):  # ids rise along the lineage
        segment = lineage.segments[number]
        if number in found:
            begins[number] = found[number]
        elif segment.is_open:
            begins[number] = _end(segment, ends)
        elif all(p in skipped or p not in lineage.segments for p in segment.predecessors):
            skipped.add(number)
    return beginning(lineage, begins, skipped)
