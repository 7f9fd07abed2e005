"""Where in log files frames begin, as far as somebody scanned them. Pure.

Whoever begins in the middle of a log, or goes on after others had their turn, does not scan it from its start again.
What a log holds never changes, so what was found once stays true; if power loss took it, there is nothing to be read.
"""

from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter
from typing import Final, NamedTuple

MARKS_MAX: Final = 65_536
"""Of all logs: some 10 MiB of memory, for 256 GiB of logs that were read in runs of 4 MiB."""


class Mark(NamedTuple):
    """A frame begins there, or the log ends."""

    offset: int
    position: int
    """In the file, bytes."""


class LogIndex:
    """Marks of the logs that were read last. Those of one log ascend."""

    def __init__(self, marks_max: int = MARKS_MAX) -> None:
        self._marks_max = marks_max
        self._count = 0
        self._logs: OrderedDict[tuple[int, str], list[Mark]] = OrderedDict()
        """By the topic's uid, since a later topic of the name may have a log of the same path; used last at the end."""

    def note(self, topic_uid: int, path: str, mark: Mark) -> None:
        """Remember it, and forget the log that was not read for longest if it is one too many."""
        marks = self._logs.setdefault((topic_uid, path), [])
        if not marks or mark.offset > marks[-1].offset:
            marks.append(mark)
            self._count += 1
        self._logs.move_to_end((topic_uid, path))
        while self._count > self._marks_max:
            _, forgotten = self._logs.popitem(last=False)
            self._count -= len(forgotten)

    def begin(self, topic_uid: int, path: str, offset: int) -> Mark | None:
        """The last known mark at or below ``offset``; None: begin at the start of the file."""
        marks = self._logs.get((topic_uid, path), [])
        below = bisect_right(marks, offset, key=attrgetter("offset"))
        return marks[below - 1] if below else None
