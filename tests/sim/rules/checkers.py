"""Invariants of the cluster as named classes, outside the code under test.

``ClusterHistory`` follows etcd and passes every revision to the checkers; ``tests.support.history`` judges the
observations of users. A checker returns sentences; an empty list means no violation.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_metadata import committed_from_json, group_from_json
from seaweedmq.codec.state.metadata import broker_from_json, segment_from_json, topic_from_json
from seaweedmq.model.group_record import GroupRecord
from seaweedmq.model.group_record import SegmentOwner as GroupOwner
from seaweedmq.model.ring import covers_ring
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Changes, Entry, Snapshot
from tests.support.history import History, Outcome, Sent, Violation, short


@dataclass(slots=True)
class ClusterState:
    """The content of etcd at one revision, as model objects."""

    revision: int = 0
    leader: Entry | None = None
    brokers: dict[str, Entry] = field(default_factory=dict)
    """Registrations by broker id."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Addresses by broker id, of all brokers that ever registered."""
    topics: dict[TopicName, Topic] = field(default_factory=dict)
    segments: dict[TopicName, dict[int, Segment]] = field(default_factory=dict)
    groups: dict[tuple[TopicName, str], GroupRecord] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    """Committed offsets of groups, by key."""

    def apply(self, changes: Changes) -> None:
        self.revision = changes.revision
        for key in changes.deletes:
            self._delete(key)
        for entry in changes.puts:
            self._put(entry)

    def copy(self) -> "ClusterState":
        """Return a copy that ``apply`` does not change."""
        return replace(
            self,
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            segments={name: dict(segments) for name, segments in self.segments.items()},
            groups=dict(self.groups),
            committed=dict(self.committed),
        )

    def brokers_at(self, address: str) -> set[str]:
        """Return the ids of all brokers that ever registered with this address."""
        return {broker for broker, at in self.addresses.items() if at == address}

    def owners(self, topic: TopicName, group: str) -> Mapping[int, GroupOwner]:
        record = self.groups.get((topic, group))
        return {} if record is None else record.owners

    def _put(self, entry: Entry) -> None:
        if entry.key == keys.LEADER:
            self.leader = entry
        elif entry.key.startswith(keys.BROKERS):
            broker = keys.parse_broker_key(entry.key)
            self.brokers[broker] = entry
            self.addresses[broker] = broker_from_json(entry.value).address
        elif entry.key.startswith(keys.TOPICS):
            self.topics[keys.parse_topic_key(entry.key)] = topic_from_json(entry.value)
        elif entry.key.startswith(keys.SEGMENTS):
            segment = segment_from_json(entry.value)
            self.segments.setdefault(segment.topic, {})[segment.id] = segment
        elif entry.key.startswith(keys.GROUPS):
            self.groups[keys.parse_group_key(entry.key)] = group_from_json(entry.value)
        elif entry.key.startswith(keys.OFFSETS):
            self.committed[entry.key] = committed_from_json(entry.value).offset

    def _delete(self, key: str) -> None:
        if key == keys.LEADER:
            self.leader = None
        elif key.startswith(keys.BROKERS):
            del self.brokers[keys.parse_broker_key(key)]
        elif key.startswith(keys.TOPICS):
            del self.topics[keys.parse_topic_key(key)]
        elif key.startswith(keys.SEGMENTS):
            name, segment = keys.parse_segment_key(key)
            del self.segments[name][segment]
        elif key.startswith(keys.GROUPS):
            del self.groups[keys.parse_group_key(key)]
        elif key.startswith(keys.OFFSETS):
            del self.committed[key]


class Checker(Protocol):
    """A judge of each revision of the metadata against the previous one."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]: ...


class RingIsPartitioned:
    """Open segments of a topic partition the ring exactly, at every revision."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        for name, topic in now.topics.items():
            ranges = [s.slots for s in now.segments.get(name, {}).values() if s.is_open]
            if not covers_ring(ranges, topic.ring):
                yield f"{name}: open segments cover {sorted(ranges)}"


