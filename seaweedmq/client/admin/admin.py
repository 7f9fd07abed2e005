"""Administration of topics, segments, groups and brokers: the API behind the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa

from seaweedmq.client.admin.lag import lag_seconds
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.start import StartAt, start_of
from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.errors import InvalidArgument, StaleMetadata
from seaweedmq.model.broker import ClusterStatus, Decision
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.kafka.group_admin import KafkaGroupDescription, KafkaGroupSummary
from seaweedmq.model.messages.calls import (
    AlterTopic,
    Call,
    CreateTopics,
    DeleteGroup,
    DeleteKafkaGroup,
    DeleteTopic,
    DescribeGroup,
    DescribeKafkaGroup,
    DrainBroker,
    GetClusterStatus,
    ListGroups,
    ListKafkaGroups,
    ListTopics,
    MergeSegments,
    MoveSegment,
    RaiseLowWatermark,
    Rebalance,
    ResetGroup,
    ResetKafkaGroup,
    SealSegment,
    SplitSegment,
    TopicStats,
)
from seaweedmq.model.messages.groups import GroupDescription, GroupSummary
from seaweedmq.model.topic import (
    TOPICS_AT_ONCE_MAX,
    Durability,
    Scaling,
    Topic,
    TopicChange,
    TopicName,
    TopicSpec,
    check_name,
)
from seaweedmq.model.topic_settings import configs_of
from seaweedmq.ports import BrokerApi

DRAIN_TIMEOUT_S = 120.0
"""Default deadline of draining a broker and of a rebalance."""
LIMIT_MAX = (1 << 63) - 1
"""Largest limit in bytes, seconds or records per second that a call can carry."""
N = TypeVar("N", int, float)


def topic_name(topic: "str | TopicName") -> TopicName:
    """Return ``topic`` as a ``TopicName``.

    Args:
        topic: ``"namespace/name"``, or a name that is returned unchanged.

    Raises:
        InvalidArgument: If the text is not two valid names with one slash between.
    """
    return topic if isinstance(topic, TopicName) else TopicName.parse(topic)


def _durability(value: "str | Durability | None") -> Durability | None:
    if value is None:
        return None
    try:
        return Durability(value)
    except ValueError:
        raise InvalidArgument(f"durability {value!r} is unknown: use replicated or stored") from None


def _scaling(value: "str | Scaling | None") -> Scaling | None:
    if value is None:
        return None
    try:
        return Scaling(value)
    except ValueError:
        raise InvalidArgument(f"scaling {value!r} is unknown: use auto or fixed") from None


def _retention_s(value: "float | timedelta | None") -> float | None:
    return _limit("retention", value.total_seconds() if isinstance(value, timedelta) else value)


def _limit(name: str, value: N | None) -> N | None:
    """Return ``value`` if it fits the 64 bits of the wire format.

    Raises:
        InvalidArgument: If it does not fit. The message names the argument.
    """
    if value is not None and not -LIMIT_MAX <= value <= LIMIT_MAX:
        raise InvalidArgument(f"{name} is not a number up to {LIMIT_MAX}: use a smaller number")
    return value


class Admin:
    """Administration of a cluster, through any broker.

    Every method raises ``Unavailable`` if no broker answers within ``admin_timeout_s``.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topic(
        self,
        name: str | TopicName,
        segments: int = 1,
        replicas: int = 1,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        schema: pa.Schema | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        target_bytes_per_s: float | None = None,
        target_records_per_s: float | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Create a topic of ``segments`` even key ranges, or of ``partitions``.

        Args:
            name: The topic, ``namespace/name``.
            segments: The number of segments at the start. Ignored with ``partitions``.
            replicas: The number of brokers that hold each segment.
            durability: ``"replicated"`` or ``"stored"``. Default: ``"stored"`` with one replica, ``"replicated"`` with
                more.
            scaling: ``"auto"`` lets the cluster split and merge segments, ``"fixed"`` does not. Default: ``"fixed"``
                with partitions, ``"auto"`` without.
            schema: The columns of a record, in place of ``_value``. Default: none, a plain topic.
            retention: The age at which records are removed, in seconds or as a timedelta. Default: unlimited.
            retention_bytes: The size in bytes beyond which the oldest records are removed. Default: unlimited.
            target_bytes_per_s: The load of one segment, in bytes per second. The cluster splits a segment with twice
                this load. Default: the cluster's setting.
            target_records_per_s: The same in records per second.
            partitions: The number of Kafka partitions, up to 4,096. A key gets the partition that Kafka's Java client
                chooses. Each partition is one segment, which is never split or merged.
            configs: Kafka topic configurations by name, such as ``{"segment.ms": "60000"}``. Any name is stored;
                ``seaweedmq.model.topic_settings`` lists the ones that have an effect.

        Returns:
            The topic with all its segments.

        Raises:
            AlreadyExists: If the name is taken.
            InvalidArgument: If a name, number or schema is invalid.
        """
        (made,) = await self.create_topics(
            [name],
            segments=segments,
            replicas=replicas,
            durability=durability,
            scaling=scaling,
            schema=schema,
            retention=retention,
            retention_bytes=retention_bytes,
            target_bytes_per_s=target_bytes_per_s,
            target_records_per_s=target_records_per_s,
            partitions=partitions,
            configs=configs,
        )
        return made

    async def create_topics(
        self,
        names: Sequence[str | TopicName],
        segments: int = 1,
        replicas: int = 1,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        schema: pa.Schema | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        target_bytes_per_s: float | None = None,
        target_records_per_s: float | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> list[TopicDescription]:
        """Create several topics with the same settings.

        Each call to the cluster creates up to 250 topics, all or none. If a later call fails, the topics of the
        earlier calls exist.

        Args:
            names: The topics, each ``namespace/name``.
            segments: See :meth:`create_topic`, also for the arguments below.
            replicas: See there.
            durability: See there.
            scaling: See there.
            schema: See there.
            retention: See there.
            retention_bytes: See there.
            target_bytes_per_s: See there.
            target_records_per_s: See there.
            partitions: See there.
            configs: See there.

        Returns:
            The topics, in the order of ``names``.

        Raises:
            AlreadyExists: If a name is taken.
            InvalidArgument: If a name, number or schema is invalid.
        """
        alike = TopicSpec(
            name=TopicName("any", "any"),
            segments=segments,
            partitions=partitions,
            replicas=replicas,
            durability=_durability(durability),
            scaling=_scaling(scaling),
            schema=None if schema is None else schema_to_bytes(schema),
            retention_s=_retention_s(retention),
            retention_bytes=_limit("retention_bytes", retention_bytes),
            target_bytes_per_s=_limit("target_bytes_per_s", target_bytes_per_s),
            target_records_per_s=_limit("target_records_per_s", target_records_per_s),
            configs=configs_of(configs or {}),
        )
        specs = [replace(alike, name=topic_name(name)) for name in names]
        made: list[TopicDescription] = []
        for at in range(0, len(specs), TOPICS_AT_ONCE_MAX):
            together = tuple(specs[at : at + TOPICS_AT_ONCE_MAX])
            what = f"create topic {together[0].name}" + (f" and {len(together) - 1} more" if len(together) > 1 else "")
            created = await self._cluster.call(what, CreateTopics(together))
            made += [await self._cluster.whole(description) for description in created]
        return made

    async def alter_topic(
        self,
        name: str | TopicName,
        *,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        target_bytes_per_s: float | None = None,
        target_records_per_s: float | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Change the settings of a topic.

        None leaves a setting unchanged. 0 removes a retention limit or a target of the topic.

        Args:
            name: The topic, ``namespace/name``.
            durability: ``"replicated"`` or ``"stored"``.
            scaling: ``"auto"`` or ``"fixed"``.
            retention: The age at which records are removed, in seconds or as a timedelta.
            retention_bytes: The size in bytes beyond which the oldest records are removed.
            target_bytes_per_s: The load of one segment, in bytes per second.
            target_records_per_s: The same in records per second.
            partitions: The new number of partitions, up to 4,096; it can only grow. Stored records stay in their
                partition, and later records of a key may go to another one, as with Kafka. Publishers and subscribers
                notice new partitions within ``metadata_max_age_s``.
            configs: All Kafka topic configurations by name; omitted ones are removed. See :meth:`create_topic`.

        Returns:
            The topic with all its segments.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If a number is invalid, the topic cannot have partitions, or it has more already.
        """
        topic = topic_name(name)
        change = TopicChange(
            partitions=partitions,
            durability=_durability(durability),
            scaling=_scaling(scaling),
            retention_s=_retention_s(retention),
            retention_bytes=_limit("retention_bytes", retention_bytes),
            target_bytes_per_s=_limit("target_bytes_per_s", target_bytes_per_s),
            target_records_per_s=_limit("target_records_per_s", target_records_per_s),
            configs=None if configs is None else configs_of(configs),
        )
        uid = await self._uid(topic)
        altered = await self._cluster.call(f"alter topic {topic}", AlterTopic(topic, change, uid))
        return await self._cluster.whole(altered)

    async def delete_topic(self, name: str | TopicName) -> None:
        """Delete a topic and all its data.

        Args:
            name: The topic, ``namespace/name``.

        Raises:
            NotFound: If the topic does not exist.
        """
        topic = topic_name(name)
        uid = await self._uid(topic)
        await self._cluster.call(f"delete topic {topic}", DeleteTopic(topic, uid))

    async def delete_records(self, name: str | TopicName, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records of partitions below an offset.

        No reader receives them once this returns. Their files are removed later.

        Args:
            name: The topic, ``namespace/name``. It must have partitions.
            before: Partition -> first offset to keep.

        Returns:
            Partition -> first offset that is left. It is higher than asked if more was deleted before.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If the topic has no such partition, or no partitions.
            OutOfRange: If an offset is above the high watermark. Nothing is deleted then.
        """
        topic = topic_name(name)
        call = RaiseLowWatermark(topic, dict(before), await self._uid(topic))
        return dict(await self._cluster.call(f"delete records of {topic}", call))

    async def _uid(self, topic: TopicName) -> int:
        """Return the topic's uid, so that an attempt that arrives late cannot affect a recreated topic."""
        found = await self._cluster.call(f"find topic {topic}", AlterTopic(topic, TopicChange()))
        return found.topic.uid

    async def list_topics(self) -> tuple[Topic, ...]:
        """Return all topics."""
        return await self._cluster.call("list topics", ListTopics())

    async def describe_topic(self, name: str | TopicName) -> TopicDescription:
        """Return a topic with all its segments.

        Args:
            name: The topic, ``namespace/name``.

        Raises:
            NotFound: If the topic does not exist.
        """
        return await self._cluster.describe(topic_name(name))

    async def topic_stats(self, name: str | TopicName) -> tuple[SegmentStats, ...]:
        """Return the high watermark and the rates of every open segment.

        Args:
            name: The topic, ``namespace/name``.

        Raises:
            NotFound: If the topic does not exist.
        """
        topic = topic_name(name)
        return await self._cluster.call(f"read the statistics of {topic}", TopicStats(topic))

    async def cluster_status(self) -> ClusterStatus:
        """Return the brokers, the leader and the load."""
        return await self._cluster.call("read the cluster's status", GetClusterStatus())

    async def drain(self, broker: str, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Move every segment away from a broker, and wait for the end. The broker gets no new segments.

        Args:
            broker: The broker's id or ``host:port``.
            timeout: The deadline in seconds.

        Raises:
            NotFound: If the broker does not exist.
            InvalidArgument: If it is the last broker.
            Unavailable: If segments are left after ``timeout``. Another call continues.
        """
        await self._cluster.call(f"drain broker {broker}", DrainBroker(broker), timeout)

    # --- manual changes of segments -----------------------------------------------------------------------------------

    async def split_segment(self, topic: str | TopicName, segment: int, at: int | None = None) -> TopicDescription:
        """Split a segment in two.

        Args:
            topic: The topic, ``namespace/name``.
            segment: The segment's id.
            at: The first slot of the upper half. Default: the slot that halves the load.

        Returns:
            The topic with all its segments.

        Raises:
            NotFound: If the topic or segment does not exist.
            InvalidArgument: If ``at`` leaves one side empty, or the segment is one slot wide.
            StaleMetadata: If the segment is sealed. Split its successors.
        """
        name = topic_name(topic)
        return await self._change(f"split {name}#{segment}", SplitSegment(name, segment, at))

    async def merge_segments(self, topic: str | TopicName, first: int, second: int) -> TopicDescription:
        """Merge two segments with adjacent key ranges into one.

        Args:
            topic: The topic, ``namespace/name``.
            first: The id of one segment.
            second: The id of the other.

        Returns:
            The topic with all its segments.

        Raises:
            NotFound: If the topic or a segment does not exist.
            InvalidArgument: If the ranges are not adjacent.
            StaleMetadata: If a segment is sealed.
        """
        name = topic_name(topic)
        what = f"merge {name}#{first} and #{second}"
        return await self._change(what, MergeSegments(name, first, second))

    async def seal_segment(self, topic: str | TopicName, segment: int) -> TopicDescription:
        """Seal a segment and open a successor with the same range, on brokers chosen by load.

        Args:
            topic: The topic, ``namespace/name``.
            segment: The segment's id.

        Returns:
            The topic with all its segments.

        Raises:
            NotFound: If the topic or segment does not exist.
            StaleMetadata: If the segment is sealed already.
        """
        name = topic_name(topic)
        return await self._change(f"seal {name}#{segment}", SealSegment(name, segment))

    async def move_segment(self, topic: str | TopicName, segment: int, brokers: Sequence[str]) -> TopicDescription:
        """Move a segment's range to other brokers. Nothing changes if they have it already.

        Args:
            topic: The topic, ``namespace/name``.
            segment: The segment's id.
            brokers: The ids or ``host:port`` of the brokers, primary first. If the topic has more replicas, the
                cluster chooses the others by load.

        Returns:
            The topic with all its segments.

        Raises:
            NotFound: If the topic, the segment or a broker does not exist.
            InvalidArgument: If no broker is named, more than the topic has replicas, one twice, or one that is being
                drained.
            StaleMetadata: If the segment is sealed.
        """
        name = topic_name(topic)
        to = (brokers,) if isinstance(brokers, str) else tuple(brokers)
        if not to:
            raise InvalidArgument(f"no broker to move {name}#{segment} to: name at least one")
        return await self._change(f"move {name}#{segment}", MoveSegment(name, segment, to))

    async def rebalance(self) -> tuple[Decision, ...]:
        """Run the balancer now, without its cool-downs, and return its decisions.

        Raises:
            Unavailable: If no broker answers within 120 s.
        """
        return await self._cluster.call("rebalance", Rebalance(), DRAIN_TIMEOUT_S)

    # --- groups -------------------------------------------------------------------------------------------------------

    async def list_groups(self) -> tuple[GroupSummary, ...]:
        """Return one entry per group and topic, ordered by group, then topic."""
        return await self._cluster.call("list groups", ListGroups())

    async def describe_group(self, group: str) -> GroupDescription:
        """Return the members, owners, committed offsets and lag in records of a group.

        Args:
            group: The group's name.

        Raises:
            NotFound: If the group does not exist.
            InvalidArgument: If the name is invalid.
        """
        check_name("group name", group)
        return await self._cluster.call(f"describe group {group}", DescribeGroup(group))

    async def group_lag_seconds(self, group: str) -> dict[str, dict[int, float]]:
        """Return the lag of a group in seconds. Reads one record of every segment that lags.

        Args:
            group: The group's name.

        Returns:
            Topic -> segment -> age in seconds of the first record above the committed offset; 0 if there is none.

        Raises:
            NotFound: If the group does not exist.
            Unavailable: If a segment could not be read within ``admin_timeout_s``.
        """
        return await lag_seconds(self._cluster, await self.describe_group(group))

    async def reset_group(
        self, group: str, topic: str | TopicName, to: StartAt, force: bool = False
    ) -> GroupDescription:
        """Reset a group's offsets in a topic.

        Args:
            group: The group's name.
            topic: The topic, ``namespace/name``.
            to: ``"earliest"``, ``"latest"``, an offset or a datetime, like ``start`` of a subscriber.
            force: Whether to reset while the group has members; they continue from the new position.

        Returns:
            The group.

        Raises:
            NotFound: If the group does not exist or never read the topic.
            InvalidArgument: If the group has members and ``force`` is false.
        """
        name, start = topic_name(topic), start_of(to)
        check_name("group name", group)
        return await self._cluster.call(f"reset group {group}", ResetGroup(group, name, start, bool(force)))

    async def delete_group(self, group: str, force: bool = False) -> None:
        """Delete a group and all its offsets.

        Args:
            group: The group's name.
            force: Whether to delete while the group has members; their membership ends.

        Raises:
            NotFound: If the group does not exist.
            InvalidArgument: If the group has members and ``force`` is false.
        """
        check_name("group name", group)
        await self._cluster.call(f"delete group {group}", DeleteGroup(group, bool(force)))

    async def list_kafka_groups(self) -> tuple[KafkaGroupSummary, ...]:
        """Return the groups of Kafka consumers by id. Subscribers' groups are separate."""
        return await self._cluster.call("list Kafka groups", ListKafkaGroups())

    async def describe_kafka_group(self, group: str) -> KafkaGroupDescription:
        """Return the members, their partitions, committed offsets and lag in records of a Kafka group.

        Args:
            group: The group's id.

        Raises:
            NotFound: If the group does not exist.
        """
        return await self._cluster.call(f"describe Kafka group {group!r}", DescribeKafkaGroup(group))

    async def reset_kafka_group(self, group: str, topic: str | TopicName, to: StartAt) -> KafkaGroupDescription:
        """Reset the offsets of a Kafka group in a topic.

        Args:
            group: The group's id.
            topic: The topic, ``namespace/name``.
            to: ``"earliest"``, ``"latest"``, an offset for every partition, or a datetime.

        Returns:
            The group.

        Raises:
            NotFound: If the group or topic does not exist.
            InvalidArgument: If the group has members. Stop them first.
        """
        name, start = topic_name(topic), start_of(to)
        return await self._cluster.call(f"reset Kafka group {group!r}", ResetKafkaGroup(group, name, start))

    async def delete_kafka_group(self, group: str) -> None:
        """Delete a Kafka group and all its offsets.

        Args:
            group: The group's id.

        Raises:
            NotFound: If the group does not exist.
            InvalidArgument: If the group has members. Stop them first.
        """
        await self._cluster.call(f"delete Kafka group {group!r}", DeleteKafkaGroup(group))

    async def _change(self, what: str, request: Call[TopicDescription]) -> TopicDescription:
        """Change segments. StaleMetadata is final here: a retry does not bring a sealed segment back."""

        async def answered(api: BrokerApi) -> TopicDescription | StaleMetadata:
            try:
                return await api.call(request)
            except StaleMetadata as error:
                return error

        answer = await self._cluster.ask(what, answered)
        if isinstance(answer, StaleMetadata):
            raise answer
        return await self._cluster.whole(answer)
