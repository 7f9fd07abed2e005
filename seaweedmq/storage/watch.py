"""A topic looked at again and again, by a reader that waits for more: what did not change is not read again. Blocking.

A look that finds nothing new costs three calls to the file system, however many files there are. That a folder did not
change its time of modification tells only what happened before the clock of the storage went on: for ``SETTLING_S``
after a time was seen first, it is listed all the same. So neither a coarse clock nor one that goes wrong hides a file.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, table_dir
from seaweedmq.codec.state.documents import lineage_from_document, topic_from_document
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.snapshot import read_document
from seaweedmq.storage.store.faults import storage_failed

SETTLING_S: Final = 3.0
"""No file system that is in use counts modifications in longer steps."""

R = TypeVar("R")
T = TypeVar("T")
_State = tuple[int, int, int]
_NAME_DIGITS = 20
TABLE_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the storage says of a topic."""

    topic: Topic
    segments: tuple[Segment, ...]
    """By id."""
    table_ends: Mapping[int, int]
    """Segment -> the highest offset below which all is in tables, of those that have any. A table of an open segment
    holds what is committed and nothing else (``broker.upkeep.conversion``)."""


class TopicWatch:
    """Looks of one reader at one topic."""

    def __init__(self, root: Path, name: TopicName, clock: Callable[[], float]) -> None:
        """``clock``: seconds, never set back."""
        self._root = root
        self._name = name
        self._topic = _Kept(clock, lambda: read_document(root, name, TOPIC_DOCUMENT), topic_from_document)
        self._segments = _Kept(
            clock,
            lambda: read_document(root, name, LINEAGE_DOCUMENT),
            lambda content: lineage_from_document(content)[1],
        )
        self._table_ends = _Kept(clock, lambda: table_ends(root, name), dict[int, int])
        self._last: TopicState | None = None

    def look(self) -> TopicState:
        """The topic now: the same object if nothing changed. What files hold is looked at last, so that none belongs to
        a segment that the lineage does not know yet.

        Raises:
            NotFound: no such topic. Corrupt: a document is unreadable. StorageFailed: the directory refused.
        """
        topic = self._topic.get(self._state(document_path(self._name, TOPIC_DOCUMENT)))
        segments = self._segments.get(self._state(document_path(self._name, LINEAGE_DOCUMENT)))
        ends = self._table_ends.get(self._state(table_dir(self._name)))
        last = self._last
        if last is None or last.topic is not topic or last.segments is not segments or last.table_ends is not ends:
            self._last = last = TopicState(topic, segments, ends)
        return last

    def _state(self, path: str) -> _State | None:
        try:
            found = (self._root / path).stat()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise storage_failed("look at", str(self._root / path), e) from e
        return found.st_ino, found.st_mtime_ns, found.st_size


class _Kept(Generic[R, T]):
    """What was read of a file or folder, and what was made of it, while that has the same state."""

    def __init__(self, clock: Callable[[], float], read: Callable[[], R], made_of: Callable[[R], T]) -> None:
        self._clock = clock
        self._read = read
        self._made_of = made_of
        self._content: R | None = None
        self._value: T | None = None
        self._state: _State | None = None
        self._since_s = 0.0
        """When the state was seen first."""
        self._is_settled = False

    def get(self, state: _State | None) -> T:
        """The value; another object only if something else was read."""
        now = self._clock()
        if state != self._state:
            self._state, self._since_s, self._is_settled = state, now, False
        if self._value is None or not self._is_settled:
            content = self._read()
            self._is_settled = state is not None and now - self._since_s >= SETTLING_S
            if self._value is None or content != self._content:
                self._content, self._value = content, self._made_of(content)
        return self._value


def table_ends(root: Path, name: TopicName) -> dict[int, int]:
    """Segment -> the highest end of its tables, by their names alone: no file is looked at.

    Raises:
        StorageFailed: the directory refused.
    """
    folder = root / table_dir(name)
    highest: dict[str, str] = {}
    try:
        for each in os.listdir(folder):  # noqa: PTH208 - some 10,000 names, of which no paths are made
            segment, _, offsets = each.partition("-")
            end = offsets[_NAME_DIGITS + 1 : -len(TABLE_SUFFIX)]
            is_table = segment.isdecimal() and len(end) == _NAME_DIGITS and end.isdecimal()
            if is_table and each.endswith(TABLE_SUFFIX) and end > highest.get(segment, ""):
                highest[segment] = end
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise storage_failed("list", str(folder), e) from e
    return {int(segment): int(end) for segment, end in highest.items()}
