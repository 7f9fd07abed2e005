"""Administration of the Kafka groups that this broker coordinates, for the command line and native clients."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from seaweedmq.broker.ports import ClusterAccess, PartitionAccess
from seaweedmq.codec.kafka.assignment import assigned_partitions
from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.errors import InvalidArgument, NotFound, SeaweedMQError, Unavailable
from seaweedmq.kafka.groups.coordinators import Coordinators
from seaweedmq.kafka.groups.group_coordinator import GroupCoordinator
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.group_admin import (
    KafkaGroupDescription,
    KafkaGroupMember,
    KafkaGroupOffset,
    KafkaGroupSummary,
)
from seaweedmq.model.kafka.groups import DescribedGroup, GroupState, OffsetValue
from seaweedmq.model.messages import calls
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.read.time_search import find_offset_by_time

SEARCHES_AT_ONCE: Final = 16


class GroupAdmin:
    """A callable for admin calls about Kafka groups: ``await admin(DescribeKafkaGroup("billing"))`` and its errors."""

    def __init__(self, partitions: PartitionAccess, cluster: ClusterAccess, coordinators: Coordinators) -> None:
        self._partitions = partitions
        self._cluster = cluster
        self._coordinators = coordinators
        self._answers: dict[type[calls.Call[Any]], Callable[[Any], Awaitable[Any]]] = {
            calls.ListKafkaGroups: lambda _: self._list(),
            calls.DescribeKafkaGroup: lambda call: self._describe(call.group),
            calls.ResetKafkaGroup: lambda call: self._reset(call.group, call.name, call.start),
            calls.DeleteKafkaGroup: lambda call: self._delete(call.group),
        }

    async def __call__(self, request: calls.Call[Any]) -> Any:
        """Handle a call; raise Unavailable while the shard of its group is loading."""
        try:
            return await self._answers[type(request)](request)
        except KafkaError as error:  # the shard is loading
            raise Unavailable(str(error)) from error

    async def _list(self) -> tuple[KafkaGroupSummary, ...]:
        found: list[KafkaGroupSummary] = []
        for shard in self._coordinators.here():
            found += await shard.read(
                lambda state: [
                    KafkaGroupSummary(
                        group=group.group,
                        state=group.state.value,
                        protocol_type=group.protocol_type,
                        members=len(state.describe(group.group).members),
                    )
                    for group in state.groups()
                ]
            )
        return tuple(found)

    async def _describe(self, group: str) -> KafkaGroupDescription:
        found, offsets = await self._found(self._coordinators.shard_of(group), group)
        members = tuple(
            KafkaGroupMember(
                id=member.id,
                instance=member.instance or "",
                client=member.client_id,
                host=member.client_host.lstrip("/"),
                partitions=tuple(
                    (self._name_of(topic), number) for topic, number in assigned_partitions(member.assignment)
                ),
            )
            for member in found.members
        )
        owners = {partition: m.id for m in found.members for partition in assigned_partitions(m.assignment)}
        ends = await self._known_ends({topic for topic, _ in (*offsets, *owners)})
        return KafkaGroupDescription(
            group=group,
            state=found.state.value,
            protocol_type=found.protocol_type,
            protocol=found.protocol,
            coordinator=self._cluster.broker_id(),
            members=members,
            offsets=tuple(
                KafkaGroupOffset(
                    partition=(self._name_of(partition[0]), partition[1]),
                    owner=owners.get(partition, ""),
                    committed=offsets[partition].offset if partition in offsets else None,
                    end_offset=ends.get(partition),
                )
                for partition in sorted(offsets.keys() | owners.keys())
            ),
        )

    async def _reset(self, group: str, name: TopicName, start: Start) -> KafkaGroupDescription:
        shard = self._coordinators.shard_of(group)
        found, _ = await self._found(shard, group)
        if found.members:
            raise _has_members(group, len(found.members), "reset")
        if name.namespace != self._coordinators.topic_name.namespace or not self._partitions.lineages(name):
            raise NotFound(f"there is no topic {name} for Kafka consumers: see `seaweedmq topic list`")
        starts = await self._starts(name, start)
        topic_id = self._coordinators.topic_ids.known(name.name)
        offsets = tuple(
            events.OffsetToCommit(topic=name.name, partition=n, offset=at, topic_id=topic_id)
            for n, at in starts.items()
        )
        reply = await shard.submit(lambda token: events.CommitOffsets(token=token, group=group, offsets=offsets))
        assert isinstance(reply, events.CommitReply)
        for error in reply.errors:
            if error is not Code.NONE:
                raise InvalidArgument(f"group {group!r} cannot be reset now: {error.name}")
        return await self._describe(group)

    async def _delete(self, group: str) -> None:
        reply = await self._coordinators.shard_of(group).submit(lambda token: events.RemoveGroup(token, group))
        assert isinstance(reply, events.DeleteGroupReply)
        match reply.error:
            case Code.NONE:
                return
            case Code.NON_EMPTY_GROUP:
                found, _ = await self._found(self._coordinators.shard_of(group), group)
                raise _has_members(group, len(found.members), "delete")
            case _:
                raise _unknown(group)

    async def _found(
        self, shard: GroupCoordinator, group: str
    ) -> tuple[DescribedGroup, Mapping[events.Partition, OffsetValue]]:
        found, offsets = await shard.read(lambda state: (state.describe(group), state.offsets(group)))
        if found.state is GroupState.DEAD:
            raise _unknown(group)
        return found, await self._coordinators.topic_ids.without_deleted(offsets)

    def _name_of(self, topic: str) -> str:
        return f"{self._coordinators.topic_name.namespace}/{topic}"

    def _lineages(self, name: TopicName) -> dict[int, Sequence[Segment]]:
        """Return the segments of each partition, by Kafka's number of the partition."""
        lineages = self._partitions.lineages(name)
        return dict(enumerate(lineages[slot] for slot in sorted(lineages)))

    async def _known_ends(self, topics: set[str]) -> dict[events.Partition, int]:
        """Return the high watermarks that are available now."""
        ends: dict[events.Partition, int] = {}
        for topic in sorted(topics):
            try:
                found = await self._ends(TopicName(self._coordinators.topic_name.namespace, topic))
            except SeaweedMQError:
                continue  # topic deleted or broker unreachable: report the other topics
            ends.update({(topic, number): end for number, end in found.items()})
        return ends

    async def _ends(self, name: TopicName) -> dict[int, int]:
        """Return the high watermarks of the partitions of a topic, by number."""
        high = {stats.segment: stats.high_watermark for stats in await self._cluster.api.call(calls.TopicStats(name))}
        return {
            number: high[lineage[-1].id] for number, lineage in self._lineages(name).items() if lineage[-1].id in high
        }

    async def _starts(self, name: TopicName, start: Start) -> dict[int, int]:
        """Return the offset of ``start`` in each partition, by number."""
        ends = await self._ends(name)
        lineages = self._lineages(name)
        if ends.keys() != lineages.keys():
            raise Unavailable(f"partitions of {name} are moving to other brokers: retry")
        slots = asyncio.Semaphore(SEARCHES_AT_ONCE)

        async def find(number: int) -> int:
            async with slots:
                return await self._find(name, lineages[number], start, ends[number])

        return dict(zip(lineages, await asyncio.gather(*map(find, lineages)), strict=True))

    async def _find(self, name: TopicName, lineage: Sequence[Segment], start: Start, high: int) -> int:
        if start.kind is StartKind.LATEST:
            return high
        if start.kind is StartKind.OFFSET:
            return start.value
        store, topic = self._cluster.store, self._cluster.view.topics.get(name)
        if topic is None:
            raise NotFound(f"topic {name} was deleted")
        for segment in lineage:
            end = high if segment.end_offset is None else segment.end_offset
            if start.kind is StartKind.EARLIEST:
                kept = await earliest_offset(store, topic, segment)
                if kept < end:
                    return kept
                continue
            low = max(segment.start_offset, topic.low_watermark(segment.slots))
            found = await find_offset_by_time(store, topic, segment.id, start.value, end, start_offset=low)
            if found is not None:
                return found.offset
        return high


def _unknown(group: str) -> NotFound:
    return NotFound(f"there is no Kafka group {group!r}: see `seaweedmq group list`")


def _has_members(group: str, members: int, what: str) -> InvalidArgument:
    return InvalidArgument(
        f"Kafka group {group!r} has {members} members, which track their own positions: stop them, then {what} it"
    )
