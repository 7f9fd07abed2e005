"""Watch of a topic's files for a reader that waits for more records; it reads only changed files. Blocking.

A poll without changes costs three calls to a file system, for any number of files. An unchanged modification time
does not exclude a change within the same tick of the storage's clock. So for ``SETTLING_S`` after a modification time
was first seen, the folder is listed on every poll. Thus neither a coarse clock nor a wrong one hides a file.

On an object store a listing costs twelve times a read. There the tables are those of the Delta log, whose next version
is read on every poll, and a poll without changes costs three reads of $0.40 a million.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, table_dir
from seaweedmq.codec.state.documents import lineage_from_document, topic_from_document
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.place import Place, State
from seaweedmq.storage.snapshot import read_document
from seaweedmq.storage.tables.delta.log_state import read_state
from seaweedmq.storage.tables.delta.open_log import open_log

SETTLING_S: Final = 3.0
"""Seconds that exceed the resolution of modification times on any file system in use."""

RELOAD_S: Final = 60.0

R = TypeVar("R")
T = TypeVar("T")
_NAME_DIGITS = 20
TABLE_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's state in the storage."""

    topic: Topic
    segments: tuple[Segment, ...]
    """Segments ordered by id."""
    table_ends: Mapping[int, int]
    """Segment with tables -> the highest offset below which all records are in tables.

    A table of an open segment holds only committed records (``broker.upkeep.conversion``).
    """


class TopicWatch:
    """A watch of one topic for one reader."""

    def __init__(self, place: Place, name: TopicName, clock: Callable[[], float]) -> None:
        """Create a watch; ``clock`` returns monotonic seconds."""
        self._place = place
        self._name = name
        self._topic = _Kept(clock, lambda: read_document(place, name, TOPIC_DOCUMENT), topic_from_document)
        self._segments = _Kept(
            clock,
            lambda: read_document(place, name, LINEAGE_DOCUMENT),
            lambda content: lineage_from_document(content)[1],
        )
        self._table_ends = _Kept(clock, lambda: table_ends(place, name), dict[int, int])
        self._logged = LoggedEnds(place, name, clock) if isinstance(place, ObjectPlace) else None
        self._last: TopicState | None = None

    def poll(self) -> TopicState:
        """Return the topic's current state, the same object if nothing changed; tables are read last."""
        topic = self._topic.get(self._state(document_path(self._name, TOPIC_DOCUMENT)))
        segments = self._segments.get(self._state(document_path(self._name, LINEAGE_DOCUMENT)))
        ends = self._ends()
        last = self._last
        if last is None or last.topic is not topic or last.segments is not segments or last.table_ends is not ends:
            self._last = last = TopicState(topic, segments, ends)
        return last

    def _ends(self) -> Mapping[int, int]:
        if self._logged is None:
            return self._table_ends.get(self._state(table_dir(self._name)))
        with failing("read the Delta log of", self._place.where(table_dir(self._name))):
            return self._logged.poll()

    def _state(self, path: str) -> State | None:
        with failing("get the state of", self._place.where(path)):
            return self._place.state(path)


class _Kept(Generic[R, T]):
    """The cached content of a file or folder and the value parsed from it, valid while its state is unchanged."""

    def __init__(self, clock: Callable[[], float], read: Callable[[], R], made_of: Callable[[R], T]) -> None:
        self._clock = clock
        self._read = read
        self._made_of = made_of
        self._content: R | None = None
        self._value: T | None = None
        self._state: State | None = None
        self._since_s = 0.0
        """Clock reading when the state was first seen, in seconds."""
        self._is_settled = False

    def get(self, state: State | None) -> T:
        """Return the value, the same object unless the content changed."""
        now = self._clock()
        if state != self._state:
            self._state, self._since_s, self._is_settled = state, now, False
        if self._value is None or not self._is_settled:
            content = self._read()
            self._is_settled = state is not None and now - self._since_s >= SETTLING_S
            if self._value is None or content != self._content:
                self._content, self._value = content, self._made_of(content)
        return self._value


class LoggedEnds:
    """The highest end offset of each segment's tables, by the Delta log of an object store."""

    def __init__(self, place: ObjectPlace, name: TopicName, clock: Callable[[], float]) -> None:
        self._place = place
        self._name = name
        self._clock = clock
        self._where = ""
        """Location of the log, which differs once the topic is recreated."""
        self._version = -1
        self._ends: Mapping[int, int] = {}
        self._loaded_s = -math.inf

    def poll(self) -> Mapping[int, int]:
        """Return the ends, the same object unless a table reaches further.

        Once in ``RELOAD_S`` the whole log is read, in case it was rebuilt, and if it is damaged the names of the
        tables count.
        """
        try:
            with open_log(self._place, self._name) as log:
                if log.where != self._where:
                    self._where, self._ends, self._loaded_s = log.where, {}, -math.inf
                if self._clock() - self._loaded_s >= RELOAD_S:
                    state = read_state(log, log.listing())
                    self._version, self._loaded_s = state.version, self._clock()
                    self._raise(state.active)
                while (found := log.commit(self._version + 1)) is not None:
                    self._version += 1
                    self._raise(add.path for add in found[0].adds)
        except (Corrupt, Unsupported):
            self._raise_to(table_ends(self._place, self._name))
        except FileNotFoundError:
            self._where, self._ends = "", {}  # the topic was deleted
        return self._ends

    def _raise(self, paths: Iterable[str]) -> None:
        ends: dict[int, int] = {}
        for path in paths:
            file = self._place.parse_file(f"{table_dir(self._name)}/{path}")
            if file is not None:
                ends[file.segment] = max(ends.get(file.segment, 0), file.end_offset or 0)
        self._raise_to(ends)

    def _raise_to(self, ends: Mapping[int, int]) -> None:
        raised = {segment: end for segment, end in ends.items() if end > self._ends.get(segment, 0)}
        if raised:
            self._ends = {**self._ends, **raised}


def table_ends(place: Place, name: TopicName) -> dict[int, int]:
    """Return segment -> highest end offset of its tables, from file names only."""
    folder = table_dir(name)
    highest: dict[str, str] = {}
    try:
        for each in place.listdir(folder):
            segment, _, offsets = each.partition("-")
            end = offsets[_NAME_DIGITS + 1 : 2 * _NAME_DIGITS + 1]
            is_table = segment.isdecimal() and len(end) == _NAME_DIGITS and end.isdecimal()
            rest = offsets[2 * _NAME_DIGITS + 1 :]
            if is_table and (rest == TABLE_SUFFIX or _is_dated(rest)) and end > highest.get(segment, ""):
                highest[segment] = end
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise storage_failed("list", place.where(folder), e) from e
    return {int(segment): int(end) for segment, end in highest.items()}


def _is_dated(rest: str) -> bool:
    """Whether a table's name ends with a date after its offsets, as on an object store."""
    return rest.endswith(TABLE_SUFFIX) and rest[0] == "-" and rest[1 : -len(TABLE_SUFFIX)].isdecimal()
