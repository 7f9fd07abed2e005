"""Conversion of times to offsets: the start of a time in each segment, as in Kafka's ``offsetsForTimes``."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from seaweedmq.storage.plan.log_ends import end_in_files
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import EARLIEST, Offsets, ReadWindow
from seaweedmq.storage.read.time_search import find_offset_by_time
from seaweedmq.storage.snapshot import TopicSnapshot
from seaweedmq.storage.store.files import FileSegmentStore


def with_offsets(window: ReadWindow, source: TopicSource) -> ReadWindow:
    """Return the window with offsets in place of times.

    A time stands for the first record at or after it, or for the end if all records are older. These offsets exist, so
    none of them is a loss of data.

    Raises:
        InvalidArgument: If a time is given for a segment that does not exist.
        Corrupt: If a file is damaged.
        StorageFailed: If a file cannot be read.
        Unavailable: If no broker answers.
    """
    starting, ending = window.starting_times, window.ending_times
    if starting is None and ending is None:
        return window
    snapshot, known = source.snapshot, source.known
    for segment_id in (*_named(starting), *_named(ending)):
        snapshot.segment(segment_id)
    ends = {} if known is None else dict(known.ends)
    if known is None and source.root is not None:
        ends = {s.id: end_in_files(source.root, snapshot, s.id) or 0 for s in snapshot.segments}
    window = replace(window, starting_times=None, ending_times=None)
    if starting is not None:
        window = replace(window, starting=Offsets(default=EARLIEST, by_segment=_offsets(starting, source, ends)))
    if ending is not None:
        window = replace(window, ending=Offsets(default=None, by_segment=_offsets(ending, source, ends)))
    return window


def _offsets(times: Offsets, source: TopicSource, ends: Mapping[int, int]) -> dict[int, int | None]:
    wanted: dict[int, int] = {}
    for number, end in ends.items():
        us = times.of(number)
        if us is not None and us != EARLIEST and end > 0:
            wanted[number] = us
    if source.search is not None:
        return dict(source.search({number: (us, ends[number]) for number, us in wanted.items()}))
    return dict(_search(source.folder, source.snapshot, wanted, ends))


def _named(times: Offsets | None) -> Mapping[int, int | None]:
    return {} if times is None else times.by_segment


def _search(root: Path, snapshot: TopicSnapshot, times: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    async def search() -> dict[int, int]:
        store = FileSegmentStore(root)
        try:
            found = {}
            for number, us in times.items():
                segment = snapshot.segment(number)
                low = max(segment.start_offset, snapshot.topic.low_watermark(segment.slots))
                record = await find_offset_by_time(store, snapshot.topic, number, us, ends[number], start_offset=low)
                found[number] = ends[number] if record is None else record.offset
            return found
        finally:
            await store.close()

    # A separate thread: notebooks already run a loop in this one.
    with ThreadPoolExecutor(1, "seaweedmq-times") as pool:
        return pool.submit(asyncio.run, search()).result()
