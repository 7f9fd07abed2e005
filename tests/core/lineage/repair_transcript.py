"""Transcripts of repairs of a topic's segments: events at brokers, repairs that are due, and their results."""

from collections.abc import Iterable, Mapping

from seaweedmq.core.lineage.allocation import Candidate, place
from seaweedmq.core.lineage.repair import Repair, reinforcements, repairs
from seaweedmq.core.lineage.topology import SegmentEnd, new_topic, succeed
from seaweedmq.model.segment import SegmentId
from seaweedmq.model.topic import TopicName, TopicSpec

NAME = TopicName("shop", "orders")


class Transcript:
    """A topic whose first segments have the given replicas ("a b": a is the primary). Each method that reports an event
    at a broker returns the repairs that are due then, as lines, in their order."""

    def __init__(self, *placement: str, replicas: int = 2, others: str = "") -> None:
        spec = TopicSpec(name=NAME, segments=len(placement), replicas=replicas)
        placed = [tuple(brokers.split()) for brokers in placement]
        change = new_topic(spec, uid=7, now_us=0, placement=placed)
        self.topic = change.topic
        self.segments = {segment.id: segment for segment in change.segments}
        self.live = {broker for brokers in placed for broker in brokers} | set(others.split())
        self.draining: set[str] = set()
        self.suspected: set[str] = set()
        self.broken: set[SegmentId] = set()

    # --- what happens to brokers, and between them
    def dies(self, *brokers: str) -> list[str]:
        self.live -= set(brokers)
        return self.due()

    def comes(self, *brokers: str) -> list[str]:
        self.live |= set(brokers)
        return self.due()

    def is_drained(self, broker: str) -> list[str]:
        self.draining.add(broker)
        return self.due()

    def lost_each_other(self, segment: int, suspected: str) -> list[str]:
        """Report that the replicas of a segment lost each other: the suspected one did not answer the leader."""
        self.broken.add(SegmentId(NAME, segment))
        self.suspected.add(suspected)
        return self.due()

    def is_trusted_again(self, broker: str) -> list[str]:
        self.suspected.discard(broker)
        return self.due()

    # --- what the leader makes of it
    def due(self) -> list[str]:
        return [self._line(repair) for repair in self._due()]

    def is_repaired(self, count: int | None = None) -> list[str]:
        """Seal so many of the due segments, or all, and give them successors; return a line for each."""
        return [self._replaced(repair) for repair in list(self._due())[:count]]

    def is_repaired_to_the_end(self) -> list[str]:
        """Repair until nothing is due. Missing replicas are replaced one at a time, as the leader does."""
        lines: list[str] = []
        while self._due():
            assert len(lines) < 100, f"repairs without end: {lines[-4:]}"
            lines += self.is_repaired(1)
        return lines

    def _due(self) -> list[Repair]:
        opened = [segment for segment in self.segments.values() if segment.is_open]
        found = repairs(
            opened, self.live, draining=self.draining, suspected=self.suspected, broken=self.broken
        )  # fmt: skip
        return found or reinforcements(opened, {NAME: self.topic}, len(self._free()))

    def _replaced(self, repair: Repair) -> str:
        free = self._free()
        (replicas,) = place(
            [Candidate(broker=broker, segments=count) for broker, count in free.items()],
            segments=1,
            replicas=min(self.topic.replicas, len(free)),
            tie=lambda: 0.0,
            preferred=repair.healthy_replicas,
        )
        sealing = SegmentEnd(segment=repair.segment, end_offset=repair.segment.start_offset + 10, epoch=2, sequences=())
        change = succeed(self.topic, [sealing], ranges=[repair.segment.slots], placement=[replicas], now_us=0)
        self.topic = change.topic
        self.segments |= {segment.id: segment for segment in change.segments}
        successor = change.segments[-1]
        return f"{repair.segment.id} -> {successor.id}: {' '.join(successor.replicas)}"

    def _free(self) -> Mapping[str, int]:
        """Brokers that accept new segments -> open segments they have."""
        free = sorted(self.live - self.draining - self.suspected)
        return {broker: _count(broker, (s.replicas for s in self.segments.values() if s.is_open)) for broker in free}

    def _line(self, repair: Repair) -> str:
        return f"{repair.segment.id}: {repair.reason}; {' '.join(repair.healthy_replicas) or 'no replica'} stays"


def _count(broker: str, replicas: Iterable[tuple[str, ...]]) -> int:
    return sum(broker in names for names in replicas)
