"""Offsets in place of times: where in each segment a time begins, as Kafka's ``offsetsForTimes`` says it."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from seaweedmq.storage.plan.log_ends import end_in_files
from seaweedmq.storage.plan.scan_ranges import BrokerOffsets
from seaweedmq.storage.plan.window import EARLIEST, Offsets, ReadWindow
from seaweedmq.storage.read.time_search import find_offset_by_time
from seaweedmq.storage.snapshot import TopicSnapshot
from seaweedmq.storage.store.files import FileSegmentStore


def with_times(
    window: ReadWindow,
    starting: Offsets | None,
    ending: Offsets | None,
    root: Path | None,
    snapshot: TopicSnapshot,
    known: BrokerOffsets | None,
    bootstrap: str | None,
) -> ReadWindow:
    """The window with the offsets that the times stand for: of the first record that is not older, or the end of what
    there is if all are. That the offsets exist is known then, so that none of them is a loss of data.

    Raises:
        InvalidArgument: a time is given for a segment that does not exist.
        Corrupt, StorageFailed, Unavailable: the records can not be looked at.
    """
    if starting is None and ending is None:
        return window
    for segment_id in (*_named(starting), *_named(ending)):
        snapshot.segment(segment_id)
    ends = {} if known is None else dict(known.ends)
    if known is None and root is not None:
        ends = {s.id: end_in_files(root, snapshot, s.id) or 0 for s in snapshot.segments}
    if starting is not None:
        found = _offsets(starting, root, snapshot, ends, bootstrap)
        window = replace(window, starting=Offsets(default=EARLIEST, by_segment=found))
    if ending is not None:
        found = _offsets(ending, root, snapshot, ends, bootstrap)
        window = replace(window, ending=Offsets(default=None, by_segment=found))
    return window


def _offsets(
    times: Offsets, root: Path | None, snapshot: TopicSnapshot, ends: Mapping[int, int], bootstrap: str | None
) -> dict[int, int | None]:
    wanted: dict[int, int] = {}
    for number, end in ends.items():
        us = times.of(number)
        if us is not None and us != EARLIEST and end > 0:
            wanted[number] = us
    if bootstrap is not None:
        # Imported here: who reads files alone needs no network.
        from seaweedmq.spark.live import offsets_at

        return dict(offsets_at(bootstrap, snapshot.topic.name, {n: (us, ends[n]) for n, us in wanted.items()}))
    if root is None:
        raise AssertionError("a read has a storage, or brokers")
    return dict(_search(root, snapshot, wanted, ends))


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

    # In a thread of its own: notebooks have a loop running in this one.
    with ThreadPoolExecutor(1, "seaweedmq-times") as pool:
        return pool.submit(asyncio.run, search()).result()
