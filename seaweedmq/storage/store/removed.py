"""Records of what retention removed, as empty files of a mounted directory.

Each record is a file of its own, so two brokers that both take themselves for the maintainer of a topic lose nothing:
the highest offset of a segment holds. A lower one is deleted once a higher one is durable.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from seaweedmq.codec.paths import RemovedMark, parse_removed_mark, removed_dir
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store import file_io


def record_removed(root: Path, topic: TopicName, uid: int, removed: Mapping[int, int], *, beside: str = "") -> None:
    """Record durably the offset below which the records of each segment are removed.

    ``beside``: see ``file_io.make_directories``.

    Raises:
        OSError: If the directory refuses.
    """
    known = scan_removed(root, topic, uid)
    rising = {segment: offset for segment, offset in removed.items() if offset > known.get(segment, 0)}
    if not rising:
        return
    directory = file_io.make_directories(root, removed_dir(topic), beside=beside)
    for segment, offset in rising.items():
        (directory / RemovedMark(segment, offset, uid).file_name).touch()
    file_io.sync_directories(root, directory)
    for mark, path in _marks(root, topic):
        if mark.uid == uid and mark.offset < rising.get(mark.segment, 0):
            path.unlink(missing_ok=True)


def scan_removed(root: Path, topic: TopicName, uid: int) -> dict[int, int]:
    """Return the highest recorded offset of each segment of the topic with this uid.

    Raises:
        OSError: If the directory refuses.
    """
    removed: dict[int, int] = {}
    for mark, _ in _marks(root, topic):
        if mark.uid == uid:
            removed[mark.segment] = max(mark.offset, removed.get(mark.segment, 0))
    return removed


def sweep_removed(root: Path, topic: TopicName, pruned: IdRanges) -> None:
    """Delete the records of pruned segments, which no reader finds any longer."""
    for mark, path in _marks(root, topic) if pruned else ():
        if mark.segment in pruned:
            path.unlink(missing_ok=True)


def _marks(root: Path, topic: TopicName) -> Iterator[tuple[RemovedMark, Path]]:
    with contextlib.suppress(FileNotFoundError), os.scandir(root / removed_dir(topic)) as entries:
        for entry in entries:
            mark = parse_removed_mark(entry.name)
            if mark is not None:
                yield mark, Path(entry.path)
