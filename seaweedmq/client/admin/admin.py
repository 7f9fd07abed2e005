"""Topics and the cluster: what the command line does, for programs."""

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
LIMIT_MAX = (1 << 63) - 1
"""Largest limit in bytes, seconds or records a second that a call can carry."""
N = TypeVar("N", int, float)


def topic_name(topic: "str | TopicName") -> TopicName:
    """``"namespace/name"`` as a name. Raises InvalidArgument."""
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
    """``value``, which the cluster keeps in 64 bits. Raises InvalidArgument: it does not fit; names the argument."""
    if value is not None and not -LIMIT_MAX <= value <= LIMIT_MAX:
        raise InvalidArgument(f"{name} is not a number up to {LIMIT_MAX}: give a smaller one")
    return value


class Admin:
    """Administration over any broker. Every method raises Unavailable when no broker answers in time."""

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
            partitions: a topic like those of Kafka: the partition of a key is the one that Kafka's Java client picks,
                each is a segment of its own, and none is ever split or merged.
            durability: "replicated" or "stored"; by default "stored" with one replica, "replicated" with more.
            scaling: "auto" lets the cluster split and merge segments, "fixed" does not; by default "fixed" with
                partitions, "auto" without.
            schema: real columns in place of ``_value``.
            retention: seconds or timedelta that records are kept; None for ever.
            retention_bytes: size beyond which the oldest records go; None for no bound.
            target_bytes_per_s, target_records_per_s: what one segment should carry; one with twice as much is split.
                None: as the cluster's settings say.
            configs: what tools for Kafka set by name, like ``{"segment.ms": "60000"}``: any name is kept, and
                ``seaweedmq.model.topic_settings`` says which act.

        Raises:
            AlreadyExists: the name is taken.
            InvalidArgument: a name, number or schema is not allowed.
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
        """Create topics that are alike, many at a time: see :meth:`create_topic`. In the order of the names.

        Of each 250 none is created if one is refused. Should the cluster fail in the middle, those before are there.
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
        """Change settings; None leaves one as it is, 0 removes a retention limit or an own target.

        Args:
            partitions: as many as there are to be. Records stay in theirs, and further records of a key may go to
                another one, as with Kafka; who publishes and reads hears of them within ``metadata_max_age_s``.
            configs: all that is to be set by name: what is left out is set no more. See :meth:`create_topic`.

        Raises:
            NotFound: no such topic.
            InvalidArgument: a number is not allowed, or the topic can not have partitions, or not so few.
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
        """Delete a topic and all its data. Raises NotFound."""
        topic = topic_name(name)
        uid = await self._uid(topic)
        await self._cluster.call(f"delete topic {topic}", DeleteTopic(topic, uid))

    async def delete_records(self, name: str | TopicName, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records of partitions that lie before an offset: partition -> offset.

        Nobody is given them any more once this returns; their files go by and by. Returns from which offset on each of
        these partitions has records now: what was deleted before stays deleted.

        Raises:
            NotFound: no such topic.
            InvalidArgument: it has no such partition, or is a topic without partitions.
            OutOfRange: an offset is above what is committed; nothing was deleted then.
        """
        topic = topic_name(name)
        call = RaiseLowWatermark(topic, dict(before), await self._uid(topic))
        return dict(await self._cluster.call(f"delete records of {topic}", call))

    async def _uid(self, topic: TopicName) -> int:
        """An attempt that was given up may still arrive much later: it must not meet another topic of the name."""
        found = await self._cluster.call(f"find topic {topic}", AlterTopic(topic, TopicChange()))
        return found.topic.uid

    async def list_topics(self) -> tuple[Topic, ...]:
        """All topics."""
        return await self._cluster.call("list topics", ListTopics())

    async def describe_topic(self, name: str | TopicName) -> TopicDescription:
        """A topic with all its segments. Raises NotFound."""
        return await self._cluster.describe(topic_name(name))

    async def topic_stats(self, name: str | TopicName) -> tuple[SegmentStats, ...]:
        """High watermark and rates of every open segment. Raises NotFound."""
        topic = topic_name(name)
        return await self._cluster.call(f"read the figures of {topic}", TopicStats(topic))

    async def cluster_status(self) -> ClusterStatus:
        """Brokers, leader and load."""
        return await self._cluster.call("read the cluster's status", GetClusterStatus())

    async def drain(self, broker: str, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Move every segment away from a broker (id or host:port), which gets no new ones, and wait until it is done.

        Raises:
            NotFound: no such broker.
            InvalidArgument: it is the last one.
            Unavailable: not done within ``timeout`` seconds; asking again goes on.
        """
        await self._cluster.call(f"drain broker {broker}", DrainBroker(broker), timeout)

    # --- segments by hand ---------------------------------------------------------------------------------------------

    async def split_segment(self, topic: str | TopicName, segment: int, at: int | None = None) -> TopicDescription:
        """Cut a segment in two at slot ``at``, the first of the upper one; None: where its load halves.

        Raises:
            NotFound: no such topic or segment.
            InvalidArgument: ``at`` leaves one side empty, or the segment is one slot wide.
            StaleMetadata: the segment is sealed; its successors may be split.
        """
        name = topic_name(topic)
        return await self._change(f"split {name}#{segment}", SplitSegment(name, segment, at))

    async def merge_segments(self, topic: str | TopicName, first: int, second: int) -> TopicDescription:
        """Make one segment of two whose ranges are neighbours.

        Raises:
            NotFound: no such topic or segment.
            InvalidArgument: they are not neighbours.
            StaleMetadata: one is sealed.
        """
        name = topic_name(topic)
        what = f"merge {name}#{first} and #{second}"
        return await self._change(what, MergeSegments(name, first, second))

    async def seal_segment(self, topic: str | TopicName, segment: int) -> TopicDescription:
        """Close a segment and open a successor of the same range, wherever there is room.

        Raises:
            NotFound: no such topic or segment.
            StaleMetadata: it is sealed already.
        """
        name = topic_name(topic)
        return await self._change(f"seal {name}#{segment}", SealSegment(name, segment))

    async def move_segment(self, topic: str | TopicName, segment: int, brokers: Sequence[str]) -> TopicDescription:
        """Give a segment's range to these brokers (ids or host:port), the primary first. Where the topic has more
        replicas the others are chosen by load. Nothing is done if they have it already.

        Raises:
            NotFound: no such topic, segment or broker.
            InvalidArgument: more brokers than the topic has replicas, one twice, or one that is being drained.
            StaleMetadata: the segment is sealed.
        """
        name = topic_name(topic)
        to = (brokers,) if isinstance(brokers, str) else tuple(brokers)
        if not to:
            raise InvalidArgument(f"no broker to move {name}#{segment} to: name one at least")
        return await self._change(f"move {name}#{segment}", MoveSegment(name, segment, to))

    async def rebalance(self) -> tuple[Decision, ...]:
        """Do now what the balancer would do, without waiting for cool-downs; return what was decided."""
        return await self._cluster.call("rebalance", Rebalance(), DRAIN_TIMEOUT_S)

    # --- groups -------------------------------------------------------------------------------------------------------

    async def list_groups(self) -> tuple[GroupSummary, ...]:
        """One entry for each group and topic, by group, then topic."""
        return await self._cluster.call("list groups", ListGroups())

    async def describe_group(self, group: str) -> GroupDescription:
        """Members, owners, committed offsets and lag in records. Raises NotFound."""
        check_name("group name", group)
        return await self._cluster.call(f"describe group {group}", DescribeGroup(group))

    async def group_lag_seconds(self, group: str) -> dict[str, dict[int, float]]:
        """Lag in time: topic -> segment -> age of the first record the group has not committed, 0 if there is none.

        Reads one record of every segment that lags.

        Raises:
            NotFound: no such group.
            Unavailable: a segment could not be read in time.
        """
        return await lag_seconds(self._cluster, await self.describe_group(group))

    async def reset_group(
        self, group: str, topic: str | TopicName, to: StartAt, force: bool = False
    ) -> GroupDescription:
        """Have a group read a topic from another place.

        Args:
            to: "earliest", "latest", an offset or a datetime, as ``start`` of a subscriber.
            force: also while the group has members; they go on from there, too.

        Raises:
            NotFound: no such group, or it never read the topic.
            InvalidArgument: it has members and ``force`` is not given.
        """
        name, start = topic_name(topic), start_of(to)
        check_name("group name", group)
        return await self._cluster.call(f"reset group {group}", ResetGroup(group, name, start, bool(force)))

    async def delete_group(self, group: str, force: bool = False) -> None:
        """Forget a group and all its offsets.

        Args:
            force: also while the group has members; they are thrown out.

        Raises:
            NotFound: no such group.
            InvalidArgument: it has members and ``force`` is not given.
        """
        check_name("group name", group)
        await self._cluster.call(f"delete group {group}", DeleteGroup(group, bool(force)))

    async def list_kafka_groups(self) -> tuple[KafkaGroupSummary, ...]:
        """The groups of Kafka's consumers, by id. They are others than those of subscribers."""
        return await self._cluster.call("list Kafka groups", ListKafkaGroups())

    async def describe_kafka_group(self, group: str) -> KafkaGroupDescription:
        """Members, what each has, committed offsets and lag in records. Raises NotFound."""
        return await self._cluster.call(f"describe Kafka group {group!r}", DescribeKafkaGroup(group))

    async def reset_kafka_group(self, group: str, topic: str | TopicName, to: StartAt) -> KafkaGroupDescription:
        """Have a group of Kafka's consumers read a topic from another place.

        Args:
            to: "earliest", "latest", an offset of every partition, or a datetime.

        Raises:
            NotFound: no such group, or topic.
            InvalidArgument: it has members: stop them before.
        """
        name, start = topic_name(topic), start_of(to)
        return await self._cluster.call(f"reset Kafka group {group!r}", ResetKafkaGroup(group, name, start))

    async def delete_kafka_group(self, group: str) -> None:
        """Forget a group of Kafka's consumers and all its offsets.

        Raises:
            NotFound: no such group.
            InvalidArgument: it has members: stop them before.
        """
        await self._cluster.call(f"delete Kafka group {group!r}", DeleteKafkaGroup(group))

    async def _change(self, what: str, request: Call[TopicDescription]) -> TopicDescription:
        """Stale metadata is an answer here: who names a segment that is gone will not find it again by asking."""

        async def answered(api: BrokerApi) -> TopicDescription | StaleMetadata:
            try:
                return await api.call(request)
            except StaleMetadata as error:
                return error

        answer = await self._cluster.ask(what, answered)
        if isinstance(answer, StaleMetadata):
            raise answer
        return await self._cluster.whole(answer)
