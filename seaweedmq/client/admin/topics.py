"""Administration of topics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from seaweedmq.client.admin.arguments import checked_limit, member_of, retention_s_of, topic_name
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.messages import calls
from seaweedmq.model.topic import TOPICS_AT_ONCE_MAX, Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.model.topic_settings import configs_of

if TYPE_CHECKING:
    import pyarrow as pa


class TopicAdmin:
    """The part of :class:`Admin` for topics."""

    _cluster: Cluster

    async def create_topic(
        self,
        name: str | TopicName,
        segments: int = 1,
        replicas: int = 1,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        schema: "pa.Schema | None" = None,
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
        schema: "pa.Schema | None" = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        target_bytes_per_s: float | None = None,
        target_records_per_s: float | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> list[TopicDescription]:
        """Create several topics with the same settings, those of :meth:`create_topic`.

        Each call to the cluster creates up to 250 topics, all or none. If a later call fails, the topics of the earlier
        calls exist.

        Returns:
            The topics, in the order of ``names``, each ``namespace/name``.

        Raises:
            AlreadyExists: If a name is taken.
            InvalidArgument: If a name, number or schema is invalid.
        """
        alike = TopicSpec(
            name=TopicName("any", "any"),
            segments=segments,
            partitions=partitions,
            replicas=replicas,
            durability=member_of(Durability, durability),
            scaling=member_of(Scaling, scaling),
            schema=None if schema is None else _to_bytes(schema),
            retention_s=retention_s_of(retention),
            retention_bytes=checked_limit("retention_bytes", retention_bytes),
            target_bytes_per_s=checked_limit("target_bytes_per_s", target_bytes_per_s),
            target_records_per_s=checked_limit("target_records_per_s", target_records_per_s),
            configs=configs_of(configs or {}),
        )
        specs = [replace(alike, name=topic_name(name)) for name in names]
        made: list[TopicDescription] = []
        for at in range(0, len(specs), TOPICS_AT_ONCE_MAX):
            together = tuple(specs[at : at + TOPICS_AT_ONCE_MAX])
            what = f"create topic {together[0].name}" + (f" and {len(together) - 1} more" if len(together) > 1 else "")
            created = await self._cluster.call(what, calls.CreateTopics(together))
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

        Arguments are those of :meth:`create_topic`. None leaves a setting unchanged, and 0 removes a retention limit or
        a target of the topic. ``configs`` are all Kafka topic configurations; omitted ones are removed.

        The number of partitions can only grow. Stored records stay in their partition, and later records of a key may
        go to another one, as with Kafka. Publishers and subscribers notice new partitions within
        ``metadata_max_age_s``.

        Raises:
            InvalidArgument: If a number is invalid, the topic cannot have partitions, or it has more already.
        """
        topic = topic_name(name)
        change = TopicChange(
            partitions=partitions,
            durability=member_of(Durability, durability),
            scaling=member_of(Scaling, scaling),
            retention_s=retention_s_of(retention),
            retention_bytes=checked_limit("retention_bytes", retention_bytes),
            target_bytes_per_s=checked_limit("target_bytes_per_s", target_bytes_per_s),
            target_records_per_s=checked_limit("target_records_per_s", target_records_per_s),
            configs=None if configs is None else configs_of(configs),
        )
        uid = await self._uid(topic)
        altered = await self._cluster.call(f"alter topic {topic}", calls.AlterTopic(topic, change, uid))
        return await self._cluster.whole(altered)

    async def delete_topic(self, name: str | TopicName) -> None:
        """Delete a topic and all its data."""
        topic = topic_name(name)
        uid = await self._uid(topic)
        await self._cluster.call(f"delete topic {topic}", calls.DeleteTopic(topic, uid))

    async def delete_records(self, name: str | TopicName, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records of partitions below an offset.

        No reader receives them once this returns. Their files are removed later.

        Args:
            name: The topic, ``namespace/name``. It must have partitions.
            before: Partition -> first offset to keep.

        Returns:
            Partition -> first offset that is left. It is higher than asked if more was deleted before.

        Raises:
            InvalidArgument: If the topic has no such partition, or no partitions.
            OutOfRange: If an offset is above the high watermark. Nothing is deleted then.
        """
        topic = topic_name(name)
        call = calls.RaiseLowWatermark(topic, dict(before), await self._uid(topic))
        return dict(await self._cluster.call(f"delete records of {topic}", call))

    async def _uid(self, topic: TopicName) -> int:
        """Return the topic's uid, so that an attempt that arrives late cannot affect a recreated topic."""
        found = await self._cluster.call(f"find topic {topic}", calls.AlterTopic(topic, TopicChange()))
        return found.topic.uid

    async def list_topics(self) -> tuple[Topic, ...]:
        """Return all topics."""
        return await self._cluster.call("list topics", calls.ListTopics())

    async def describe_topic(self, name: str | TopicName) -> TopicDescription:
        """Return a topic with all its segments."""
        return await self._cluster.describe(topic_name(name))

    async def topic_stats(self, name: str | TopicName) -> tuple[SegmentStats, ...]:
        """Return the high watermark and the rates of every open segment."""
        topic = topic_name(name)
        return await self._cluster.call(f"read the statistics of {topic}", calls.TopicStats(topic))


def _to_bytes(schema: "pa.Schema") -> bytes:
    from seaweedmq.codec.topic_schema import schema_to_bytes  # lazy: topics without columns need no Arrow

    return schema_to_bytes(schema)
