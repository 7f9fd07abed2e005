"""All groups of one partition of ``__consumer_offsets``, and their offsets: what its coordinator knows and decides.

The shell (``kafka.shard``) loads what the partition holds, begins, and then hands over one event after another:

| step | what |
|---|---|
| ``load(record)`` | every record of the partition in order, tombstones too; later ones replace earlier ones |
| ``begin(now, at_ms)`` | everything is loaded: sessions begin |
| ``handle(event, now, at_ms)`` | append ``records``, say ``replies`` when all of it is committed |
| ``wake_at`` | when ``Tick`` is to be handled next |
| ``snapshot()`` | the records that give the same state again, to be appended from time to time |

The state is ahead of what is committed. If an append fails, all of it is to be dropped: the next coordinator loads what
was committed, and nobody was told of anything else. So what is read here (``groups``, ``describe``, ``offsets``) is
told when everything that was handed out before is committed.

A group comes to be when somebody joins or commits without a member id. It is forgotten when it is deleted, or when
nobody is in it and no offset of it is left; at once, if nothing was ever written of it.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping

from seaweedmq.core.clock_doubt import WallWatch, doubt_s
from seaweedmq.core.kafka.classic_events import (
    CommitOffsets,
    CommitReply,
    CoordinatorLimits,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    GroupOutcome,
    Heartbeat,
    Join,
    Leave,
    Partition,
    RemoveGroup,
    Reply,
    ShardEvent,
    ShardOutcome,
    Sync,
    Tick,
    TimerFired,
    TopicsDeleted,
)
from seaweedmq.core.kafka.classic_group import ClassicGroup
from seaweedmq.core.kafka.committed_offsets import CommittedOffsets, deletion_error
from seaweedmq.core.kafka.deadlines import Deadlines
from seaweedmq.core.kafka.error_replies import group_error_reply, growth_bytes
from seaweedmq.core.kafka.state_memory import StateMemory
from seaweedmq.model.kafka_groups import (
    DescribedGroup,
    GroupError,
    GroupMetadataRecord,
    GroupState,
    ListedGroup,
    OffsetValue,
    ShardRecord,
)

ENTRY_BYTES = 3_000
"""A group takes so much beside its members and offsets ..."""
MEMBER_BYTES = 800
"""... and a member so much beside what is in the group's record."""


class _Entry:
    """A group and its offsets."""

    __slots__ = ("committed", "counted_bytes", "group")

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group
        self.committed = CommittedOffsets(group.name)
        self.counted_bytes = 0
        """What the shard counts for it."""

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
        """Nothing would be missed."""
        return self.group.is_idle and self.group.written is None and not len(self.committed)


def _empty_bytes(group: str) -> int:
    """A group without members and offsets, whose name may have thousands of characters."""
    return ENTRY_BYTES + len(group)


