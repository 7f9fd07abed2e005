"""A pure model of a cluster under synthetic traffic, for the balancer's tests and benchmark.

Topics have a rate and a profile of slots; every step measures the segments as brokers would, calls the balancer, and
performs its actions at once. Only the noise is random.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from seaweedmq.core.balance.decide import (
    Action,
    BalancerSettings,
    ClusterColumns,
    Hold,
    Loads,
    Merge,
    Move,
    Split,
    decide,
)
from seaweedmq.core.lineage.allocation import RATE_COST_BYTES, SEGMENT_COST, Candidate, place
from seaweedmq.core.lineage.repair import Repair, reinforcements, repairs
from seaweedmq.model.broker import BrokerInfo, BrokerLoad, SegmentLoad
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, RING_SLOTS_MAX, WHOLE_RING, KeyRange, covers_ring, even_ranges
from seaweedmq.model.segment import Segment, SegmentId, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName

SHORT_S, LONG_S = 2.0, 20.0
"""Time constants of the averages, as in ``BrokerConfig``."""

Profile = npt.NDArray[np.float64]
"""(RING_SLOTS_MAX + 1,) the share of a topic's load below each slot, from 0 to 1."""


def even_profile() -> Profile:
    """Return a profile in which every slot carries the same."""
    return np.linspace(0.0, 1.0, RING_SLOTS_MAX + 1)


def profile_of(slots: Mapping[int, float], even_share: float = 0.0) -> Profile:
    """Return a profile with these relative loads of some slots; ``even_share`` of the whole is spread over the ring."""
    load = np.zeros(RING_SLOTS_MAX)
    for slot, weight in slots.items():
        load[slot] += weight
    load = (1 - even_share) * load / load.sum() + even_share / RING_SLOTS_MAX
    return np.concatenate(([0.0], np.cumsum(load)))


def zipf_profile(keys: int, exponent: float, rng: random.Random) -> Profile:
    """Return a profile of keys with Zipf-distributed rates at random slots."""
    load = np.zeros(RING_SLOTS_MAX)
    slots = np.array([rng.randrange(RING_SLOTS_MAX) for _ in range(keys)])
    np.add.at(load, slots, 1.0 / np.arange(1, keys + 1) ** exponent)
    return np.concatenate(([0.0], np.cumsum(load / load.sum())))


@dataclass
class Traffic:
    """Publish load of a topic."""

    bytes_per_s: float
    profile: Profile
    record_bytes: float = 1_000.0


@dataclass
class Measured:
    """An open segment and the averages that its primary would report."""

    segment: Segment
    short: float | None = None
    """Bytes/s; None until the first measurement."""
    long: float = 0.0


