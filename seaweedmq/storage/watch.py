"""Watch of a topic's files for a reader that waits for more records; it reads only changed files. Blocking.

A poll without changes costs three calls to the file system, for any number of files. An unchanged modification time
does not exclude a change within the same tick of the storage's clock. So for ``SETTLING_S`` after a modification time
was first seen, the folder is listed on every poll. Thus neither a coarse clock nor a wrong one hides a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, table_dir
from seaweedmq.codec.state.documents import lineage_from_document, topic_from_document
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.place import Place, State
from seaweedmq.storage.snapshot import read_document

SETTLING_S: Final = 3.0
"""Seconds that exceed the resolution of modification times on any file system in use."""

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
        self._last: TopicState | None = None

    def poll(self) -> TopicState:
        """Return the topic's current state, the same object if nothing changed; tables are read last."""
        topic = self._topic.get(self._state(document_path(self._name, TOPIC_DOCUMENT)))
        segments = self._segments.get(self._state(document_path(self._name, LINEAGE_DOCUMENT)))
        ends = self._table_ends.get(self._state(table_dir(self._name)))
        last = self._last
        if last is None or last.topic is not topic or last.segments is not segments or last.table_ends is not ends:
            self._last = last = TopicState(topic, segments, ends)
        return last

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


def table_ends(place: Place, name: TopicName) -> dict[int, int]:
    """Return segment -> highest end offset of its tables, from file names only."""
    folder = table_dir(name)
    highest: dict[str, str] = {}
    try:
        for each in place.listdir(folder):
            segment, _, offsets = each.partition("-")
            end = offsets[_NAME_DIGITS + 1 : 2 * _NAME_DIGITS + 1]
            is_table = segment.isdecimal() and len(end) == _NAME_DIGITS and end.isdecimal()
            if is_table and _is_rest(offsets[2 * _NAME_DIGITS + 1 :]) and end > highest.get(segment, ""):
                highest[segment] = end
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise storage_failed("list", place.where(folder), e) from e
    return {int(segment): int(end) for segment, end in highest.items()}


def _is_rest(rest: str) -> bool:
    """Whether a table's name may end so after its offsets: with a date on an object store."""
    return rest == TABLE_SUFFIX or (
        rest.endswith(TABLE_SUFFIX) and rest[:1] == "-" and rest[1 : -len(TABLE_SUFFIX)].isdecimal()
    )
