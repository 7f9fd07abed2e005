"""Manual changes of segments."""

from collections.abc import Sequence

from seaweedmq.client.admin.arguments import topic_name
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import InvalidArgument, StaleMetadata
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import Call, MergeSegments, MoveSegment, SealSegment, SplitSegment
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BrokerApi


class SegmentAdmin:
    """The part of :class:`Admin` for segments."""

    _cluster: Cluster

    async def split_segment(self, topic: str | TopicName, segment: int, at: int | None = None) -> TopicDescription:
        """Split a segment in two.

        ``at`` is the first slot of the upper half. Default: the slot that halves the load.

        Raises:
            InvalidArgument: If ``at`` leaves one side empty, or the segment is one slot wide.
            StaleMetadata: If the segment is sealed. Split its successors.
        """
        name = topic_name(topic)
        return await self._change(f"split {name}#{segment}", SplitSegment(name, segment, at))

    async def merge_segments(self, topic: str | TopicName, first: int, second: int) -> TopicDescription:
        """Merge two segments with adjacent key ranges into one.

        Raises:
            InvalidArgument: If the ranges are not adjacent.
            StaleMetadata: If a segment is sealed.
        """
        name = topic_name(topic)
        what = f"merge {name}#{first} and #{second}"
        return await self._change(what, MergeSegments(name, first, second))

    async def seal_segment(self, topic: str | TopicName, segment: int) -> TopicDescription:
        """Seal a segment and open a successor with the same range, on brokers chosen by load.

        Raises:
            StaleMetadata: If the segment is sealed already.
        """
        name = topic_name(topic)
        return await self._change(f"seal {name}#{segment}", SealSegment(name, segment))

    async def move_segment(self, topic: str | TopicName, segment: int, brokers: Sequence[str]) -> TopicDescription:
        """Move a segment's range to other brokers. Nothing changes if they have it already.

        Args:
            topic: The topic, ``namespace/name``.
            segment: The segment's id.
            brokers: The ids or ``host:port`` of the brokers, primary first. If the topic has more replicas, the
                cluster chooses the others by load.

        Raises:
            InvalidArgument: If no broker is named, more than the topic has replicas, one twice, or one that is being
                drained.
            StaleMetadata: If the segment is sealed.
        """
        name = topic_name(topic)
        to = (brokers,) if isinstance(brokers, str) else tuple(brokers)
        if not to:
            raise InvalidArgument(f"no broker to move {name}#{segment} to: name at least one")
        return await self._change(f"move {name}#{segment}", MoveSegment(name, segment, to))

    async def _change(self, what: str, request: Call[TopicDescription]) -> TopicDescription:
        """Change segments. StaleMetadata is final here: a retry does not bring a sealed segment back."""

        async def answered(api: BrokerApi) -> TopicDescription | StaleMetadata:
            try:
                return await api.call(request)
            except StaleMetadata as error:
                return error

        answer = await self._cluster.ask(what, answered)
        if isinstance(answer, StaleMetadata):
            raise answer
        return await self._cluster.whole(answer)
