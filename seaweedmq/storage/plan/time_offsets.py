"""Conversion of times to offsets: the start of a time in each segment, as in Kafka's ``offsetsForTimes``."""

from collections.abc import Mapping
from dataclasses import replace

from seaweedmq.model.topic import Topic
from seaweedmq.ports import StoredFiles
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.log_ends import end_in_files
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import EARLIEST, Offsets, ReadWindow
from seaweedmq.storage.read.time_search import find_offset_by_time
from seaweedmq.storage.snapshot import TopicSnapshot
from seaweedmq.storage.store.files import run_with_files


def with_offsets(window: ReadWindow, source: TopicSource) -> ReadWindow:
    """Return the window with offsets in place of times.

    A time stands for the first record at or after it, or for the end if all records are older. These offsets exist, so
    none of them is a loss of data. Raises InvalidArgument if a time is given for a segment that does not exist;
    Unavailable if no broker answers.
    """
    starting, ending = window.starting_times, window.ending_times
    if starting is None and ending is None:
        return window
    snapshot, known = source.snapshot, source.known
    for segment_id in (*_named(starting), *_named(ending)):
        snapshot.segment(segment_id)
    ends = {} if known is None else dict(known.ends)
    if known is None and source.place is not None:
        ends = {s.id: end_in_files(source.place, snapshot, s.id) or 0 for s in snapshot.segments}
    window = replace(window, starting_times=None, ending_times=None)
    if starting is not None:
        window = replace(window, starting=Offsets(default=EARLIEST, by_segment=_offsets(starting, source, ends)))
    if ending is not None:
        window = replace(window, ending=Offsets(default=None, by_segment=_offsets(ending, source, ends)))
    return window


def _offsets(times: Offsets, source: TopicSource, ends: Mapping[int, int]) -> dict[int, int | None]:
    wanted: dict[int, tuple[int, int]] = {}
    for number, end in ends.items():
        us = times.of(number)
        if us is not None and us != EARLIEST and end > 0:
            wanted[number] = us, end
    if source.search is not None:
        return dict(source.search(wanted))
    snapshot = source.snapshot
    bounds = {number: (us, _lowest(snapshot, number), end) for number, (us, end) in wanted.items()}
    found = find_in_files(source.storage, snapshot.topic, bounds)
    return {number: found.get(number, end) for number, (_, end) in wanted.items()}


def _named(times: Offsets | None) -> Mapping[int, int | None]:
    return {} if times is None else times.by_segment


def _lowest(snapshot: TopicSnapshot, number: int) -> int:
    segment = snapshot.segment(number)
    return max(segment.start_offset, snapshot.topic.low_watermark(segment.slots))


def find_in_files(place: Place, topic: Topic, wanted: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
    """Return the first offset at or after a time by segment; ``wanted`` has microseconds, first and end offset."""

    async def search(store: StoredFiles) -> dict[int, int]:
        found = {}
        for number, (us, start, end) in wanted.items():
            record = await find_offset_by_time(store, topic, number, us, end, start_offset=start)
            if record is not None:
                found[number] = record.offset
        return found

    return run_with_files(place, search)