class World:
    """Brokers, topics, open segments, traffic, and a wall clock in seconds."""

    def __init__(self, settings: BalancerSettings, brokers: int, *, seed: int = 0) -> None:
        self.settings = settings
        self.now_s = 1_000_000.0
        self.brokers: dict[str, BrokerInfo] = {}
        self.topics: dict[TopicName, Topic] = {}
        self.traffic: dict[TopicName, Traffic] = {}
        self.segments: dict[SegmentId, Measured] = {}
        self.suspected: set[str] = set()
        self.repaired: list[Repair] = []
        self._rng = np.random.default_rng(seed)
        for number in range(brokers):
            self.add_broker(f"b-{number:03}")

    # --- changes from outside -----------------------------------------------------------------------------------------

    def add_broker(self, broker: str) -> None:
        """Let a broker join, without any segment."""
        self.brokers[broker] = BrokerInfo(id=broker, address=f"{broker}:1", started_us=0, pid=1, version="model")

    def lose_broker(self, broker: str) -> None:
        """End its lease."""
        del self.brokers[broker]

    def drain_broker(self, broker: str) -> None:
        """Mark the broker as draining."""
        self.brokers[broker] = replace(self.brokers[broker], draining=True)

    def add_topic(
        self,
        name: str,
        traffic: Traffic,
        *,
        segments: int = 1,
        replicas: int = 1,
        scaling: Scaling = Scaling.AUTO,
        target_bytes_per_s: float | None = None,
        placement: Sequence[tuple[str, ...]] | None = None,
        segments_min: int = 1,
    ) -> TopicName:
        """Add a topic with even segments, placed in turn on the brokers unless ``placement`` has their brokers."""
        topic_name = TopicName.parse(name)
        ids = sorted(self.brokers)
        turn = len(self.segments)
        self.traffic[topic_name] = traffic
        self.topics[topic_name] = Topic(
            name=topic_name,
            uid=1,
            replicas=replicas,
            durability=Durability.REPLICATED,
            scaling=scaling,
            schema=None,
            retention_s=None,
            retention_bytes=None,
            next_segment=segments,
            created_us=0,
            target_bytes_per_s=target_bytes_per_s,
            segments_min=segments_min,
        )
        for number, slots in enumerate(even_ranges(WHOLE_RING, segments)):
            there = tuple(ids[(turn + number + place) % len(ids)] for place in range(replicas))
            self._open(topic_name, number, slots, placement[number] if placement else there)
        return topic_name

    def age(self, seconds: float) -> None:
        """Let time pass without a step: cool-downs end."""
        self.now_s += seconds

    # --- one step -----------------------------------------------------------------------------------------------------

    def step(self, seconds: float = 1.0, *, noise: float = 0.0) -> list[Action]:
        """Let time pass, measure (every segment off by up to ``noise`` of its load), decide, and act."""
        self.now_s += seconds
        self.measure(seconds, noise)
        self.repair()
        actions = self.decide()
        for action in actions:
            self.apply(action)
        return actions

    def repair(self) -> list[Repair]:
        """Replace the segments that lost a replica, then those that lack one, as the leader does at once."""
        draining = {broker.id for broker in self.brokers.values() if broker.draining}
        staying = self.brokers.keys() - draining - self.suspected
        if not staying:
            return []
        segments = [m.segment for m in self.segments.values()]
        found = repairs(segments, self.brokers, draining=draining, suspected=self.suspected, broken=())
        found = found or reinforcements(segments, self.topics, len(staying))
        costs = dict.fromkeys(sorted(staying), 0.0)
        rates = dict(zip(self.segments, self.rates(), strict=True))
        for segment in segments if found else ():
            for broker in segment.replicas:
                if broker in costs:
                    costs[broker] += SEGMENT_COST + rates[segment.key] / RATE_COST_BYTES
        for repair in found:
            segment = repair.segment
            for broker in segment.replicas:
                if broker in costs:
                    costs[broker] -= SEGMENT_COST + rates[segment.key] / RATE_COST_BYTES
            cost = SEGMENT_COST + rates[segment.key] / RATE_COST_BYTES
            (there,) = place(
                [Candidate(broker=broker, expected=cost) for broker, cost in costs.items()],
                segments=1,
                replicas=min(self.topics[segment.topic].replicas, len(costs)),
                tie=lambda: 0.0,
                preferred=repair.healthy_replicas,
            )
            for broker in there:
                costs[broker] += cost
            del self.segments[segment.key]
            self._succeed(segment.topic, segment.slots, there)
        self.repaired += found
        return found

    def settle(self, steps_max: int = 600, quiet: int = 30, seconds: float = 3.0) -> list[Action]:
        """Step until there was no action for ``quiet`` steps; return the actions. AssertionError if there is no end."""
        done: list[Action] = []
        silent = 0
        for _ in range(steps_max):
            now = [action for action in self.step(seconds) if not isinstance(action, Hold)]
            done += now
            silent = 0 if now else silent + 1
            if silent == quiet:
                return done
        raise AssertionError(f"not silent after {steps_max} steps, the last actions: {done[-3:]}")

    def decide(self, *, at_once: bool = False) -> list[Action]:
        """Return the actions that the balancer wants now."""
        cluster = self.cluster()
        return decide(
            cluster, Loads.of(cluster, self.reports()), round(self.now_s * 1e6), self.settings, at_once=at_once
        )

    def cluster(self) -> ClusterColumns:
        """Input of the balancer."""
        return ClusterColumns.of(
            self.topics.values(),
            (m.segment for m in self.segments.values()),
            self.brokers.values(),
            self.settings,
            suspected=self.suspected,
        )

    def measure(self, seconds: float, noise: float = 0.0) -> None:
        """Update the averages, as after ``seconds`` of traffic at the present rates."""
        keep_short, keep_long = np.exp(-seconds / SHORT_S), np.exp(-seconds / LONG_S)
        noise /= max(1.0, seconds) ** 0.5  # the noise of one second averages out over more
        off = self._rng.uniform(1 - noise, 1 + noise, len(self.segments)).tolist()
        for measured, rate, factor in zip(self.segments.values(), self.rates(), off, strict=True):
            seen = rate * factor
            if measured.short is None:
                measured.short = measured.long = seen
            else:
                measured.short += (1 - keep_short) * (seen - measured.short)
                measured.long += (1 - keep_long) * (seen - measured.long)

    def rates(self) -> list[float]:
        """Return true bytes/s of the segments, in their order."""
        return [
            traffic.bytes_per_s * float(traffic.profile[m.segment.slots.hi] - traffic.profile[m.segment.slots.lo])
            for m in self.segments.values()
            for traffic in (self.traffic[m.segment.topic],)
        ]

    def reports(self) -> Iterable[BrokerLoad]:
        """Return the last report of every broker, also of lost ones."""
        of_broker: dict[str, list[SegmentLoad]] = {broker: [] for broker in self.brokers}
        for measured in self.segments.values():
            if measured.short is not None:
                of_broker.setdefault(measured.segment.primary, []).append(self._report(measured, measured.short))
        for broker, loads in of_broker.items():
            yield BrokerLoad(broker=broker, cpu_share=0, memory_bytes=0, buffered_bytes=0, segments=tuple(loads))

    def _report(self, measured: Measured, short: float) -> SegmentLoad:
        segment = measured.segment
        record_bytes = self.traffic[segment.topic].record_bytes
        target = self.topics[segment.topic].target_bytes_per_s or self.settings.segment_target_bytes_per_s
        presses = short > min(target, record_bytes * self.settings.segment_target_records_per_s)
        return SegmentLoad(
            topic=segment.topic,
            segment=segment.id,
            bytes_per_s=short,
            records_per_s=short / record_bytes,
            unwritten_bytes=0,
            long_bytes_per_s=measured.long,
            long_records_per_s=measured.long / record_bytes,
            histogram=self._histogram(segment, short / record_bytes) if presses else (),  # it is unused
        )

    def _histogram(self, segment: Segment, records_per_s: float) -> tuple[float, ...]:
        edges = segment.slots.lo - (-np.arange(HISTOGRAM_BUCKETS + 1) * segment.slots.width // HISTOGRAM_BUCKETS)
        load = np.diff(self.traffic[segment.topic].profile[edges])
        return tuple((load / load.sum() * records_per_s).tolist())

    # --- doing it -----------------------------------------------------------------------------------------------------

    def apply(self, action: Action) -> None:
        """Seal the predecessors and open the successors, as the leader would."""
        if isinstance(action, Split):
            parent = self.segments.pop(SegmentId(action.topic, action.segment)).segment
            for slots, there in zip(parent.slots.split(action.at), action.placement, strict=True):
                self._succeed(action.topic, slots, there)
        elif isinstance(action, Merge):
            lower, upper = (self.segments.pop(SegmentId(action.topic, number)).segment for number in action.segments)
            assert lower.slots.hi == upper.slots.lo, f"{lower} and {upper} are not neighbors"
            self._succeed(action.topic, KeyRange(lower.slots.lo, upper.slots.hi), action.placement)
        elif isinstance(action, Move):
            parent = self.segments.pop(SegmentId(action.topic, action.segment)).segment
            assert parent.replicas != action.replicas, f"{parent} is moved to where it is"
            self._succeed(action.topic, parent.slots, action.replicas)

    def _succeed(self, name: TopicName, slots: KeyRange, replicas: tuple[str, ...]) -> None:
        topic = self.topics[name]
        self.topics[name] = replace(topic, next_segment=topic.next_segment + 1)
        self._open(name, topic.next_segment, slots, replicas)

    def _open(self, name: TopicName, number: int, slots: KeyRange, replicas: tuple[str, ...]) -> None:
        assert replicas, f"{name}#{number} has no replicas"
        assert len(set(replicas)) == len(replicas), f"{name}#{number} has two replicas on one broker: {replicas}"
        for broker in replicas:
            assert broker in self.brokers, f"{name}#{number} was placed on {broker}, which is lost"
            assert not self.brokers[broker].draining, f"{name}#{number} was placed on {broker}, which is drained"
            assert broker not in self.suspected, f"{name}#{number} was placed on {broker}, which is suspected"
        self.segments[SegmentId(name, number)] = Measured(
            Segment(
                topic=name,
                id=number,
                slots=slots,
                epoch=1,
                state=SegmentState.OPEN,
                replicas=replicas,
                opened_us=round(self.now_s * 1e6),
            )
        )

    # --- looking at it ------------------------------------------------------------------------------------------------

    def of(self, name: TopicName) -> list[Segment]:
        """Return the open segments of a topic along the ring."""
        return sorted((m.segment for m in self.segments.values() if m.segment.topic == name), key=lambda s: s.slots)

    def broker_loads(self, follower_share: float = 0.5) -> dict[str, float]:
        """Return true bytes/s of every broker that is not drained; a following replica counts ``follower_share``."""
        loads = {broker.id: 0.0 for broker in self.brokers.values() if not broker.draining}
        for measured, rate in zip(self.segments.values(), self.rates(), strict=True):
            for role, broker in enumerate(measured.segment.replicas):
                if broker in loads:
                    loads[broker] += rate * (follower_share if role else 1.0)
        return loads

    def imbalance(self) -> float:
        """Return the load of the most loaded broker over the mean."""
        loads = list(self.broker_loads().values())
        mean = sum(loads) / len(loads)
        return max(loads) / mean if mean else 1.0

    def check(self) -> None:
        """Assert that the open segments of every topic partition the ring."""
        for name in self.topics:
            ranges = [segment.slots for segment in self.of(name)]
            assert covers_ring(ranges, WHOLE_RING), f"{name}: {[f'{r}' for r, _ in pairwise(ranges)]}"
