"""Rules that judge retention at each deletion: only tables, only those due by some clock, only from the front."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from seaweedmq.core.files.cover import uncovered
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import TopicName
from tests.doubles.memory_store import MemoryFile, MemorySegmentStore
from tests.sim.scenario import TopicPlan
from tests.support.history import History, Outcome, Polled, Violation

RULE = "retention"
US_PER_S = 1_000_000
TOLERANCE_US = 50_000
"""Microseconds by which times may differ: a clock may be set during a comparison."""


@dataclass(slots=True)
class Retained:
    """The remaining records of every segment: all from some offset on."""

    plans: Mapping[TopicName, TopicPlan]
    latest_us: Callable[[], int]
    judged_us: Callable[[int], int] = lambda stamp_us: stamp_us
    """Time at which a file with that date was written, as this rule counts it."""
    violations: list[Violation] = field(default_factory=list)
    _starts: dict[SegmentId, int] = field(default_factory=dict)
    _gone: dict[SegmentId, set[int]] = field(default_factory=dict)
    _deleted_bytes: dict[TopicName, int] = field(default_factory=dict)
    _known: dict[SegmentId, Segment] = field(default_factory=dict)
    """Every segment that ever existed."""
    _attempts: list[tuple[TopicName, int, int]] = field(default_factory=list)
    """Topic, partition and offset of manual deletions that may have taken effect."""
    _marks: dict[tuple[TopicName, int], int] = field(default_factory=dict)
    """Low watermark of certain manual deletions, by topic and partition."""

    def start(self, topic: TopicName, segment: int) -> int:
        return max(self._starts.get((topic, segment), 0), self._low(topic, segment))

    def starts(self, topic: TopicName) -> dict[int, int]:
        segments = {segment for name, segment in (*self._starts, *self._known) if name == topic}
        return {segment: start for segment in sorted(segments) if (start := self.start(topic, segment))}

    def gone(self, topic: TopicName) -> dict[int, set[int]]:
        """Return by segment the offsets whose tables were recorded as removed, or were deleted when no log file had
        them."""
        gone = {segment: set(offsets) for (name, segment), offsets in self._gone.items() if name == topic}
        for segment in [number for name, number in self._known if name == topic]:
            if low := self._low(topic, segment):
                gone.setdefault(segment, set()).update(range(low))
        return gone

    def deleting(self, topic: TopicName, partition: int, before: int) -> Callable[[], None]:
        """Note a manual deletion, which may take effect even if the call fails; return a function that revokes the
        note."""
        attempt = (topic, partition, before)
        self._attempts.append(attempt)
        return lambda: self._attempts.remove(attempt)

    def deleted(self, topic: TopicName, marks: Mapping[int, int]) -> None:
        for partition, mark in marks.items():
            self._marks[topic, partition] = max(mark, self._marks.get((topic, partition), 0))

    def learn(self, topics: Iterable[Mapping[int, Segment]]) -> None:
        for segments in topics:
            self._known.update((segment.key, segment) for segment in segments.values())

    def come_back(self, topic: TopicName, polled: Iterable[Polled]) -> Iterator[Violation]:
        """Judge a reader that began after the last deletion: it gets no manually deleted record."""
        for p in polled:
            if p.partition is not None and p.offset < self._marks.get((topic, p.partition), 0):
                place = f"{topic} partition {p.partition} offset {p.offset}"
                yield Violation("deleted", f"{p.reader} got {place}, which was deleted manually")

    def _low(self, topic: TopicName, segment: int) -> int:
        """Return the offset below which records of a segment may have been deleted manually."""
        known = self._known.get(SegmentId(topic, segment))
        here = (before for name, p, before in self._attempts if known and name == topic and p in known.slots)
        return max(here, default=0)

    def on_delete(self, store: MemorySegmentStore, file: SegmentFile, content: MemoryFile) -> None:
        """Judge a deletion of a file just now."""
        if file.kind is not FileKind.TABLE or file.end_offset is None:
            return  # readers of a log file's records notice if they are in no other file
        if file.topic.name in INTERNAL_TOPICS:
            return  # snapshots replace them, and queries of their content are judged elsewhere
        key = file.topic, file.segment
        if self._living_part_is_elsewhere(store, file):
            return
        if not self._is_due(store, file, content):
            self._tell(f"{file.path} was deleted before its time")
        below = [f.path for f in self._tables(store, file.topic) if f.segment == file.segment]
        below = [path for path in below if path < file.path]
        if below:
            self._tell(f"{file.path} was deleted before {below[0]}: that is a hole")
        self._starts[key] = max(self._starts.get(key, 0), file.end_offset)
        if not any(log.base_offset < file.end_offset for log in self._logs(store, key)):
            self._gone.setdefault(key, set()).update(range(file.base_offset, file.end_offset))
        self._deleted_bytes[file.topic] = self._deleted_bytes.get(file.topic, 0) + file.size_bytes

    def on_removed(self, store: MemorySegmentStore, topic: TopicName, segment: int, offset: int) -> None:
        """Judge a new record of a removal. The records below ``offset`` are removed for every reader from now on, even
        if the broker is killed before it deletes a file."""
        if topic.name in INTERNAL_TOPICS:
            return
        removed = [f for f in self._tables(store, topic) if f.segment == segment and (f.end_offset or 0) <= offset]
        for file in removed:
            is_kept = self._living_part_is_elsewhere(store, file)
            if not is_kept and not self._is_due(store, file, store.files[file.path]):
                self._tell(f"{file.path} was recorded as removed before its time")
            # The file may stay: the broker may be killed before it deletes it.
            self._gone.setdefault(SegmentId(topic, segment), set()).update(
                range(file.base_offset, file.end_offset or 0)
            )
        self._starts[SegmentId(topic, segment)] = max(self._starts.get(SegmentId(topic, segment), 0), offset)

    def _living_part_is_elsewhere(self, store: MemorySegmentStore, file: SegmentFile) -> bool:
        """Whether another table has all records of the file that were not deleted manually."""
        low, end = self._low(file.topic, file.segment), file.end_offset or 0
        if not file.base_offset < low < end:
            return False
        others = [f for f in self._tables(store, file.topic) if f.segment == file.segment]
        return not any(uncovered(others, low, end))

    def _is_due(self, store: MemorySegmentStore, file: SegmentFile, content: MemoryFile) -> bool:
        plan = self.plans.get(file.topic)
        if plan is None:
            return False
        if (file.end_offset or 0) <= self._low(file.topic, file.segment):
            return True
        if plan.retention_s is not None:
            # Records are at least as old as later ones, regardless of the clocks.
            behind = [f.modified_us for f in self._tables(store, file.topic) if f.segment == file.segment]
            due_us = min(map(self.judged_us, [content.modified_us, *behind])) + int(plan.retention_s * US_PER_S)
            if due_us <= self.latest_us() + TOLERANCE_US:
                return True
        if plan.retention_bytes is None:
            return False
        # Two brokers may both maintain the segment, and have listed its files before the other deleted some.
        others = sum(f.size_bytes for f in self._tables(store, file.topic) if f.path != file.path)
        return others + self._deleted_bytes.get(file.topic, 0) + file.size_bytes > plan.retention_bytes

    def _tables(self, store: MemorySegmentStore, topic: TopicName) -> list[SegmentFile]:
        return [f for f in listed(store) if f.topic == topic and f.kind is FileKind.TABLE]

    def _logs(self, store: MemorySegmentStore, key: SegmentId) -> list[SegmentFile]:
        return [f for f in listed(store) if (f.topic, f.segment) == key and f.kind is FileKind.LOG]

    def _tell(self, sentence: str) -> None:
        self.violations.append(Violation(RULE, sentence))


def listed(store: MemorySegmentStore) -> list[SegmentFile]:
    """Return all files of segments, despite current storage faults."""
    described = [store.described(path, file) for path, file in store.files.items()]
    return [f for f in described if f is not None]


def without(history: History, starts: Mapping[int, int]) -> History:
    """Return the history without promises about records that retention may have deleted."""
    if not starts:
        return history
    sent = [
        replace(s, outcome=Outcome.UNKNOWN)
        if s.outcome is Outcome.ACKED and (s.segment is None or (s.offset or 0) < starts.get(s.segment, 0))
        else s
        for s in history.sent
    ]
    return History(sent, history.polled)
