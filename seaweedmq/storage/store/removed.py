"""Records of the offsets below which retention removed records, as empty files.

Each record is a separate file, so two brokers that both act as the maintainer of a topic lose nothing: the highest
offset of a segment is valid. The previous record stays, because a listing may miss a name that changes meanwhile. The
record before it is renamed to the next one, which needs neither an inode nor space: retention must work on a full disk.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from seaweedmq.codec.paths import RemovedMark, parse_removed_mark, removed_dir
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place


def record_removed(
    place: DirectoryPlace, topic: TopicName, uid: int, removed: Mapping[int, int], *, sibling: str = ""
) -> None:
    """Record durably the offset below which the records of each segment are removed."""
    known: dict[int, list[tuple[int, Path]]] = {}
    for mark, path in _marks(place, topic):
        if mark.uid == uid:
            known.setdefault(mark.segment, []).append((mark.offset, path))
    rising = {s: offset for s, offset in removed.items() if offset > max(known.get(s, ()), default=(0,))[0]}
    if not rising:
        return
    directory = place.make_folder(removed_dir(topic), sibling=sibling)
    for segment, offset in rising.items():
        raised = directory / RemovedMark(segment, offset, uid).file_name
        lower = [path for _, path in sorted(known.get(segment, ()))]
        _put(raised, lower[0] if len(lower) > 1 else None)
        for path in lower[1:-1]:  # records of a second broker
            path.unlink(missing_ok=True)
    place.sync_names(directory)


def _put(raised: Path, oldest: Path | None) -> None:
    """Rename the oldest record of a segment to the raised one, or create the latter."""
    with contextlib.suppress(FileNotFoundError):  # another broker was faster
        if oldest is not None:
            oldest.rename(raised)
            return
    raised.touch()


def scan_removed(place: Place, topic: TopicName, uid: int) -> dict[int, int]:
    """Return the highest recorded offset of each segment of the topic with this uid."""
    removed: dict[int, int] = {}
    for name in place.names(removed_dir(topic)):
        mark = parse_removed_mark(name)
        if mark is not None and mark.uid == uid:
            removed[mark.segment] = max(mark.offset, removed.get(mark.segment, 0))
    return removed


def sweep_removed(place: DirectoryPlace, topic: TopicName, pruned: IdRanges) -> None:
    """Delete the records of pruned segments, which readers no longer use."""
    for mark, path in _marks(place, topic) if pruned else ():
        if mark.segment in pruned:
            path.unlink(missing_ok=True)


def _marks(place: DirectoryPlace, topic: TopicName) -> Iterator[tuple[RemovedMark, Path]]:
    with contextlib.suppress(FileNotFoundError), os.scandir(place.path(removed_dir(topic))) as entries:
        for entry in entries:
            mark = parse_removed_mark(entry.name)
            if mark is not None:
                yield mark, Path(entry.path)
