"""Manual transitions: the leader splits, merges, seals and moves segments on request."""

from collections.abc import Sequence

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.leader.placement import Placement
from seaweedmq.broker.leader.transition_runner import Transition, TransitionRunner
from seaweedmq.coordination.description import describe
from seaweedmq.core.balance.splitting import split_slot
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.core.lineage.segment_rules import check_replicas, check_unpartitioned, check_width, halves, neighbors
from seaweedmq.core.lineage.topology import SEGMENTS_PER_TOPIC_MAX
from seaweedmq.errors import InvalidArgument, NotFound, StaleMetadata, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import TopicName

MANUAL = "manual request"


class SegmentAdmin:
    """The leader's answers to ``model.messages.calls`` about segments. A rejected call changes nothing."""

    def __init__(self, *, metadata: Metadata, placement: Placement, transitions: TransitionRunner) -> None:
        self._metadata = metadata
        self._placement = placement
        self._transitions = transitions

    async def split(self, name: TopicName, segment: int, at: int | None) -> TopicDescription:
        """Answer ``calls.SplitSegment``."""
        check_unpartitioned(self._metadata.topic(name), "split")
        predecessor = self._open(name, segment)
        if at is None:
            at = self._halving_slot(predecessor)
        ranges = halves(predecessor, at)
        count = len(self._metadata.view.open_of(name))
        if count >= SEGMENTS_PER_TOPIC_MAX:
            raise InvalidArgument(f"{name} has {count} open segments, the limit of a topic: merge some first")
        full = self._placement.no_room_to_split(self._metadata.topic(name), predecessor)
        if full:
            raise InvalidArgument(f"no room for the halves of {predecessor}: {full}")
        return await self._carry_out("split", (predecessor,), ranges)

    def _halving_slot(self, segment: Segment) -> int:
        """Return the slot that halves the segment's load; the middle without load."""
        traffic = self._placement.traffic(segment)
        at = split_slot(segment.slots.lo, segment.slots.hi, traffic.histogram if traffic else ())
        if at is None:
            check_width(segment)
            raise InvalidArgument(
                f"{segment} has all its load at one slot, so no split halves it: name the slot to split at"
            )
        return at

    async def merge(self, name: TopicName, first: int, second: int) -> TopicDescription:
        """Answer ``calls.MergeSegments``."""
        check_unpartitioned(self._metadata.topic(name), "merged")
        lower, upper = neighbors(self._open(name, first), self._open(name, second))
        for predecessor in (lower, upper):  # before sealing the other one needlessly
            check_recoverable(predecessor)
        return await self._carry_out("merge", (lower, upper), (KeyRange(lower.slots.lo, upper.slots.hi),))

    async def seal(self, name: TopicName, segment: int) -> TopicDescription:
        """Answer ``calls.SealSegment``."""
        predecessor = self._open(name, segment)
        return await self._carry_out("seal", (predecessor,), (predecessor.slots,))

    async def move(self, name: TopicName, segment: int, brokers: tuple[str, ...]) -> TopicDescription:
        """Answer ``calls.MoveSegment``; change nothing if the brokers are its first replicas, all present."""
        predecessor = self._open(name, segment)
        topic = self._metadata.topic(name)
        targets = tuple(self._broker(broker) for broker in brokers)
        check_replicas(topic, targets)
        if predecessor.replicas[: len(targets)] == targets and len(predecessor.replicas) == topic.replicas:
            return describe(self._metadata.view, name)
        full = [target for target in targets if not self._placement.has_room(target, predecessor)]
        if full:
            raise InvalidArgument(
                f"broker {full[0]} is at its limit of open segments (open_segments_max): choose another one"
            )
        return await self._carry_out("move", (predecessor,), (predecessor.slots,), (targets,))

    async def _carry_out(
        self,
        kind: str,
        predecessors: tuple[Segment, ...],
        ranges: tuple[KeyRange, ...],
        preferred: tuple[tuple[str, ...], ...] = (),
    ) -> TopicDescription:
        transition = Transition(kind=kind, predecessors=predecessors, ranges=ranges, preferred=preferred, reason=MANUAL)
        await self._transitions.carry_out(transition)
        return describe(self._metadata.view, transition.topic)

    def _open(self, name: TopicName, number: int) -> Segment:
        self._metadata.topic(name)
        segment = self._metadata.view.segment(SegmentId(name, number))
        if segment is None:
            raise NotFound(f"topic {name} has no segment {number}: see `seaweedmq segment list {name}`")
        if not segment.is_open:
            raise StaleMetadata(f"{segment} is sealed: use {_listed(segment.successors)} instead")
        return segment

    def _broker(self, named: str) -> str:
        """Return the id of a broker given by id or address."""
        found = self._metadata.view.broker_named(named)
        if found.draining:
            raise InvalidArgument(f"broker {named} is being drained: choose another one")
        if found.id in self._placement.suspects:
            raise Unavailable(f"broker {named} is suspected, as another broker could not reach it: retry")
        return found.id


def _listed(segments: Sequence[int]) -> str:
    return ("segment " if len(segments) == 1 else "segments ") + ", ".join(map(str, segments))
