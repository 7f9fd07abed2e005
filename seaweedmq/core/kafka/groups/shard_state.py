"""State and decisions of a shard: all groups of one partition of ``__consumer_offsets``, and their offsets.

The shell (``shards.shard``) loads the content of the partition, begins, and then passes one event after another:

| step | purpose |
|---|---|
| ``load(record)`` | every record of the partition in order, also tombstones; later ones replace earlier ones |
| ``begin(now, at_ms)`` | everything is loaded: sessions begin |
| ``handle(event, now, at_ms)`` | append ``records``, send ``replies`` when all of it is committed |
| ``wake_at`` | time of the next ``Tick`` |
| ``snapshot()`` | the records that restore this state, to be appended periodically |

The state is ahead of the committed records. If an append fails, the shell drops all of it: the next coordinator loads
the committed records, and no client has received anything else. The shell therefore returns the results of ``groups``,
``describe`` and ``offsets`` only when every earlier outcome is committed.

A group is created when a member joins, or a client commits without a member id. It is removed when it is deleted, or
when it has no member and no offset; at once, if no record of it was ever written.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping

from seaweedmq.core.clock_doubt import WallWatch, doubt_s
from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.core.kafka.groups.classic_group import ClassicGroup
from seaweedmq.core.kafka.groups.classic_members import protocols_bytes
from seaweedmq.core.kafka.groups.committed_offsets import CommittedOffsets, deletion_error
from seaweedmq.core.kafka.groups.deadlines import Deadlines
from seaweedmq.core.kafka.groups.state_memory import StateMemory
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import (
    DescribedGroup,
    GroupMetadataRecord,
    GroupState,
    ListedGroup,
    OffsetValue,
    ShardRecord,
)

ENTRY_BYTES = 3_000
"""Memory of a group besides its members and offsets."""
MEMBER_BYTES = 800
"""Memory of a member besides its part of the group's record."""


class _Entry:
    """A group and its offsets."""

    __slots__ = ("committed", "counted_bytes", "group")

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group
        self.committed = CommittedOffsets(group.name)
        self.counted_bytes = 0
        """Bytes that the shard counts for it."""

    @property
    def size_bytes(self) -> int:
        return (
            _empty_bytes(self.group.name)
            + self.group.size_bytes
            + MEMBER_BYTES * self.group.members
            + self.committed.size_bytes
        )

    @property
    def is_over(self) -> bool:
        """Whether the group can be removed without a trace."""
        return self.group.is_idle and self.group.written is None and not len(self.committed)


def _empty_bytes(group: str) -> int:
    """Return the memory of a group without members and offsets, whose name may have thousands of characters."""
    return ENTRY_BYTES + len(group)


