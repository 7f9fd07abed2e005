"""Where new segments go: what the brokers report, whom to avoid, and ``core.allocation`` to choose."""

import asyncio
import random

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.allocation import Candidate, place
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.topic import Topic, TopicSpec

SUSPECT_S = 5.0


class Placement:
    """The brokers as the leader sees them."""

    def __init__(self, view: ClusterView, rng: random.Random) -> None:
        self._view = view
        self._rng = rng
        self.loads: dict[str, BrokerLoad] = {}
        """The last report of each broker."""
        self.suspects: dict[str, float] = {}
        """Broker id -> loop time until which it gets no new segments. A hint; losing it costs a second attempt."""

    def report(self, load: BrokerLoad) -> None:
        """Take in a broker's report, if it is still there."""
        if load.broker in self._view.brokers:
            self.loads[load.broker] = load

    def suspect(self, broker: str) -> None:
        """Give it nothing new for a while."""
        self.suspects[broker] = asyncio.get_running_loop().time() + SUSPECT_S

    def forget_old_suspicions(self) -> None:
        """Brokers that are gone, or were not suspected again."""
        now = asyncio.get_running_loop().time()
        for broker, until in list(self.suspects.items()):
            if until <= now or broker not in self._view.brokers:
                del self.suspects[broker]

    @property
    def draining(self) -> set[str]:
        """Brokers that are being drained."""
        return {b.id for b in self._view.brokers.values() if b.draining}

    @property
    def shunned(self) -> set[str]:
        """Brokers that get nothing new: suspected, or being drained."""
        return self.draining | set(self.suspects)

    def of_successor(self, topic: Topic) -> list[tuple[str, ...]]:
        """Replicas of one new segment; fewer than the topic wants rather than none, when brokers are missing. Empty if
        every broker is being drained.

        If all others are suspected, one of those takes it alone: brokers that lost each other suspect each other again
        and again until their segment is replaced, so none of them would ever be free of suspicion.
        """
        draining = self.draining
        staying = [c for c in self.candidates() if c.broker not in draining]
        trusted = [c for c in staying if c.broker not in self.suspects]
        candidates, wanted = (trusted, topic.replicas) if trusted else (staying, 1)
        if not candidates:
            return []
        return place(candidates, segments=1, replicas=min(wanted, len(candidates)), tie=self._rng.random)

    def of_topic(self, spec: TopicSpec) -> list[tuple[str, ...]]:
        """Replicas of each segment of a new topic. InvalidArgument: more replicas than brokers."""
        draining = self.draining
        candidates = [c for c in self.candidates() if c.broker not in draining]
        return place(candidates, segments=spec.segments, replicas=spec.replicas, tie=self._rng.random)

    def candidates(self) -> list[Candidate]:
        """Every live broker and what it carries."""
        counts = self.open_segments()
        return [
            Candidate(
                broker=broker,
                segments=count,
                cpu_share=load.cpu_share if (load := self.loads.get(broker)) else 0.0,
                bytes_per_s=sum(s.bytes_per_s for s in load.segments) if load else 0.0,
            )
            for broker, count in sorted(counts.items())
        ]

    def open_segments(self) -> dict[str, int]:
        """Live broker -> open segments it is a replica of."""
        counts = dict.fromkeys(self._view.brokers, 0)
        for segments in self._view.segments.values():
            for segment in segments.values():
                for replica in segment.replicas if segment.is_open else ():
                    if replica in counts:
                        counts[replica] += 1
        return counts
