"""The committed offsets of one group: acceptance and expiry.

An offset expires by the confirmed time (``core.clock_doubt``). The coordinator's steady clock must also have seen the
retention pass, as far as it was running: a clock that was behind may have stamped the commit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.core.kafka.groups.classic_group import ClassicGroup
from seaweedmq.core.kafka.groups.classic_rebalance import CONSUMER
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import GroupState, OffsetRecord, OffsetValue

TIME_MAX_MS = (1 << 63) - 1
"""Latest time that a record of a group can hold: an old client may request a longer retention."""


class CommittedOffsets:
    """The offsets of one group by topic and partition."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.size_bytes = 0
        self._count = 0
        self._by_topic: dict[str, dict[int, OffsetValue]] = {}
        self._taken_s: dict[events.Partition, float] = {}
        """Steady time of each commit; offsets committed under an earlier coordinator have none."""

    def __len__(self) -> int:
        return self._count

    def get(self, partition: events.Partition) -> OffsetValue | None:
        """Return the committed offset; None: nothing is committed."""
        topic, number = partition
        return self._by_topic.get(topic, {}).get(number)

    def select(self, partitions: Collection[events.Partition] | None) -> Mapping[events.Partition, OffsetValue]:
        """Return the committed offsets of these partitions, or (None) of all."""
        if partitions is None:
            return {(topic, number): value for topic, number, value in self._items()}
        found = {partition: self.get(partition) for partition in partitions}
        return {partition: value for partition, value in found.items() if value is not None}

    def records(self) -> Iterator[OffsetRecord]:
        """Yield the records of all offsets."""
        for topic, number, value in self._items():
            yield OffsetRecord(self.group, topic, number, value)

    def set(self, partition: events.Partition, value: OffsetValue | None) -> OffsetRecord:
        """Set an offset, or (None) remove it; return its record."""
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

    def commit(
        self,
        commit: events.CommitOffsets,
        now: float,
        at_ms: int,
        limits: events.CoordinatorLimits,
        has_room: Callable[[int], bool],
    ) -> tuple[tuple[Code, ...], list[OffsetRecord]]:
        """Accept or reject each offset by itself; return the errors, in order, and the accepted ones' records.

        ``has_room`` tells whether all offsets together may grow by a number of bytes.
        """
        errors, records = [], []
        before_bytes = self.size_bytes
        expire_ms = None if commit.retention_ms is None else min(at_ms + commit.retention_ms, TIME_MAX_MS)
        for offset in commit.offsets:
            before = self.get((offset.topic, offset.partition))
            grows_bytes = growth_bytes(offset.topic, offset.metadata, before)
            error = self._error(offset, before, limits)
            if error is Code.NONE and grows_bytes > 0:
                is_taken = has_room(self.size_bytes - before_bytes + grows_bytes)
                error = Code.NONE if is_taken else Code.POLICY_VIOLATION
            errors.append(error)
            if error is Code.NONE:
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

    def _error(
        self, offset: events.OffsetToCommit, before: OffsetValue | None, limits: events.CoordinatorLimits
    ) -> Code:
        if _java_length(offset.metadata) > limits.offset_metadata_length_max:
            return Code.OFFSET_METADATA_TOO_LARGE
        if before is None and len(self) >= limits.offsets_per_group_max:
            return Code.POLICY_VIOLATION
        return Code.NONE

    def delete(self, delete: events.DeleteOffsets, group: ClassicGroup) -> tuple[tuple[Code, ...], list[OffsetRecord]]:
        """Remove offsets of topics that no member reads; removing one that does not exist succeeds."""
        errors, records = [], []
        for topic, number in delete.partitions:
            if group.subscribes(topic):
                errors.append(Code.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(Code.NONE)
            records += self._drop([(topic, number)])
        return tuple(errors), records

    def drop_topics(self, topics: Mapping[str, bytes | None]) -> list[OffsetRecord]:
        """Remove offsets of deleted topics, except those with the id of the topic that has the name now."""
        return self._drop(
            [
                (topic, number)
                for topic, topic_id in topics.items()
                for number, value in self._by_topic.get(topic, {}).items()
                if topic_id is None or value.topic_id != topic_id
            ]
        )

    def topic_ids(self) -> Iterator[tuple[str, bytes]]:
        """Yield the topic and id of each offset that has an id; in no order, with repeats."""
        for topic, _, value in self._items():
            if value.topic_id is not None:
                yield topic, value.topic_id

    def drop_all(self) -> list[OffsetRecord]:
        """Remove all offsets, when the group is removed."""
        return self.drop_topics(dict.fromkeys(self._by_topic))

    def expire(self, group: ClassicGroup, now: float, confirmed_ms: int, retention_ms: int) -> list[OffsetRecord]:
        """Remove expired offsets of topics that no member may be reading, by a wall clock that may lag."""
        return self._drop(
            [
                (topic, number)
                for topic, number, value in self._items()
                if not group.subscribes(topic)
                and is_expired(group, value, self._taken_s.get((topic, number)), now, confirmed_ms, retention_ms)
            ]
        )

    def _drop(self, partitions: Iterable[events.Partition]) -> list[OffsetRecord]:
        return [self.set(partition, None) for partition in partitions if self.get(partition) is not None]

    def _items(self) -> Iterator[tuple[str, int, OffsetValue]]:
        for topic, by_number in self._by_topic.items():
            for number, value in by_number.items():
                yield topic, number, value


def entry_bytes(topic: str, metadata: str) -> int:
    """Return the counted bytes of an offset: some 250 bytes of objects, and its texts."""
    return 250 + len(topic) + 2 * len(metadata)


def growth_bytes(topic: str, metadata: str, before: OffsetValue | None) -> int:
    """Return the growth in bytes from an offset that replaces ``before``, if any."""
    return entry_bytes(topic, metadata) if before is None else 2 * (len(metadata) - len(before.metadata))


def deletion_error(group: ClassicGroup) -> Code:
    """Return the error of deleting offsets of a group, which must be empty or name the topics that its members read."""
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER:
        return Code.NONE
    return Code.NON_EMPTY_GROUP


def is_expired(
    group: ClassicGroup, value: OffsetValue, taken_s: float | None, now: float, confirmed_ms: int, retention_ms: int
) -> bool:
    """Whether an offset has passed its retention, by the confirmed wall clock and, if known, by the steady clock.

    It counts from the time since which the group is empty, or from the commit if no member ever joined, or the members
    read other topics. ``taken_s`` is None for a commit under an earlier coordinator.
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
    """Return the length as Java counts it: characters beyond 16 bits count as two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
