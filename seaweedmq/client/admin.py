"""Topics and the cluster: what the command line does, for programs."""

from datetime import timedelta

import pyarrow as pa

from seaweedmq.client.cluster import Cluster
from seaweedmq.codec.batch import schema_to_bytes
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.protocol import SegmentStats, TopicDescription
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec

DRAIN_TIMEOUT_S = 120.0


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


def _scaling(value: "str | Scaling") -> Scaling:
    try:
        return Scaling(value)
    except ValueError:
        raise InvalidArgument(f"scaling {value!r} is unknown: use auto or fixed") from None


def _retention_s(value: "float | timedelta | None") -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value


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
        spec = TopicSpec(
            name=topic_name(name),
            segments=segments,
            replicas=replicas,
            durability=_durability(durability),
            scaling=_scaling(scaling),
            schema=None if schema is None else schema_to_bytes(schema),
            retention_s=_retention_s(retention),
            retention_bytes=retention_bytes,
        )
        return await self._cluster.call(f"create topic {spec.name}", lambda api: api.create_topic(spec))

    async def alter_topic(
        self,
        name: str | TopicName,
        *,
        durability: str | Durability | None = None,
        scaling: str | Scaling | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> TopicDescription:
        """Change settings; None leaves one as it is, a retention of 0 removes the limit. Raises NotFound."""
        topic = topic_name(name)
        change = TopicChange(
            durability=_durability(durability),
            scaling=None if scaling is None else _scaling(scaling),
            retention_s=_retention_s(retention),
            retention_bytes=retention_bytes,
        )
        return await self._cluster.call(f"alter topic {topic}", lambda api: api.alter_topic(topic, change))

    async def delete_topic(self, name: str | TopicName) -> None:
        """Delete a topic and all its data. Raises NotFound."""
        topic = topic_name(name)
        await self._cluster.call(f"delete topic {topic}", lambda api: api.delete_topic(topic))

    async def list_topics(self) -> tuple[Topic, ...]:
        """All topics."""
        return await self._cluster.call("list topics", lambda api: api.list_topics())

    async def describe_topic(self, name: str | TopicName) -> TopicDescription:
        """A topic with all its segments. Raises NotFound."""
        return await self._cluster.describe(topic_name(name))

    async def topic_stats(self, name: str | TopicName) -> tuple[SegmentStats, ...]:
        """High watermark and rates of every open segment. Raises NotFound."""
        topic = topic_name(name)
        return await self._cluster.call(f"read the figures of {topic}", lambda api: api.topic_stats(topic))

    async def cluster_status(self) -> ClusterStatus:
        """Brokers, leader and load."""
        return await self._cluster.call("read the cluster's status", lambda api: api.cluster_status())

    async def drain(self, broker: str, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Move every segment away from a broker (id or host:port), which gets no new ones, and wait until it is done.

        Raises:
            NotFound: no such broker.
            InvalidArgument: it is the last one.
            Unavailable: not done within ``timeout`` seconds; asking again goes on.
        """
        await self._cluster.call(f"drain broker {broker}", lambda api: api.drain_broker(broker), timeout)