class SegmentsNeverChange:
    """Segment ids and epochs never fall, owners, range, predecessors and start never change, and a seal is final
    (except that producers' sequences are dropped)."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        for name, segments in now.segments.items():
            earlier = before.segments.get(name, {})
            for segment in segments.values():
                old = earlier.get(segment.id)
                if old is segment:
                    continue
                if old is None:
                    topic = before.topics.get(name)
                    if topic is not None and segment.id < topic.next_segment:
                        yield f"{segment} was created though next_segment was {topic.next_segment}"
                    continue
                for what in ("slots", "replicas", "predecessors", "start_offset"):
                    if getattr(old, what) != getattr(segment, what):
                        yield f"{segment}: {what} changed from {getattr(old, what)} to {getattr(segment, what)}"
                if segment.epoch < old.epoch:
                    yield f"{segment}: epoch fell from {old.epoch} to {segment.epoch}"
                if not old.is_open and segment not in (old, replace(old, sequences=(), sequences_complete=False)):
                    yield f"{segment} was sealed at {old.end_offset} and then changed"


class LineageRises:
    """A successor begins where its longest predecessor ended; both name each other."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        for segments in now.segments.values():
            for segment in segments.values():
                predecessors = [segments[p] for p in segment.predecessors if p in segments]
                ends = [p.end_offset for p in predecessors if p.end_offset is not None]
                if len(ends) != len(predecessors):
                    yield f"{segment} exists before its predecessors are sealed"
                longest = max(ends, default=segment.start_offset)
                is_pruned = len(predecessors) < len(segment.predecessors)  # perhaps the longest one
                if segment.start_offset != longest and not (is_pruned and segment.start_offset > longest):
                    yield f"{segment} starts at {segment.start_offset}, its predecessors end at {ends}"
                for predecessor in predecessors:
                    if segment.id not in predecessor.successors:
                        yield f"{predecessor} does not name {segment} as successor"


class LeaderLockIsExclusive:
    """The lock changes hands only after a release: overwriting it would keep its creation revision."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        if before.leader is not None and now.leader is not None and before.leader is not now.leader:
            same_lock = before.leader.create_revision == now.leader.create_revision
            if same_lock and before.leader.value != now.leader.value:
                yield f"the leader's lock went from {before.leader.value!r} to {now.leader.value!r} without a release"


class BrokersHaveLeases:
    """Every broker registers under a lease: only the end of a lease is always noticed."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        for entry in changes.puts:
            if entry.key.startswith(keys.BROKERS) and not entry.lease:
                yield f"{entry.key} was written without a lease"


class GroupOffsetsNeverFall:
    """A group's committed offset never falls while the segment exists: no test resets a group here."""

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        for key, offset in before.committed.items():
            name, _, segment = keys.parse_offset_key(key)
            if segment in now.segments.get(name, {}) and now.committed.get(key, -1) < offset:
                yield f"{key} fell from {offset} to {now.committed.get(key)}"


class Recovered:
    """A recovered etcd has every lost topic, its sealed segments unchanged, and no position before an acknowledged one.

    Not judged: topics and segments whose creation or seal the storage had no record of."""

    def __init__(self, documented: Set[SegmentId], acknowledged: Mapping[str, int]) -> None:
        """Judge one recovery.

        Args:
            documented: Segments that documents in the storage listed as sealed when etcd was lost.
            acknowledged: Key of a group's offset -> the offset of its last acknowledged commit.
        """
        self._documented = documented
        self._acknowledged = acknowledged

    def check(self, before: ClusterState, now: ClusterState, changes: Changes) -> Iterable[str]:
        for name, topic in before.topics.items():
            found = now.topics.get(name)
            if found is None or found.uid != topic.uid:
                yield f"{name} of uid {topic.uid} is {'missing' if found is None else f'of uid {found.uid}'}"
                continue
            if found.partitions != topic.partitions or found.retention_s != topic.retention_s:
                yield f"{name}: settings differ: {found} instead of {topic}"
            yield from self._segments(before.segments.get(name, {}), now.segments.get(name, {}))
        for key, offset in before.committed.items():
            name, _, number = keys.parse_offset_key(key)
            least = min(offset, self._acknowledged.get(key, -1))
            if number in now.segments.get(name, {}) and now.committed.get(key, -1) < least:
                yield f"{key} fell from {least} to {now.committed.get(key)}"

    def _segments(self, before: Mapping[int, Segment], now: Mapping[int, Segment]) -> Iterator[str]:
        for number, segment in before.items():
            found = now.get(number)
            if found is None:
                continue  # it may have had no records; otherwise its readers miss them
            for what in ("slots", "predecessors", "start_offset"):
                if getattr(found, what) != getattr(segment, what):
                    yield f"{segment}: {what} is {getattr(found, what)}, it was {getattr(segment, what)}"
            may_differ = segment.is_open or (found.is_open and segment.key not in self._documented)
            if not may_differ and found.end_offset != segment.end_offset:
                yield f"{segment} ends at {found.end_offset}, it was sealed at {segment.end_offset}"


