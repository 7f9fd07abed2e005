"""Index of frame positions in scanned log files. Pure.

A reader that begins in the middle of a log, or resumes, does not scan the log from its start. The content of a log
never changes, so an entry stays true; if power loss took the frame, there is nothing to read.
"""

from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter
from typing import Final, NamedTuple

MARKS_MAX: Final = 65_536
"""Limit of the marks of all logs: some 10 MiB of memory, for 256 GiB of logs read in blocks of 4 MiB."""


class Mark(NamedTuple):
    """A position in a log file where a frame begins, or the log ends."""

    offset: int
    position: int
    """Position in the file, in bytes."""


class LogIndex:
    """An index of marks of recently read logs; the marks of one log ascend."""

    def __init__(self, marks_max: int = MARKS_MAX) -> None:
        self._marks_max = marks_max
        self._count = 0
        self._logs: OrderedDict[tuple[int, str], list[Mark]] = OrderedDict()
        """Marks by topic uid and path, ordered by last use; a recreated topic may have a log of the same path."""

    def note(self, topic_uid: int, path: str, mark: Mark) -> None:
        """Add a mark; above the limit, drop the least recently used logs."""
        marks = self._logs.setdefault((topic_uid, path), [])
        if not marks or mark.offset > marks[-1].offset:
            marks.append(mark)
            self._count += 1
        self._logs.move_to_end((topic_uid, path))
        while self._count > self._marks_max:
            _, forgotten = self._logs.popitem(last=False)
            self._count -= len(forgotten)

    def begin(self, topic_uid: int, path: str, offset: int) -> Mark | None:
        """Return the last known mark at or below ``offset``; None if the scan must begin at the start of the file."""
        marks = self._logs.get((topic_uid, path), [])
        below = bisect_right(marks, offset, key=attrgetter("offset"))
        return marks[below - 1] if below else None
