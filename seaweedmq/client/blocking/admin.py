"""The synchronous face of administration."""

from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa

from seaweedmq.client.admin import admin as aio_admin
from seaweedmq.client.blocking.background import Background
from seaweedmq.client.start import StartAt
from seaweedmq.model.broker import ClusterStatus, Decision
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.groups import GroupDescription, GroupSummary
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName


class Admin:
    """Administration over any broker. Every method raises Unavailable when no broker answers in time."""

    def __init__(self, core: aio_admin.Admin, background: Background) -> None:
        self._core = core
        self._background = background

    def create_topic(
        self,
        name: str | TopicName,
        segments: int = 1,
        replicas: int = 1,
        durability: str | Durability | None = None,
        scaling: str | Scaling = Scaling.AUTO,
        schema: pa.Schema | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        target_bytes_per_s: float | None = None,
        target_records_per_s: float | None = None,
    ) -> TopicDescription:
        """Create a topic of ``segments`` even key ranges.

        Args:
            durability: "replicated" or "stored"; by default "stored" with one replica, "replicated" with more.
            scaling: "auto" lets the cluster split and merge segments, "fixed" does not.
            schema: real columns in place of ``_value``.
            retention: seconds or timedelta that records are kept; None for ever.
            retention_bytes: size beyond which the oldest records go; None for no bound.
            target_bytes_per_s, target_records_per_s: what one segment should carry; one with twice as much is split.
                None: as the cluster's settings say.

        Raises:
            AlreadyExists: the name is taken.
            InvalidArgument: a name, number or schema is not allowed.
        """
        return self._background.run(
            self._core.create_topic(
                name,
                segments,
                replicas,
                durability,
                scaling,
                schema,
                retention,
                retention_bytes,
                target_bytes_per_s,
                target_records_per_s,
            )
        )

    def alter_topic(
        self,
        name: str | TopicName,
        *,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        target_bytes_per_s: float | None = None,
        target_records_per_s: float | None = None,
    ) -> TopicDescription:
        """Change settings; None leaves one as it is, 0 removes a retention limit or an own target. Raises NotFound."""
        return self._background.run(
            self._core.alter_topic(
                name,
                durability=durability,
                scaling=scaling,
                retention=retention,
                retention_bytes=retention_bytes,
                target_bytes_per_s=target_bytes_per_s,
                target_records_per_s=target_records_per_s,
            )
        )

    def delete_topic(self, name: str | TopicName) -> None:
        """Delete a topic and all its data. Raises NotFound."""
        self._background.run(self._core.delete_topic(name))

    def list_topics(self) -> tuple[Topic, ...]:
        """All topics."""
        return self._background.run(self._core.list_topics())

    def describe_topic(self, name: str | TopicName) -> TopicDescription:
        """A topic with all its segments. Raises NotFound."""
        return self._background.run(self._core.describe_topic(name))

    def topic_stats(self, name: str | TopicName) -> tuple[SegmentStats, ...]:
        """High watermark and rates of every open segment. Raises NotFound."""
        return self._background.run(self._core.topic_stats(name))

    def cluster_status(self) -> ClusterStatus:
        """Brokers, leader and load."""
        return self._background.run(self._core.cluster_status())

    def drain(self, broker: str, timeout: float = aio_admin.DRAIN_TIMEOUT_S) -> None:
        """Move every segment away from a broker (id or host:port), which gets no new ones, and wait until it is done.

        Raises:
            NotFound: no such broker.
            InvalidArgument: it is the last one.
            Unavailable: not done within ``timeout`` seconds; asking again goes on.
        """
        self._background.run(self._core.drain(broker, timeout))

    def split_segment(self, topic: str | TopicName, segment: int, at: int | None = None) -> TopicDescription:
        """Cut a segment in two at slot ``at``, the first of the upper one; None: where its load halves.

        Raises:
            NotFound: no such topic or segment.
            InvalidArgument: ``at`` leaves one side empty, or the segment is one slot wide.
            StaleMetadata: the segment is sealed; its successors may be split.
        """
        return self._background.run(self._core.split_segment(topic, segment, at))

    def merge_segments(self, topic: str | TopicName, first: int, second: int) -> TopicDescription:
        """Make one segment of two whose ranges are neighbours.

        Raises:
            NotFound: no such topic or segment.
            InvalidArgument: they are not neighbours.
            StaleMetadata: one is sealed.
        """
        return self._background.run(self._core.merge_segments(topic, first, second))

    def seal_segment(self, topic: str | TopicName, segment: int) -> TopicDescription:
        """Close a segment and open a successor of the same range, wherever there is room.

        Raises:
            NotFound: no such topic or segment.
            StaleMetadata: it is sealed already.
        """
        return self._background.run(self._core.seal_segment(topic, segment))

    def move_segment(self, topic: str | TopicName, segment: int, brokers: Sequence[str]) -> TopicDescription:
        """Give a segment's range to these brokers (ids or host:port), the primary first. Where the topic has more
        replicas the others are chosen by load. Nothing is done if they have it already.

        Raises:
            NotFound: no such topic, segment or broker.
            InvalidArgument: more brokers than the topic has replicas, one twice, or one that is being drained.
            StaleMetadata: the segment is sealed.
        """
        return self._background.run(self._core.move_segment(topic, segment, brokers))

    def rebalance(self) -> tuple[Decision, ...]:
        """Do now what the balancer would do, without waiting for cool-downs; return what was decided."""
        return self._background.run(self._core.rebalance())

    def list_groups(self) -> tuple[GroupSummary, ...]:
        """One entry for each group and topic, by group, then topic."""
        return self._background.run(self._core.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """Members, owners, committed offsets and lag in records. Raises NotFound."""
        return self._background.run(self._core.describe_group(group))

    def group_lag_seconds(self, group: str) -> dict[str, dict[int, float]]:
        """Lag in time: topic -> segment -> age of the first record the group has not committed, 0 if there is none.

        Reads one record of every segment that lags.

        Raises:
            NotFound: no such group.
            Unavailable: a segment could not be read in time.
        """
        return self._background.run(self._core.group_lag_seconds(group))

    def reset_group(self, group: str, topic: str | TopicName, to: StartAt, force: bool = False) -> GroupDescription:
        """Have a group read a topic from another place.

        Args:
            to: "earliest", "latest", an offset or a datetime, as ``start`` of a subscriber.
            force: also while the group has members; they go on from there, too.

        Raises:
            NotFound: no such group, or it never read the topic.
            InvalidArgument: it has members and ``force`` is not given.
        """
        return self._background.run(self._core.reset_group(group, topic, to, force))

    def delete_group(self, group: str, force: bool = False) -> None:
        """Forget a group and all its offsets.

        Args:
            force: also while the group has members; they are thrown out.

        Raises:
            NotFound: no such group.
            InvalidArgument: it has members and ``force`` is not given.
        """
        self._background.run(self._core.delete_group(group, force))