class GroupShard:
    """The coordinator's state of one shard; ``now`` is in seconds on a steady clock, ``at_ms`` the wall clock."""

    def __init__(self, limits: events.CoordinatorLimits, memory: StateMemory) -> None:
        """Create an empty shard. ``memory`` is the account of all shards of the broker."""
        self._limits = limits
        self._memory = memory
        self._entries: dict[str, _Entry] = {}
        self._deadlines = Deadlines()
        self._clock = WallWatch()
        self._check_at: float | None = None
        self._unchecked: deque[str] = deque()
        """Groups whose offsets the current check has not reached yet."""
        self._records: list[ShardRecord] = []
        self._replies: list[events.Reply] = []
        self.size_bytes = 0
        """Counted bytes of all groups."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def wake_at(self) -> float | None:
        """The time of the next ``Tick``, in steady seconds; None: no timer is set."""
        first_at, check_at = self._deadlines.first_at, self._check_at
        if first_at is None or check_at is None:
            return check_at if first_at is None else first_at
        return min(first_at, check_at)

    def load(self, record: ShardRecord) -> None:
        """Apply a record of the partition."""
        entry = self._entry(record.group)
        if isinstance(record, GroupMetadataRecord):
            entry.group = ClassicGroup(record.group, self._limits, 0.0, record.value)
        else:
            entry.committed.set((record.topic, record.partition), record.value)
        self._settle(entry)

    def begin(self, now: float, at_ms: int) -> None:
        """Begin the sessions, after everything is loaded."""
        self._clock.note(at_ms * 1_000, now)
        for entry in self._entries.values():
            self._take(entry, entry.group.take_over(now, at_ms))
        self._check_at = now + self._limits.offsets_check_ms / 1_000

    def snapshot(self) -> Iterator[ShardRecord]:
        """Yield the records that restore this state, which the caller must not change meanwhile."""
        for name, entry in self._entries.items():
            if entry.group.written is not None:
                yield GroupMetadataRecord(name, entry.group.written)
            yield from entry.committed.records()

    def close(self) -> None:
        """Release the memory: this broker no longer coordinates these groups."""
        self._count(-self.size_bytes)
        self._entries.clear()

    def groups(self) -> tuple[ListedGroup, ...]:
        """Return all groups, as in ListGroups."""
        return tuple(entry.group.listed() for entry in self._entries.values())

    def describe(self, group: str) -> DescribedGroup:
        """Return the description of a group; ``DEAD`` if it does not exist."""
        entry = self._entries.get(group)
        return entry.group.described() if entry is not None else DescribedGroup(group=group, state=GroupState.DEAD)

    def offsets(
        self, group: str, partitions: Collection[events.Partition] | None = None
    ) -> Mapping[events.Partition, OffsetValue]:
        """Return the committed offsets of these partitions, or (None) of all."""
        entry = self._entries.get(group)
        return entry.committed.select(partitions) if entry is not None else {}

    def topic_ids(self) -> set[tuple[str, bytes]]:
        """Return the names and ids of topics with committed offsets; one name may have several ids."""
        return {known for entry in self._entries.values() for known in entry.committed.topic_ids()}

    def handle(self, event: events.ShardEvent, now: float, at_ms: int) -> events.ShardOutcome:
        """Handle one event and return its records and replies."""
        self._clock.note(at_ms * 1_000, now)
        match event:
            case events.Join() | events.Sync() | events.Heartbeat() | events.Leave():
                self._handle_member(event, now, at_ms)
            case events.CommitOffsets():
                self._replies.append(events.CommitReply(event.token, self._commit(event, now, at_ms)))
            case events.DeleteOffsets():
                self._delete_offsets(event)
            case events.RemoveGroup(token, group):
                self._replies.append(events.DeleteGroupReply(token, self._delete_group(group)))
            case events.TopicsDeleted(topics):
                for entry in list(self._entries.values()):
                    self._records += entry.committed.drop_topics(topics)
                    self._settle(entry)
            case events.Tick():
                self._pass_time(now, at_ms)
        records, replies = tuple(self._records), tuple(self._replies)
        self._records, self._replies = [], []
        if isinstance(event, events.Heartbeat):  # it changes nothing that must be committed first
            return events.ShardOutcome(records=records, prompt=replies)
        return events.ShardOutcome(records=records, replies=replies)

    def _handle_member(
        self, event: events.Join | events.Sync | events.Heartbeat | events.Leave, now: float, at_ms: int
    ) -> None:
        error = self._group_error(event)
        if error is not Code.NONE:
            self._replies.append(_error_reply(event, error))
            return
        entry = self._entry(event.group)
        self._take(entry, entry.group.handle(event, now, at_ms))
        self._settle(entry)

    def _group_error(self, event: events.Join | events.Sync | events.Heartbeat | events.Leave) -> Code:
        if not event.group or self._is_too_long(event.group):
            return Code.INVALID_GROUP_ID
        entry = self._entries.get(event.group)
        if entry is None and not (isinstance(event, events.Join) and not event.member):
            return Code.UNKNOWN_MEMBER_ID
        more_bytes = _growth_bytes(event, entry.group if entry is not None else None)
        return Code.NONE if self._has_room(event.group, more_bytes) else Code.POLICY_VIOLATION

    def _commit(self, commit: events.CommitOffsets, now: float, at_ms: int) -> tuple[Code, ...]:
        error = self._commit_error(commit)
        if error is not Code.NONE:
            return (error,) * len(commit.offsets)
        entry = self._entry(commit.group)
        self._take(entry, entry.group.touch(commit.member, now))
        uncounted_bytes = entry.size_bytes - entry.counted_bytes  # a new group is counted below
        errors, records = entry.committed.commit(
            commit, now, at_ms, self._limits, lambda more_bytes: self._memory.has_room(uncounted_bytes + more_bytes)
        )
        self._records += records
        self._settle(entry)
        return errors

    def _commit_error(self, commit: events.CommitOffsets) -> Code:
        if self._is_too_long(commit.group):
            return Code.INVALID_GROUP_ID
        entry = self._entries.get(commit.group)
        if entry is not None:
            return entry.group.commit_error(commit)
        if commit.generation >= 0:
            return Code.GROUP_ID_NOT_FOUND if commit.is_v9 else Code.ILLEGAL_GENERATION
        return Code.NONE if self._has_room(commit.group, 0) else Code.POLICY_VIOLATION

    def _delete_offsets(self, delete: events.DeleteOffsets) -> None:
        entry = self._entries.get(delete.group)
        error = Code.GROUP_ID_NOT_FOUND if entry is None else deletion_error(entry.group)
        if entry is None or error is not Code.NONE:
            self._replies.append(events.DeleteOffsetsReply(delete.token, error))
            return
        errors, records = entry.committed.delete(delete, entry.group)
        self._records += records
        self._replies.append(events.DeleteOffsetsReply(delete.token, errors=errors))
        self._settle(entry)

    def _delete_group(self, group: str) -> Code:
        entry = self._entries.get(group)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return Code.NON_EMPTY_GROUP
        self._forget(entry)
        return Code.NONE

    def _forget(self, entry: _Entry) -> None:
        self._records += entry.committed.drop_all()
        if entry.group.written is not None:
            self._records.append(GroupMetadataRecord(entry.group.name, None))
        self._take(entry, entry.group.die())
        self._remove(entry)

    def _pass_time(self, now: float, at_ms: int) -> None:
        for group, timer, member in self._deadlines.pop_due(now):
            entry = self._entries.get(group)
            if entry is not None:
                self._take(entry, entry.group.handle(events.TimerFired(timer, member), now, at_ms))
                self._settle(entry)
        if self._check_at is not None and self._check_at <= now:
            self._check_offsets(now)

    def _check_offsets(self, now: float) -> None:
        retention_ms = self._limits.offsets_retention_ms
        confirmed_ms = self._clock.confirmed_us(now, doubt_s(retention_ms / 1_000)) // 1_000
        if not self._unchecked:
            self._unchecked.extend(self._entries)
        checked = 0
        while self._unchecked and checked < self._limits.offsets_checked_max:
            entry = self._entries.get(self._unchecked.popleft())
            if entry is None:
                continue
            checked += 1 + len(entry.committed)
            self._records += entry.committed.expire(entry.group, now, confirmed_ms, retention_ms)
            if entry.group.is_idle and not len(entry.committed):
                self._forget(entry)
            else:
                self._settle(entry)
        pause_ms = self._limits.offsets_check_pause_ms if self._unchecked else self._limits.offsets_check_ms
        self._check_at = now + pause_ms / 1_000

    def _entry(self, group: str) -> _Entry:
        """Return the entry of a group, created if missing. ``_settle`` must follow."""
        entry = self._entries.get(group)
        if entry is None:
            entry = self._entries[group] = _Entry(ClassicGroup(group, self._limits, 0.0))
        return entry

    def _take(self, entry: _Entry, outcome: events.GroupOutcome) -> None:
        name = entry.group.name
        if outcome.value is not None:
            self._records.append(GroupMetadataRecord(name, outcome.value))
        self._replies += outcome.replies
        for (timer, member), at in outcome.timers.items():
            self._deadlines.set((name, timer, member), at)

    def _settle(self, entry: _Entry) -> None:
        """Update the counted bytes of a changed entry, or remove it."""
        if entry.is_over:
            self._remove(entry)
        else:
            size_bytes = entry.size_bytes
            self._count(size_bytes - entry.counted_bytes)
            entry.counted_bytes = size_bytes

    def _remove(self, entry: _Entry) -> None:
        del self._entries[entry.group.name]
        self._count(-entry.counted_bytes)

    def _count(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        self._memory.count(more_bytes)

    def _has_room(self, group: str, more_bytes: int) -> bool:
        if group not in self._entries:
            if len(self._entries) >= self._limits.groups_max:
                return False
            more_bytes += _empty_bytes(group)
        return more_bytes <= 0 or self._memory.has_room(more_bytes)

    def _is_too_long(self, group: str) -> bool:
        return len(group.encode()) > self._limits.group_id_bytes_max


def _error_reply(event: events.Join | events.Sync | events.Heartbeat | events.Leave, error: Code) -> events.Reply:
    """Return the error as the reply to this request."""
    match event:
        case events.Join():
            return events.JoinReply(token=event.token, member=event.member, error=error)
        case events.Sync():
            return events.SyncReply(token=event.token, error=error)
        case events.Heartbeat():
            return events.HeartbeatReply(event.token, error)
        case events.Leave():
            if error is Code.UNKNOWN_MEMBER_ID:  # a missing group has no member: one error for each
                return events.LeaveReply(event.token, members=tuple((leaving, error) for leaving in event.members))
            return events.LeaveReply(event.token, error)


def _growth_bytes(
    event: events.Join | events.Sync | events.Heartbeat | events.Leave, group: ClassicGroup | None
) -> int:
    """Return the largest growth of the group in bytes; zero or less if the request repeats an earlier one."""
    match event:
        case events.Join():
            return protocols_bytes(event.protocols) - (
                group.protocols_bytes_of(event.member) if group is not None else 0
            )
        case events.Sync() if event.assignments:
            before_bytes = group.assigned_bytes if group is not None else 0
            return sum(map(len, event.assignments.values())) - before_bytes
    return 0
