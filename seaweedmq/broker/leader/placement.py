"""Placement of new segments by load reports, suspicions and ``core.lineage.allocation``."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.allocation import RATE_COST_BYTES, SEGMENT_COST, Candidate, fits, place, typical_cost
from seaweedmq.errors import InvalidArgument, Unavailable
from seaweedmq.model.broker import BrokerLoad, SegmentLoad
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName, TopicSpec

SUSPECT_S = 5.0
REPORTS_UNTIL_SEEN = 2
"""Reports until a new segment is visible: each covers an interval, so only the second one covers it in full."""


class _Traffic(NamedTuple):
    """A load report, indexed by segment."""

    segments: Mapping[SegmentId, SegmentLoad]
    bytes_per_s: float

    @classmethod
    def of(cls, load: BrokerLoad) -> "_Traffic":
        return cls({SegmentId(s.topic, s.segment): s for s in load.segments}, sum(s.bytes_per_s for s in load.segments))


NO_TRAFFIC = _Traffic({}, 0.0)


class Reserve(NamedTuple):
    """Open segments reserved for a topic until its creation, however many topics precede it."""

    topic: TopicName
    segments: int
    """Open segments reserved on each broker."""


class Placement:
    """The brokers as the leader sees them."""

    def __init__(
        self,
        view: ClusterView,
        rng: random.Random,
        *,
        report_interval_s: float,
        open_segments_max: int,
        reserve: Reserve | None = None,
    ) -> None:
        """Create the placement; ``reserve`` are open segments kept for a topic until it exists."""
        self._view = view
        self._rng = rng
        self._report_interval_s = report_interval_s
        self._open_segments_max = open_segments_max
        self._reserve = reserve
        self.loads: dict[str, BrokerLoad] = {}
        """Last report of each broker, by broker id."""
        self.reported: dict[str, float] = {}
        """Loop time of each broker's last report, by broker id."""
        self.suspects: dict[str, float] = {}
        """Loop time until which a broker gets no new segments, by broker id.

        A hint: its loss costs a second attempt.
        """
        self._traffic: dict[str, _Traffic] = {}
        """Last report of each broker, indexed by segment."""
        self._given: deque[tuple[float, str, float]] = deque()
        """Loop time, broker id and expected cost of placements that no report covers yet, oldest first."""
        self._expected: dict[str, float] = {}
        """Cost of all unreported placements, by broker id."""

    def report(self, load: BrokerLoad) -> None:
        """Record a broker's report, if the broker is still registered."""
        if load.broker in self._view.brokers:
            self.loads[load.broker] = load
            self._traffic[load.broker] = _Traffic.of(load)
            self.reported[load.broker] = asyncio.get_running_loop().time()

    def forget(self) -> None:
        """Drop all reports: the next leader gets them."""
        self.loads.clear()
        self.reported.clear()
        self.suspects.clear()
        self._traffic.clear()
        self._given.clear()
        self._expected.clear()

    def suspect(self, broker: str) -> None:
        """Place nothing new on the broker for ``SUSPECT_S``."""
        self.suspects[broker] = asyncio.get_running_loop().time() + SUSPECT_S

    def drop_outdated(self) -> None:
        """Drop reports of unregistered brokers, and expired suspicions."""
        now = asyncio.get_running_loop().time()
        live = self._view.brokers
        for broker in self.loads.keys() - live.keys():
            del self.loads[broker], self.reported[broker], self._traffic[broker]
        for broker, until in list(self.suspects.items()):
            if until <= now or broker not in live:
                del self.suspects[broker]

    @property
    def draining(self) -> set[str]:
        """Ids of the brokers being drained."""
        return {b.id for b in self._view.brokers.values() if b.draining}

    @property
    def avoided(self) -> set[str]:
        """Ids of the brokers that get no new segments: suspected or being drained."""
        return self.draining | set(self.suspects)

    def traffic(self, segment: Segment) -> SegmentLoad | None:
        """Return the last report of the segment's primary; None without traffic, or without a report."""
        return self._traffic.get(segment.primary, NO_TRAFFIC).segments.get(segment.key)

    @property
    def has_target(self) -> bool:
        """Whether a broker is not being drained."""
        return bool(self._view.brokers.keys() - self.draining)

    def check_target(self) -> None:
        """Raise Unavailable if no broker can take a segment."""
        if not self.has_target:
            raise Unavailable("every broker is being drained: add a broker")

    def of_successors(
        self, topic: Topic, predecessors: Sequence[Segment], preferred: Sequence[Sequence[str]]
    ) -> list[tuple[str, ...]]:
        """Return the replicas of each successor, fewer than the topic has if brokers are missing.

        Brokers at their limit are avoided if others suffice: the slot range of a segment always needs a primary. If all
        others are suspected, one of those takes the segment alone. Brokers that lost each other keep suspecting each
        other until their segment is replaced, so none of them would ever be free of suspicion. Raises Unavailable if
        every broker is being drained.
        """
        loads = [load for predecessor in predecessors if (load := self.traffic(predecessor))]
        cost = SEGMENT_COST + sum(load.bytes_per_s for load in loads) / RATE_COST_BYTES / len(preferred)
        placed: list[tuple[str, ...]] = []
        leaving = Counter(replica for predecessor in predecessors for replica in predecessor.replicas)
        for preferred_brokers in preferred:
            self.check_target()
            draining = self.draining
            staying = [
                replace(c, room=c.room + leaving[c.broker]) for c in self.candidates() if c.broker not in draining
            ]
            trusted = [c for c in staying if c.broker not in self.suspects]
            free, wanted = (trusted, topic.replicas) if trusted else (staying, 1)
            replicas = min(wanted, len(free))
            (chosen,) = place(
                free, segments=1, replicas=replicas, tie=self._rng.random, preferred=preferred_brokers, cost=cost
            )
            self._expect([chosen], cost)
            leaving.subtract(chosen)
            placed.append(chosen)
        return placed

    def of_topics(self, specs: Sequence[TopicSpec]) -> list[list[tuple[str, ...]]]:
        """Return the replicas of each segment of new topics.

        Raises InvalidArgument if a topic has more replicas than there are brokers, or there is no room.
        """
        draining = self.draining
        given: Counter[str] = Counter()
        led: Counter[str] = Counter()
        placed: list[list[tuple[str, ...]]] = []
        for spec in specs:
            reserved = self._reserved(spec.name)
            candidates = [
                replace(c, room=c.room - given[c.broker] - reserved, leads=c.leads + led[c.broker])
                for c in self.candidates()
                if c.broker not in draining
            ]
            room = {c.broker: c.room for c in candidates}
            if len(room) >= spec.replicas and not fits(room, segments=spec.first_segments, replicas=spec.replicas):
                raise InvalidArgument(f"no room for {spec.name} with {_counted(spec)}: {self._why_full()}")
            cost, tie = typical_cost(candidates), self._rng.random
            of_topic = place(candidates, segments=spec.first_segments, replicas=spec.replicas, tie=tie, cost=cost)
            self._expect(of_topic, cost)
            given.update(broker for replicas in of_topic for broker in replicas)
            led.update(primary for primary, *_ in of_topic)
            placed.append(of_topic)
        return placed

    def no_room_to_split(self, topic: Topic, segment: Segment) -> str | None:
        """Return why a segment cannot be split, if the brokers are at their limit; None if it can."""
        reserved = self._reserved(topic.name)
        room = {c.broker: c.room + (c.broker in segment.replicas) - reserved for c in self.candidates()}
        for broker in self.draining:
            del room[broker]
        replicas = min(topic.replicas, len(room))
        return None if fits(room, segments=2, replicas=replicas) else self._why_full()

    def has_room(self, broker: str, segment: Segment) -> bool:
        """Whether a broker may take a successor of the segment."""
        return broker in segment.replicas or self.open_counts().get(broker, 0) < self._open_segments_max

    def _reserved(self, topic: TopicName) -> int:
        """Return the open segments of each broker that the topic may not take."""
        reserve = self._reserve
        return (
            0 if reserve is None or topic == reserve.topic or reserve.topic in self._view.topics else reserve.segments
        )

    def _why_full(self) -> str:
        counts = [count for broker, count in self.open_counts().items() if broker not in self.draining]
        return (
            f"{len(counts)} brokers may have {self._open_segments_max} open segments each (open_segments_max; every "
            f"replica counts), and have {sum(counts)} in all: delete topics, merge segments, add brokers, or raise "
            "open_segments_max on all brokers"
        )

    def _expect(self, placed: Sequence[tuple[str, ...]], cost: float) -> None:
        now = asyncio.get_running_loop().time()
        counts = Counter(broker for replicas in placed for broker in replicas)
        for broker, count in sorted(counts.items()):
            self._given.append((now, broker, cost * count))
            self._expected[broker] = self._expected.get(broker, 0.0) + cost * count

    def _forget_reported(self) -> None:
        until = asyncio.get_running_loop().time() - REPORTS_UNTIL_SEEN * self._report_interval_s
        while self._given and self._given[0][0] <= until:
            _, broker, cost = self._given.popleft()
            self._expected[broker] -= cost
        if not self._given:
            self._expected.clear()  # also clears rounding errors

    def candidates(self) -> list[Candidate]:
        """Return every live broker and its load."""
        self._forget_reported()
        return [
            Candidate(
                broker=broker,
                segments=count,
                leads=self._view.led.get(broker, 0),
                cpu_share=load.cpu_share if (load := self.loads.get(broker)) else 0.0,
                bytes_per_s=self._traffic.get(broker, NO_TRAFFIC).bytes_per_s,
                expected=self._expected.get(broker, 0.0),
                room=self._open_segments_max - count,
            )
            for broker, count in sorted(self.open_counts().items())
        ]

    def open_counts(self) -> dict[str, int]:
        """Return the open segments of each live broker that it is a replica of."""
        carried = self._view.carried
        return {broker: carried.get(broker, 0) for broker in self._view.brokers}


def _counted(spec: TopicSpec) -> str:
    count = spec.first_segments
    segments = f"{count} segment{'s' if count > 1 else ''}"
    return segments if spec.replicas == 1 else f"{segments} of {spec.replicas} replicas each"
