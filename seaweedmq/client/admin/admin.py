"""Administration of topics, segments, groups and brokers: the API behind the command line."""

from seaweedmq.client.admin.groups import GroupAdmin
from seaweedmq.client.admin.segments import SegmentAdmin
from seaweedmq.client.admin.topics import TopicAdmin
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.model.broker import ClusterStatus, Decision
from seaweedmq.model.messages.calls import DrainBroker, GetClusterStatus, Rebalance

DRAIN_TIMEOUT_S = 120.0
"""Default deadline of draining a broker and of a rebalance."""


class Admin(TopicAdmin, SegmentAdmin, GroupAdmin):
    """Administration of a cluster, through any broker.

    Every method raises ``Unavailable`` if no broker answers within ``admin_timeout_s``, and those for a topic, segment
    or group ``NotFound`` if it does not exist. Topics are named ``namespace/name``; their changes return all segments.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

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

    async def rebalance(self) -> tuple[Decision, ...]:
        """Run the balancer now, without its cool-downs, and return its decisions.

        Raises:
            Unavailable: If no broker answers within 120 s.
        """
        return await self._cluster.call("rebalance", Rebalance(), DRAIN_TIMEOUT_S)