class ClusterHistory:
    """The sequence of etcd revisions, applied one by one, and the violations that checkers find."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.violations: list[Violation] = []
        self.leaders = 0
        self.seals = 0
        self.lost: ClusterState | None = None
        """State when etcd was lost or restored, until it is recovered: no revision is judged meanwhile."""
        self.recoveries = 0
        """Number of recoveries of etcd from the storage."""
        self.acknowledged: dict[str, int] = {}
        """Key of a group's offset -> the offset of its last acknowledged commit."""
        self._documented: frozenset[SegmentId] = frozenset()
        """Segments that documents in the storage listed as sealed at that moment."""
        self.on_sealed: Callable[[Segment, int], None] = lambda segment, epoch_before: None
        self.on_group: Callable[[GroupRecord], None] = lambda record: None
        self._checkers: tuple[Checker, ...] = (
            RingIsPartitioned(), SegmentsNeverChange(), LineageRises(), LeaderLockIsExclusive(), BrokersHaveLeases(),
            GroupOffsetsNeverFall(),
        )  # fmt: skip

    @property
    def last_known(self) -> ClusterState:
        """Return the state of the cluster, which etcd may have lost."""
        return self.lost or self.state

    def on_lost(self, left: Snapshot, documented: Iterable[SegmentId]) -> None:
        """Note that etcd was replaced by another one with this content. ``documented``: see :class:`Recovered`."""
        if self.lost is None:
            self.lost, self._documented = self.state, frozenset(documented)
        self.state = ClusterState(addresses=dict(self.state.addresses))
        self.state.apply(Changes(left.revision, left.entries, ()))

    def on_recovered(self) -> None:
        assert self.lost is not None
        before, self.lost = self.lost, None
        self.recoveries += 1
        for sentence in Recovered(self._documented, self.acknowledged).check(
            before, self.state, Changes(self.state.revision, (), ())
        ):
            self.violations.append(Violation(Recovered.__name__, sentence))

    def on_change(self, changes: Changes) -> None:
        if self.lost is not None:
            self.state.apply(changes)
            return
        before = self.state.copy()
        self.state.apply(changes)
        self.leaders += self.state.leader is not None and before.leader is None
        for name, segments in self.state.segments.items():
            for number, segment in segments.items():
                old = before.segments.get(name, {}).get(number)
                if old is not None and old.is_open and not segment.is_open:
                    self.seals += 1
                    self.on_sealed(segment, old.epoch)
        for group, record in self.state.groups.items():
            if before.groups.get(group) is not record:
                self.on_group(record)
        for checker in self._checkers:
            for sentence in checker.check(before, self.state, changes):
                self.violations.append(Violation(type(checker).__name__, f"revision {changes.revision}: {sentence}"))


def content_fits_lineage(
    history: History,
    segments: Iterable[Segment],
    reader: str,
    starts: Mapping[int, int],
    pruned: Container[int],
    sealed: Container[int],
) -> list[Violation]:
    """Check that a complete reader got, of every segment, exactly the offsets from its start to its sealed end.

    Args:
        starts: By segment the offset up to which retention may have deleted a beginning.
        pruned: Segments that no longer exist; retention has deleted all their records.
        sealed: Segments that were sealed when the reader began; others may have grown since.
    """
    violations = []
    got: dict[int, list[int]] = {}
    for p in history.polled_by(reader):
        got.setdefault(p.segment, []).append(p.offset)
    for segment in segments:
        offsets = got.pop(segment.id, [])
        start = starts.get(segment.id, 0)
        if not offsets and segment.end_offset is not None and segment.end_offset <= start:
            continue
        first, end = (offsets[0], offsets[-1] + 1) if offsets else (segment.start_offset, segment.start_offset)
        if not segment.start_offset <= first <= max(segment.start_offset, start):
            violations.append(Violation("lineage", f"{segment} starts at {segment.start_offset}, {reader} got {first}"))
        goes_on = segment.end_offset is not None and end < segment.end_offset and segment.id not in sealed
        if segment.end_offset is not None and end != segment.end_offset and not goes_on:
            violations.append(Violation("lineage", f"{segment} ends at {segment.end_offset}, {reader} got to {end}"))
    for number, offsets in sorted(got.items()):
        if number not in pruned:
            violations.append(Violation("lineage", f"{reader} got records of unknown segment {number}"))
        elif offsets[-1] >= starts.get(number, 0):
            violations.append(Violation("lineage", f"segment {number} is pruned, {reader} got offset {offsets[-1]}"))
    return violations


def skipped(history: History) -> Iterator[Violation]:
    """Yield acknowledged records that a reader from the earliest record skipped: it got a later one of the same key.

    Unlike the rules for complete readers, this holds at any time, so that readers that stopped early are judged as
    well."""
    partition_of: dict[int | None, int | None] = {
        p.segment: p.partition for p in history.polled
    }  # a key is in order within each of its partitions
    acked: dict[tuple[bytes, int | None], list[Sent]] = {}
    sequence_of = {s.value: s.sequence for s in history.sent}
    for s in history.sent:
        if s.outcome is Outcome.ACKED:
            acked.setdefault((s.key, partition_of.get(s.segment)), []).append(s)
    got: dict[tuple[str, bytes, int | None], set[int]] = {}
    for p in history.polled:
        if p.value in sequence_of:
            got.setdefault((p.reader, p.key, p.partition), set()).add(sequence_of[p.value])
    for (reader, key, partition), sequences in got.items():
        last = max(sequences)
        for s in acked.get((key, partition), ()):
            if s.sequence < last and s.sequence not in sequences:
                place = f"acknowledged at {s.segment}:{s.offset}"
                yield Violation("skipped", f"{reader} went past {short(s.value)} of {key!r}, {place}")
