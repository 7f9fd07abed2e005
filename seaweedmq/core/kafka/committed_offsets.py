"""The committed offsets of one group: which are taken, how long they are kept.

An offset expires by the confirmed time (``core.clock_doubt``), and not before the coordinator has seen by its steady
clock, as far as it was there, that the retention is over: a commit may have been stamped by a clock that was behind.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from seaweedmq.core.kafka.classic_events import (
    CommitOffsets,
    CoordinatorLimits,
    DeleteOffsets,
    OffsetToCommit,
    Partition,
)
from seaweedmq.core.kafka.classic_group import ClassicGroup
from seaweedmq.core.kafka.classic_rebalance import CONSUMER
from seaweedmq.model.kafka_groups import GroupError, GroupState, OffsetRecord, OffsetValue

TIME_MAX_MS = (1 << 63) - 1
"""Latest time that a record of a group can name: an old client may wish for a retention beyond it."""


class CommittedOffsets:
    """By topic and partition."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.size_bytes = 0
        self._count = 0
        self._by_topic: dict[str, dict[int, OffsetValue]] = {}
        self._taken_s: dict[Partition, float] = {}
        """Steady time of the commit; without an offset that was committed before this coordinator took over."""

    def __len__(self) -> int:
        return self._count

    def get(self, partition: Partition) -> OffsetValue | None:
        """None: nothing is committed."""
        topic, number = partition
        return self._by_topic.get(topic, {}).get(number)

    def select(self, partitions: Collection[Partition] | None) -> Mapping[Partition, OffsetValue]:
        """Of these partitions, or (None) of all. Those without an offset are left out."""
        if partitions is None:
            return {(topic, number): value for topic, number, value in self._items()}
        found = {partition: self.get(partition) for partition in partitions}
        return {partition: value for partition, value in found.items() if value is not None}

    def records(self) -> Iterator[OffsetRecord]:
        """All, as they are kept."""
        for topic, number, value in self._items():
            yield OffsetRecord(self.group, topic, number, value)

    def set(self, partition: Partition, value: OffsetValue | None) -> OffsetRecord:
        """Keep an offset, or (None) forget it."""
        topic, number = partition
        before = self.get(partition)
        if value is not None:
            return self._keep(topic, number, value, growth_bytes(topic, value.metadata, before))
        if before is not None:
            self.size_bytes -= entry_bytes(topic, before.metadata)
            self._count -= 1
            self._taken_s.pop(partition, None)
            del self._by_topic[topic][number]
            if not self._by_topic[topic]:
                del self._by_topic[topic]
        return OffsetRecord(self.group, topic, number, None)

    def _keep(self, topic: str, number: int, value: OffsetValue, grows_bytes: int) -> OffsetRecord:
        by_number = self._by_topic.setdefault(topic, {})
        self._count += number not in by_number
        self.size_bytes += grows_bytes
        by_number[number] = value
        return OffsetRecord(self.group, topic, number, value)

    # --- what is taken ------------------------------------------------------------------------------------------------

    def commit(
        self, commit: CommitOffsets, now: float, at_ms: int, limits: CoordinatorLimits, has_room: Callable[[int], bool]
    ) -> tuple[tuple[GroupError, ...], list[OffsetRecord]]:
        """Take each offset for itself. ``has_room``: whether all of it may grow by so many bytes together."""
        errors, records = [], []
        before_bytes = self.size_bytes
        expire_ms = None if commit.retention_ms is None else min(at_ms + commit.retention_ms, TIME_MAX_MS)
        for offset in commit.offsets:
            before = self.get((offset.topic, offset.partition))
            grows_bytes = growth_bytes(offset.topic, offset.metadata, before)
            error = self._error(offset, before, limits)
            if error is GroupError.NONE and grows_bytes > 0:
                is_taken = has_room(self.size_bytes - before_bytes + grows_bytes)
                error = GroupError.NONE if is_taken else GroupError.POLICY_VIOLATION
            errors.append(error)
            if error is GroupError.NONE:
                value = OffsetValue(
                    offset=offset.offset,
                    leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                    commit_ms=at_ms,
                    expire_ms=expire_ms,
                    topic_id=offset.topic_id,
                )
                records.append(self._keep(offset.topic, offset.partition, value, grows_bytes))
                self._taken_s[offset.topic, offset.partition] = now
        return tuple(errors), records

    def _error(self, offset: OffsetToCommit, before: OffsetValue | None, limits: CoordinatorLimits) -> GroupError:
        if _java_length(offset.metadata) > limits.offset_metadata_length_max:
            return GroupError.OFFSET_METADATA_TOO_LARGE
        if before is None and len(self) >= limits.offsets_per_group_max:
            return GroupError.POLICY_VIOLATION
        return GroupError.NONE

    # --- what is dropped ----------------------------------------------------------------------------------------------

    def delete(self, delete: DeleteOffsets, group: ClassicGroup) -> tuple[tuple[GroupError, ...], list[OffsetRecord]]:
        """Drop offsets of topics that nobody in the group reads. One that is not there is dropped, too."""
        errors, records = [], []
        for topic, number in delete.partitions:
            if group.subscribes(topic):
                errors.append(GroupError.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(GroupError.NONE)
            records += self._drop([(topic, number)])
        return tuple(errors), records

    def drop_topics(self, topics: Mapping[str, bytes | None]) -> list[OffsetRecord]:
        """Drop offsets of topics that are no more: those without the id of the topic that has the name now, if any."""
        return self._drop(
            [
                (topic, number)
                for topic, topic_id in topics.items()
                for number, value in self._by_topic.get(topic, {}).items()
                if topic_id is None or value.topic_id != topic_id
            ]
        )

    def topic_ids(self) -> Iterator[tuple[str, bytes]]:
        """Each topic with an id that an offset of it has; in no order, and repeated."""
        for topic, _, value in self._items():
            if value.topic_id is not None:
                yield topic, value.topic_id

    def drop_all(self) -> list[OffsetRecord]:
        """The group is no more."""
        return self.drop_topics(dict.fromkeys(self._by_topic))

    def expire(self, group: ClassicGroup, now: float, confirmed_ms: int, retention_ms: int) -> list[OffsetRecord]:
        """Drop what is too old, but not while a member may be reading the topic.

        Args:
            now: seconds on the steady clock.
            confirmed_ms: wall-clock time that it is at least.
        """
        return self._drop(
            [
                (topic, number)
                for topic, number, value in self._items()
                if not group.subscribes(topic)
                and is_expired(group, value, self._taken_s.get((topic, number)), now, confirmed_ms, retention_ms)
            ]
        )

    def _drop(self, partitions: Iterable[Partition]) -> list[OffsetRecord]:
        return [self.set(partition, None) for partition in partitions if self.get(partition) is not None]

    def _items(self) -> Iterator[tuple[str, int, OffsetValue]]:
        for topic, by_number in self._by_topic.items():
            for number, value in by_number.items():
                yield topic, number, value


def entry_bytes(topic: str, metadata: str) -> int:
    """Return the bytes that an offset counts for: some 250 bytes of objects, and its texts."""
    return 250 + len(topic) + 2 * len(metadata)


def growth_bytes(topic: str, metadata: str, before: OffsetValue | None) -> int:
    """By how much an offset makes it grow that replaces ``before``, if that was there."""
    return entry_bytes(topic, metadata) if before is None else 2 * (len(metadata) - len(before.metadata))


def deletion_error(group: ClassicGroup) -> GroupError:
    """Whether offsets may be deleted: of an empty group, or of one that says which topics it reads."""
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER:
        return GroupError.NONE
    return GroupError.NON_EMPTY_GROUP


def is_expired(
    group: ClassicGroup, value: OffsetValue, taken_s: float | None, now: float, confirmed_ms: int, retention_ms: int
) -> bool:
    """Whether an offset has been kept for long enough: since the group is empty, or since it was committed if no member
    ever joined or the members read other topics.

    Args:
        taken_s: steady time of the commit; None: before this coordinator took over.
        now, confirmed_ms: as :meth:`CommittedOffsets.expire`.
    """
    since_ms, since_s = value.commit_ms, taken_s
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            if group.since_ms is not None and value.expire_ms is None:
                since_ms, since_s = group.since_ms, group.since_s
        elif group.state is not GroupState.STABLE or not group.knows_topics:
            return False
    expire_ms = since_ms + retention_ms if value.expire_ms is None else value.expire_ms
    return confirmed_ms >= expire_ms and (since_s is None or (now - since_s) * 1_000 >= expire_ms - since_ms)


def _java_length(text: str) -> int:
    """Characters as Java counts them: those beyond 16 bits are two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
