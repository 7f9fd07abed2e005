"""Administration of groups and Kafka groups."""

from seaweedmq.client.admin.arguments import topic_name
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.start import StartAt, start_of
from seaweedmq.model.kafka.group_admin import KafkaGroupDescription, KafkaGroupSummary
from seaweedmq.model.messages import calls
from seaweedmq.model.messages.groups import GroupDescription, GroupSummary
from seaweedmq.model.topic import TopicName, check_name


class GroupAdmin:
    """The part of :class:`Admin` for groups."""

    _cluster: Cluster

    async def list_groups(self) -> tuple[GroupSummary, ...]:
        """Return one entry per group and topic, ordered by group, then topic."""
        return await self._cluster.call("list groups", calls.ListGroups())

    async def describe_group(self, group: str) -> GroupDescription:
        """Return the members, owners, committed offsets and lag in records of a group.

        Raises InvalidArgument if the name is invalid.
        """
        check_name("group name", group)
        return await self._cluster.call(f"describe group {group}", calls.DescribeGroup(group))

    async def group_lag_seconds(self, group: str) -> dict[str, dict[int, float]]:
        """Return the lag of a group in seconds. Reads one record of every segment that lags.

        Returns:
            Topic -> segment -> age in seconds of the first record above the committed offset; 0 if there is none.

        Raises:
            Unavailable: If a segment could not be read within ``admin_timeout_s``.
        """
        # Lazy import: it alone reads records, which needs Arrow, and Arrow takes long to load.
        from seaweedmq.client.admin.lag import lag_seconds

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

        Raises:
            NotFound: If the group never read the topic.
            InvalidArgument: If the group has members and ``force`` is false.
        """
        name, start = topic_name(topic), start_of(to)
        check_name("group name", group)
        return await self._cluster.call(f"reset group {group}", calls.ResetGroup(group, name, start, bool(force)))

    async def delete_group(self, group: str, force: bool = False) -> None:
        """Delete a group and all its offsets; with ``force`` also one with members, whose membership ends.

        Raises InvalidArgument if the group has members and ``force`` is false.
        """
        check_name("group name", group)
        await self._cluster.call(f"delete group {group}", calls.DeleteGroup(group, bool(force)))

    async def list_kafka_groups(self) -> tuple[KafkaGroupSummary, ...]:
        """Return the groups of Kafka consumers by id. Subscribers' groups are separate."""
        return await self._cluster.call("list Kafka groups", calls.ListKafkaGroups())

    async def describe_kafka_group(self, group: str) -> KafkaGroupDescription:
        """Return the members, their partitions, committed offsets and lag in records of a Kafka group."""
        return await self._cluster.call(f"describe Kafka group {group!r}", calls.DescribeKafkaGroup(group))

    async def reset_kafka_group(self, group: str, topic: str | TopicName, to: StartAt) -> KafkaGroupDescription:
        """Reset the offsets of a Kafka group in a topic.

        Args:
            group: The group's id.
            topic: The topic, ``namespace/name``.
            to: ``"earliest"``, ``"latest"``, an offset for every partition, or a datetime.

        Raises:
            InvalidArgument: If the group has members. Stop them first.
        """
        name, start = topic_name(topic), start_of(to)
        return await self._cluster.call(f"reset Kafka group {group!r}", calls.ResetKafkaGroup(group, name, start))

    async def delete_kafka_group(self, group: str) -> None:
        """Delete a Kafka group and all its offsets.

        Raises InvalidArgument if the group has members. Stop them first.
        """
        await self._cluster.call(f"delete Kafka group {group!r}", calls.DeleteKafkaGroup(group))