class GroupShard:
    """``now`` is in seconds on a steady clock, ``at_ms`` the wall clock."""

    def __init__(self, limits: CoordinatorLimits, memory: StateMemory) -> None:
        """``memory``: of all shards of the broker."""
        self._limits = limits
        self._memory = memory
        self._entries: dict[str, _Entry] = {}
        self._deadlines = Deadlines()
        self._clock = WallWatch()
        self._check_at: float | None = None
        self._unchecked: deque[str] = deque()
        """Groups whose offsets were not looked at yet, in this round of checks."""
        self._records: list[ShardRecord] = []
        self._replies: list[Reply] = []
        self.size_bytes = 0
        """What all of it counts for."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def wake_at(self) -> float | None:
        """When ``Tick`` is to be handled; None: there is nothing to wait for."""
        first_at, check_at = self._deadlines.first_at, self._check_at
        if first_at is None or check_at is None:
            return check_at if first_at is None else first_at
        return min(first_at, check_at)

    # --- what is kept -------------------------------------------------------------------------------------------------

    def load(self, record: ShardRecord) -> None:
        """Take what the partition holds."""
        entry = self._entry(record.group)
        if isinstance(record, GroupMetadataRecord):
            entry.group = ClassicGroup(record.group, self._limits, 0.0, record.value)
        else:
            entry.committed.set((record.topic, record.partition), record.value)
        self._settle(entry)

    def begin(self, now: float, at_ms: int) -> None:
        """All is loaded."""
        self._clock.note(at_ms * 1_000, now)
        for entry in self._entries.values():
            self._take(entry, entry.group.take_over(now, at_ms))
        self._check_at = now + self._limits.offsets_check_ms / 1_000

    def snapshot(self) -> Iterator[ShardRecord]:
        """What gives this state again. To be taken at once: it must not be changed meanwhile."""
        for name, entry in self._entries.items():
            if entry.group.written is not None:
                yield GroupMetadataRecord(name, entry.group.written)
            yield from entry.committed.records()

    def close(self) -> None:
        """Give back its memory: this broker coordinates these groups no longer."""
        self._count(-self.size_bytes)
        self._entries.clear()

    # --- what is told -------------------------------------------------------------------------------------------------

    def groups(self) -> tuple[ListedGroup, ...]:
        """All of them."""
        return tuple(entry.group.listed() for entry in self._entries.values())

    def describe(self, group: str) -> DescribedGroup:
        """One that does not exist is ``DEAD``."""
        entry = self._entries.get(group)
        return entry.group.described() if entry is not None else DescribedGroup(group=group, state=GroupState.DEAD)

    def offsets(self, group: str, partitions: Collection[Partition] | None = None) -> Mapping[Partition, OffsetValue]:
        """What is committed, of these partitions or (None) of all. Those without an offset are left out."""
        entry = self._entries.get(group)
        return entry.committed.select(partitions) if entry is not None else {}

    def topic_ids(self) -> set[tuple[str, bytes]]:
        """Topics of which offsets are committed, with their ids; of one name there may be several."""
        return {known for entry in self._entries.values() for known in entry.committed.topic_ids()}

    # --- what happens -------------------------------------------------------------------------------------------------

    def handle(self, event: ShardEvent, now: float, at_ms: int) -> ShardOutcome:
        """Take one event."""
        self._clock.note(at_ms * 1_000, now)
        match event:
            case Join() | Sync() | Heartbeat() | Leave():
                self._member_speaks(event, now, at_ms)
            case CommitOffsets():
                self._replies.append(CommitReply(event.token, self._commit(event, now, at_ms)))
            case DeleteOffsets():
                self._delete_offsets(event)
            case RemoveGroup(token, group):
                self._replies.append(DeleteGroupReply(token, self._delete_group(group)))
            case TopicsDeleted(topics):
                for entry in list(self._entries.values()):
                    self._records += entry.committed.drop_topics(topics)
                    self._settle(entry)
            case Tick():
                self._pass_time(now, at_ms)
        records, replies = tuple(self._records), tuple(self._replies)
        self._records, self._replies = [], []
        if isinstance(event, Heartbeat):  # nothing else comes of it
            return ShardOutcome(records=records, prompt=replies)
        return ShardOutcome(records=records, replies=replies)

    def _member_speaks(self, event: Join | Sync | Heartbeat | Leave, now: float, at_ms: int) -> None:
        error = self._group_error(event)
        if error is not GroupError.NONE:
            self._replies.append(group_error_reply(event, error))
            return
        entry = self._entry(event.group)
        self._take(entry, entry.group.handle(event, now, at_ms))
        self._settle(entry)

    def _group_error(self, event: Join | Sync | Heartbeat | Leave) -> GroupError:
        if not event.group or self._is_too_long(event.group):
            return GroupError.INVALID_GROUP_ID
        entry = self._entries.get(event.group)
        if entry is None and not (isinstance(event, Join) and not event.member):
            return GroupError.UNKNOWN_MEMBER_ID
        more_bytes = growth_bytes(event, entry.group if entry is not None else None)
        return GroupError.NONE if self._has_room(event.group, more_bytes) else GroupError.POLICY_VIOLATION

    def _commit(self, commit: CommitOffsets, now: float, at_ms: int) -> tuple[GroupError, ...]:
        error = self._commit_error(commit)
        if error is not GroupError.NONE:
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

    def _commit_error(self, commit: CommitOffsets) -> GroupError:
        if self._is_too_long(commit.group):
            return GroupError.INVALID_GROUP_ID
        entry = self._entries.get(commit.group)
        if entry is not None:
            return entry.group.commit_error(commit)
        if commit.generation >= 0:
            return GroupError.GROUP_ID_NOT_FOUND if commit.is_v9 else GroupError.ILLEGAL_GENERATION
        return GroupError.NONE if self._has_room(commit.group, 0) else GroupError.POLICY_VIOLATION

    def _delete_offsets(self, delete: DeleteOffsets) -> None:
        entry = self._entries.get(delete.group)
        error = GroupError.GROUP_ID_NOT_FOUND if entry is None else deletion_error(entry.group)
        if entry is None or error is not GroupError.NONE:
            self._replies.append(DeleteOffsetsReply(delete.token, error))
            return
        errors, records = entry.committed.delete(delete, entry.group)
        self._records += records
        self._replies.append(DeleteOffsetsReply(delete.token, errors=errors))
        self._settle(entry)

    def _delete_group(self, group: str) -> GroupError:
        entry = self._entries.get(group)
        if entry is None:
            return GroupError.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return GroupError.NON_EMPTY_GROUP
        self._forget(entry)
        return GroupError.NONE

    def _forget(self, entry: _Entry) -> None:
        self._records += entry.committed.drop_all()
        if entry.group.written is not None:
            self._records.append(GroupMetadataRecord(entry.group.name, None))
        self._take(entry, entry.group.die())
        self._remove(entry)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _pass_time(self, now: float, at_ms: int) -> None:
        for group, timer, member in self._deadlines.pop_due(now):
            entry = self._entries.get(group)
            if entry is not None:
                self._take(entry, entry.group.handle(TimerFired(timer, member), now, at_ms))
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

    # --- entries ------------------------------------------------------------------------------------------------------

    def _entry(self, group: str) -> _Entry:
        """It exists from here on; ``_settle`` is to follow."""
        entry = self._entries.get(group)
        if entry is None:
            entry = self._entries[group] = _Entry(ClassicGroup(group, self._limits, 0.0))
        return entry

    def _take(self, entry: _Entry, outcome: GroupOutcome) -> None:
        name = entry.group.name
        if outcome.value is not None:
            self._records.append(GroupMetadataRecord(name, outcome.value))
        self._replies += outcome.replies
        for (timer, member), at in outcome.timers.items():
            self._deadlines.set((name, timer, member), at)

    def _settle(self, entry: _Entry) -> None:
        """Something of it changed: count it anew, or forget it."""
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
