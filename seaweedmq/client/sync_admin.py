"""The synchronous face of administration."""

from datetime import timedelta

import pyarrow as pa

from seaweedmq.client import admin as aio_admin
from seaweedmq.client.background import Background
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.protocol import SegmentStats, TopicDescription
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
    ) -> TopicDescription:
        """Create a topic of ``segments`` even key ranges.

        Args:
            durability: "replicated" or "stored"; by default "stored" with one replica, "replicated" with more.
            scaling: "auto" lets the cluster split and merge segments, "fixed" does not.
            schema: real columns in place of ``_value``.
            retention: seconds or timedelta that records are kept; None for ever.
            retention_bytes: size beyond which the oldest records go; None for no bound.

        Raises:
            AlreadyExists: the name is taken.
            InvalidArgument: a name, number or schema is not allowed.
        """
        return self._background.run(
            self._core.create_topic(name, segments, replicas, durability, scaling, schema, retention, retention_bytes)
        )

    def alter_topic(
        self,
        name: str | TopicName,
        *,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> TopicDescription:
        """Change settings; None leaves one as it is, a retention of 0 removes the limit. Raises NotFound."""
        return self._background.run(
            self._core.alter_topic(
                name, durability=durability, scaling=scaling, retention=retention, retention_bytes=retention_bytes
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
