"""The calls that only the leader can answer: answered here if this broker leads, else forwarded to the one that does.

Only shells: the leader's parts do the work.
"""

from seaweedmq.broker.forward import Forwarding
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.model.broker import ClusterStatus, Decision
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.replication import Emptied, Suspicion
from seaweedmq.model.topic import TopicChange, TopicName, TopicSpec


class LeaderCalls:
    """Part of ``ports.LeaderApi``; see there."""

    def __init__(self, forward: Forwarding) -> None:
        self._forward = forward

    async def create_topic(self, spec: TopicSpec) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.administration.create_topic(spec), lambda api: api.create_topic(spec)
        )

    async def alter_topic(self, name: TopicName, change: TopicChange, topic_uid: int = 0) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.administration.alter_topic(name, change, topic_uid),
            lambda api: api.alter_topic(name, change, topic_uid),
        )

    async def delete_topic(self, name: TopicName, topic_uid: int = 0) -> None:
        """See ``ports.LeaderApi``."""
        await self._forward.by_leader(
            lambda leader: leader.administration.delete_topic(name, topic_uid),
            lambda api: api.delete_topic(name, topic_uid),
        )

    async def adopt_schema(self, name: TopicName, schema: bytes, topic_uid: int = 0) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.administration.adopt_schema(name, schema, topic_uid),
            lambda api: api.adopt_schema(name, schema, topic_uid),
        )

    async def split_segment(self, name: TopicName, segment: int, at: int | None) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.reshaping.split(name, segment, at), lambda api: api.split_segment(name, segment, at)
        )

    async def merge_segments(self, name: TopicName, first: int, second: int) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.reshaping.merge(name, first, second),
            lambda api: api.merge_segments(name, first, second),
        )

    async def seal_segment(self, name: TopicName, segment: int) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.reshaping.seal(name, segment), lambda api: api.seal_segment(name, segment)
        )

    async def move_segment(self, name: TopicName, segment: int, brokers: tuple[str, ...]) -> TopicDescription:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(
            lambda leader: leader.reshaping.move(name, segment, brokers),
            lambda api: api.move_segment(name, segment, brokers),
        )

    async def rebalance(self) -> tuple[Decision, ...]:
        """See ``ports.LeaderApi``."""
        return await self._forward.by_leader(lambda leader: leader.balancing.rebalance(), lambda api: api.rebalance())

    async def suspect(self, suspicion: Suspicion) -> None:
        """See ``ports.LeaderApi``."""
        await self._forward.by_leader(lambda leader: leader.suspect(suspicion), lambda api: api.suspect(suspicion))

    async def report_emptied(self, emptied: Emptied) -> None:
        """See ``ports.LeaderApi``."""
        await self._forward.by_leader(
            lambda leader: leader.pruning.prune(emptied), lambda api: api.report_emptied(emptied)
        )

    async def cluster_status(self) -> ClusterStatus:
        """See ``ports.LeaderApi``."""

        async def local(leader: Leader) -> ClusterStatus:
            return leader.status()

        return await self._forward.by_leader(local, lambda api: api.cluster_status())
