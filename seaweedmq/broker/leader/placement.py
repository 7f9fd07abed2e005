"""Where new segments go: what the brokers report, whom to avoid, and ``core.lineage.allocation`` to choose."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.allocation import RATE_COST_BYTES, SEGMENT_COST, Candidate, fits, place, typical_cost
from seaweedmq.errors import InvalidArgument, Unavailable
from seaweedmq.model.broker import BrokerLoad, SegmentLoad
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicSpec

SUSPECT_S = 5.0
REPORTS_UNTIL_SEEN = 2
"""A report covers an interval: what a broker was given is fully in the second one from then on."""


class Placement:
    """The brokers as the leader sees them."""

    def __init__(
        self, view: ClusterView, rng: random.Random, *, report_interval_s: float, open_segments_max: int
    ) -> None:
        self._view = view
        self._rng = rng
        self._report_interval_s = report_interval_s
        self._open_segments_max = open_segments_max
        self.loads: dict[str, BrokerLoad] = {}
        """The last report of each broker."""
        self.reported: dict[str, float] = {}
        """Broker id -> loop time of its last report."""
        self.suspects: dict[str, float] = {}
        """Broker id -> loop time until which it gets no new segments. A hint; losing it costs a second attempt."""
        self._given: list[tuple[float, str, float]] = []
        """Loop time, broker id and expected cost of what was placed and is in no report yet, the oldest first."""

    # --- what is known of brokers -------------------------------------------------------------------------------------

    def report(self, load: BrokerLoad) -> None:
        """Take in a broker's report, if it is still there."""
        if load.broker in self._view.brokers:
            self.loads[load.broker] = load
            self.reported[load.broker] = asyncio.get_running_loop().time()

    def forget(self) -> None:
        """No longer leading: reports go to somebody else."""
        self.loads.clear()
        self.reported.clear()
        self.suspects.clear()
        self._given.clear()

    def suspect(self, broker: str) -> None:
        """Give it nothing new for a while."""
        self.suspects[broker] = asyncio.get_running_loop().time() + SUSPECT_S

    def forget_the_old(self) -> None:
        """What was said of brokers that are gone, and suspicions that nobody repeated."""
        now = asyncio.get_running_loop().time()
        live = self._view.brokers
        for broker in self.loads.keys() - live.keys():
            del self.loads[broker], self.reported[broker]
        for broker, until in list(self.suspects.items()):
            if until <= now or broker not in live:
                del self.suspects[broker]

    @property
    def draining(self) -> set[str]:
        """Brokers that are being drained."""
        return {b.id for b in self._view.brokers.values() if b.draining}

    @property
    def shunned(self) -> set[str]:
        """Brokers that get nothing new: suspected, or being drained."""
        return self.draining | set(self.suspects)

    def traffic(self, segment: Segment) -> SegmentLoad | None:
        """What its primary reported last; None: nothing came in, or no report."""
        load = self.loads.get(segment.primary)
        of = segment.key
        return next((s for s in load.segments if (s.topic, s.segment) == of), None) if load else None

    # --- choosing -----------------------------------------------------------------------------------------------------

    @property
    def somebody_is_free(self) -> bool:
        """Whether there is a broker that is not being drained."""
        return bool(self._view.brokers.keys() - self.draining)

    def check_somebody_is_free(self) -> None:
        """Unavailable: nobody could take a segment."""
        if not self.somebody_is_free:
            raise Unavailable("every broker is being drained: it goes on when one is not")

    def of_successors(
        self, topic: Topic, parents: Sequence[Segment], wishes: Sequence[Sequence[str]]
    ) -> list[tuple[str, ...]]:
        """Replicas of a successor for each wish; fewer than the topic wants rather than none, when brokers are missing.

        Brokers at their limit are avoided, if others suffice: the range of a segment has to be served by somebody.

        If all others are suspected, one of those takes it alone: brokers that lost each other suspect each other again
        and again until their segment is replaced, so none of them would ever be free of suspicion.

        Unavailable: every broker is being drained.
        """
        loads = [load for parent in parents if (load := self.traffic(parent))]
        cost = SEGMENT_COST + sum(load.bytes_per_s for load in loads) / RATE_COST_BYTES / len(wishes)
        placed: list[tuple[str, ...]] = []
        leaving = Counter(replica for parent in parents for replica in parent.replicas)
        for wish in wishes:
            self.check_somebody_is_free()
            draining = self.draining
            staying = [
                replace(c, room=c.room + leaving[c.broker]) for c in self.candidates() if c.broker not in draining
            ]
            trusted = [c for c in staying if c.broker not in self.suspects]
            free, wanted = (trusted, topic.replicas) if trusted else (staying, 1)
            replicas = min(wanted, len(free))
            (chosen,) = place(free, segments=1, replicas=replicas, tie=self._rng.random, wish=wish, cost=cost)
            self._expect([chosen], cost)
            leaving.subtract(chosen)
            placed.append(chosen)
        return placed

    def of_topic(self, spec: TopicSpec) -> list[tuple[str, ...]]:
        """Replicas of each segment of a new topic. InvalidArgument: more replicas than brokers, or no room for them."""
        draining = self.draining
        candidates = [c for c in self.candidates() if c.broker not in draining]
        room = {c.broker: c.room for c in candidates}
        if len(room) >= spec.replicas and not fits(room, segments=spec.segments, replicas=spec.replicas):
            raise InvalidArgument(f"no room for {spec.name} with {_counted(spec)}: {self._why_full()}")
        cost = typical_cost(candidates)
        tie = self._rng.random
        placed = place(candidates, segments=spec.segments, replicas=spec.replicas, tie=tie, cost=cost)
        self._expect(placed, cost)
        return placed

    def no_room_to_split(self, topic: Topic, segment: Segment) -> str | None:
        """Why a segment can not become two: the brokers are at their limit; None: it can."""
        room = {c.broker: c.room + (c.broker in segment.replicas) for c in self.candidates()}
        for broker in self.draining:
            del room[broker]
        replicas = min(topic.replicas, len(room))
        return None if fits(room, segments=2, replicas=replicas) else self._why_full()

    def has_room(self, broker: str, segment: Segment) -> bool:
        """Whether a broker may take a successor of the segment."""
        return broker in segment.replicas or self.open_counts().get(broker, 0) < self._open_segments_max

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
        self._given += [(now, broker, cost * count) for broker, count in sorted(counts.items())]

    def candidates(self) -> list[Candidate]:
        """Every live broker and what it carries."""
        until = asyncio.get_running_loop().time() - REPORTS_UNTIL_SEEN * self._report_interval_s
        self._given = [given for given in self._given if given[0] > until]
        expected = dict.fromkeys(self._view.brokers, 0.0)
        for _, broker, cost in self._given:
            if broker in expected:
                expected[broker] += cost
        return [
            Candidate(
                broker=broker,
                segments=count,
                cpu_share=load.cpu_share if (load := self.loads.get(broker)) else 0.0,
                bytes_per_s=sum(s.bytes_per_s for s in load.segments) if load else 0.0,
                expected=expected[broker],
                room=self._open_segments_max - count,
            )
            for broker, count in sorted(self.open_counts().items())
        ]

    def open_counts(self) -> dict[str, int]:
        """Live broker -> open segments it is a replica of."""
        counts = dict.fromkeys(self._view.brokers, 0)
        for name, segments in self._view.open_segments.items():
            for segment in segments.values() if name in self._view.topics else ():
                for replica in segment.replicas:
                    if replica in counts:
                        counts[replica] += 1
        return counts


def _counted(spec: TopicSpec) -> str:
    segments = f"{spec.segments} segment{'s' if spec.segments > 1 else ''}"
    return segments if spec.replicas == 1 else f"{segments} of {spec.replicas} replicas each"
