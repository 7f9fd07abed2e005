"""Live parts of a broker for tests, which read and break them. The broker shows frozen values only: ``inspect``."""

# ruff: noqa: SLF001

from collections.abc import Mapping

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.broker.serve.publish import PublishService
from seaweedmq.broker.serve.subscribe import SubscribeService
from seaweedmq.coordination.view import ClusterView
from seaweedmq.model.segment import SegmentId


class Insides:
    """The live parts of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def view(self) -> ClusterView:
        """Metadata as the broker knows it."""
        return self._broker._view

    @property
    def descriptions(self) -> Descriptions:
        return self._broker._incarnation_context.descriptions

    @property
    def memory(self) -> BrokerMemory:
        return self._broker._memory

    @property
    def publish(self) -> PublishService:
        return self._broker._publish

    @property
    def subscribe(self) -> SubscribeService:
        return self._broker.api._subscribe

    @property
    def incarnation(self) -> Incarnation | None:
        """Present incarnation, or the last one; None before the first."""
        return self._broker._membership.incarnation

    @property
    def segments(self) -> Mapping[SegmentId, OpenSegment]:
        """Open segments whose primary is the broker, by topic and id."""
        return self._broker._owned.segments

    @property
    def followers(self) -> FollowerService:
        """Segments that the broker follows. Raises Unavailable before it has joined."""
        return self._broker._member().followers

    @property
    def leader(self) -> Leader:
        """Leader duties of the broker, whether it leads or not. Raises Unavailable before it has joined."""
        return self._broker._member().leader

    @property
    def leads(self) -> bool:
        """Whether the broker surely leads now."""
        return self._broker.inspect.leads
