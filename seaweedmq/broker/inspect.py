"""Read access to the parts of one broker, for tests, metrics and views."""

from collections.abc import Callable, Mapping

from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.owned import OwnedSegments
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.broker.serve.publish import PublishService
from seaweedmq.broker.serve.subscribe import SubscribeService
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Unavailable
from seaweedmq.model.segment import SegmentId


class Inspection:
    """A read-only view of one broker."""

    def __init__(
        self,
        *,
        view: ClusterView,
        descriptions: Descriptions,
        owned: OwnedSegments,
        memory: BrokerMemory,
        publish: PublishService,
        subscribe: SubscribeService,
        incarnation: Callable[[], Incarnation | None],
        loop_holds: Callable[[], int],
    ) -> None:
        self.view = view
        """Metadata as this broker knows it."""
        self.descriptions = descriptions
        """Descriptions of topics."""
        self.memory = memory
        """Memory budgets."""
        self.publish = publish
        self.subscribe = subscribe
        self._owned = owned
        self._incarnation = incarnation
        self._loop_holds = loop_holds

    @property
    def incarnation(self) -> Incarnation | None:
        """Present incarnation, or the last one; None before the first."""
        return self._incarnation()

    @property
    def segments(self) -> Mapping[SegmentId, OpenSegment]:
        """Open segments whose primary is this broker, by topic and id."""
        return self._owned.segments

    @property
    def followers(self) -> FollowerService:
        """Segments that this broker follows. Raises Unavailable before it has joined."""
        return self._member().followers

    @property
    def leader(self) -> Leader:
        """Leader duties of this broker, whether it leads or not. Raises Unavailable before it has joined."""
        return self._member().leader

    @property
    def leads(self) -> bool:
        """Whether this broker surely leads now."""
        incarnation = self._incarnation()
        return incarnation is not None and incarnation.leader.leading

    @property
    def loop_holds(self) -> int:
        """Number of times that the event loop was held since the start; the log has the stack of each."""
        return self._loop_holds()

    def _member(self) -> Incarnation:
        incarnation = self._incarnation()
        if incarnation is None:
            raise Unavailable("this broker has not joined the cluster yet: retry")
        return incarnation
