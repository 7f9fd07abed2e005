"""Invariants inside the brokers, read from outside: at intervals, and before every kill.

The watch only reads the code under test. It includes frozen brokers: they wake up with their state.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.memory.broker_memory import COPIES
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.read_permit import ReadPermit
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.core.segment.replica import Replica
from seaweedmq.core.segment.segment_lifecycle import SegmentStage
from seaweedmq.model.segment import ReplicaKey, Segment, SegmentId
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.support.history import Violation
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World

SAMPLE_S = 0.1

Key = SegmentId


class InsideWatch:
    """Collector of a sentence for each invariant violation, once each."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._committed: dict[Key, int] = {}
        """The highest offset below which a primary reported all records as committed."""
        self._seen: dict[Key, dict[OpenSegment, None]] = {}
        """Primaries of a segment, including ended ones: they may have committed records after the last sample."""
        self._told: dict[tuple[str, str], None] = {}
        self._next: dict[MemoryBudget, tuple[object, int]] = {}
        """The longest waiter for memory, and the used bytes when it was first seen."""
        self._ends: dict[tuple[TopicName, int, int], int] = {}
        """Topic, its uid and segment -> sealed end, including segments pruned since."""

    @property
    def violations(self) -> list[Violation]:
        return [Violation(rule, detail) for rule, detail in self._told]

    @property
    def committed(self) -> dict[Key, int]:
        return dict(self._committed)

    def sample(self) -> None:
        running = [(p.owner, p.broker) for p in self._world.processes if p.is_running and p.broker is not None]
        brokers = [broker for _, broker in running]
        primaries = [(broker, key, owned) for broker in brokers for key, owned in Insides(broker).segments.items()]
        for _, key, owned in primaries:
            self._judge_primary(key, owned)
        for key, seen in self._seen.items():
            for owned in seen:
                self._judge_end(key, owned)
        for owner, broker in running:
            self._judge_memory(broker)
            self._judge_messages(owner, broker)
        for key, follower, replica in self._replicas(brokers):
            self._judge_replica(follower, replica)
            for primary, _, owned in primaries:
                if (owned.topic.uid, owned.segment.id) == key and follower in owned.segment.replicas:
                    self._judge_pair(primary, owned, follower, replica)
        leaders = [broker.id for broker in brokers if Insides(broker).incarnation is not None and Insides(broker).leads]
        world = self._world
        are_known = world.loop.time() > world.etcd.leases_lost_s + world.scenario.broker.lease_ttl_s
        if len(leaders) > 1 and are_known:  # a broker unaware of its lost lease is kept from harm by its lock
            self._tell("one leader", f"{leaders} lead at the same time, each by its lock")

    def is_committed(self, topic: TopicName, segment: int, offset: int) -> bool:
        """Whether a primary or the seal ever reported the offset as committed."""
        known = self._sealed_end(topic, segment)
        if known is not None and offset < known:
            return True
        if offset >= self._committed.get((topic, segment), 0):
            self.sample()
        ended = (owned.log.committed for owned in self._seen.get((topic, segment), ()))
        return offset < max(self._committed.get((topic, segment), 0), *ended, 0)

    def on_sealed(self, segment: Segment, epoch_before: int) -> None:
        """Judge an end just recorded in the metadata: its primary reported it under the old epoch, or is gone."""
        assert segment.end_offset is not None
        self._ends[segment.topic, self._uid(segment.topic), segment.id] = segment.end_offset
        self.sample()
        if segment.epoch != epoch_before:
            return
        for process in self._world.processes:
            broker = process.broker
            if (
                not process.is_running
                or broker is None
                or Insides(broker).incarnation is None
                or broker.id != segment.primary
            ):
                continue
            owned = Insides(broker).segments.get(segment.key)
            if owned is None or owned.stage in (
                SegmentStage.SEALED,
                SegmentStage.CLOSED,
            ):  # it reported so, and may have stopped since
                continue
            if Insides(broker).incarnation.session.alive():
                self._tell("sealed behind its back", f"{segment} was sealed while its primary {broker.id} continues")

    def _sealed_end(self, topic: TopicName, segment: int) -> int | None:
        return self._ends.get((topic, self._uid(topic), segment))

    def _uid(self, topic: TopicName) -> int:
        found = self._world.cluster.last_known.topics.get(topic)
        return 0 if found is None else found.uid

    def _replicas(self, brokers: list[Broker]) -> Iterator[tuple[ReplicaKey, str, Replica]]:
        for broker in brokers:
            if Insides(broker).incarnation is not None:
                for key, replica in Insides(broker).followers.replicas.items():
                    yield key, broker.id, replica

    def _judge_primary(self, key: Key, owned: OpenSegment) -> None:
        log = owned.log
        self._seen.setdefault(key, {})[owned] = None
        self._committed[key] = max(self._committed.get(key, 0), log.committed)
        if not self._is_of_today(owned):
            return
        order = (log.committed, log.written, log.replicated, log.end)
        if list(order) != sorted(order) or log.flushed > log.written:
            self._tell("order", f"{owned.segment}: committed, written, replicated, end: {order}, flushed {log.flushed}")

    def _judge_end(self, key: Key, owned: OpenSegment) -> None:
        """Judge a primary against the sealed end, even after it ended: its last commits may be above that end."""
        end, committed = self._sealed_end(*key), owned.log.committed
        if end is not None and committed > end and self._is_of_today(owned):
            self._tell("one primary", f"{owned.segment} committed {committed} above its sealed end {end}")

    def _is_of_today(self, owned: OpenSegment) -> bool:
        """Whether its topic exists; a deleted or recreated topic's records no longer count."""
        topic = self._world.cluster.last_known.topics.get(owned.topic.name)
        return topic is not None and topic.uid == owned.topic.uid

    def _judge_replica(self, follower: str, replica: Replica) -> None:
        order = (replica.flushed, replica.committed, replica.end)
        if list(order) != sorted(order):
            self._tell("order", f"{replica.name} at {follower}: flushed, committed, end are {order}")

    def _judge_pair(self, primary: Broker, owned: OpenSegment, follower: str, replica: Replica) -> None:
        """Judge a primary and a follower together: each has the acknowledged records, and the follower none that the
        primary lacks."""
        if not owned.log.committed <= replica.end <= owned.log.end and not owned.is_closed:
            self._tell(
                "replica",
                f"{owned.segment}: {primary.id} has committed {owned.log.committed} of {owned.log.end}, "
                f"its follower {follower} holds up to {replica.end}",
            )
        if replica.fenced and replica.epoch <= owned.segment.epoch:
            self._tell("replica", f"{owned.segment}: fenced with epoch {replica.epoch}, which is not a newer one")

    def _judge_memory(self, broker: Broker) -> None:
        for budget in Insides(broker).memory.budgets:
            if budget.used < 0 or max(budget.used, budget.peak) > budget.limit:
                used = f"{budget.used}, at most {budget.peak} bytes for {budget.purpose}"
                self._tell("memory", f"{broker.id} holds {used}, the budget is {budget.limit}")
            self._judge_turns(broker, budget)
        held = 0
        if Insides(broker).incarnation is not None:
            held = sum(replica.held_bytes for replica in Insides(broker).followers.replicas.values())
        if held > Insides(broker).memory.replicas.limit:
            self._tell(
                "memory",
                f"{broker.id} follows with {held} bytes, its budget is {Insides(broker).memory.replicas.limit}",
            )

    def _judge_turns(self, broker: Broker, budget: MemoryBudget) -> None:
        """Check that no later request gets memory while one waits: large requests would wait forever."""
        waiting = budget.longest_waiting
        longest, used = self._next.pop(budget, (None, 0))
        if waiting is None:
            return
        if waiting is longest and budget.used > used:
            self._tell("memory", f"{broker.id} has granted memory for {budget.purpose} past a longer waiter")
        self._next[budget] = waiting, budget.used

    def _judge_messages(self, owner: Owner, broker: Broker) -> None:
        """Check that memory outside frames is reserved: large messages in transit, and data read ahead."""
        memory, network = Insides(broker).memory, self._world.network
        sending = memory.sending.used + Insides(broker).subscribe.sending.stalled_bytes
        for what, budget, accounted, sizes in (
            ("to subscribers", memory.sending, sending, network.large_to_subscribers(owner)),
            ("to followers", memory.relaying, memory.relaying.used, network.large_to_followers(owner)),
            ("unannounced", memory.intake, memory.intake.used, network.large_unannounced(owner)),
        ):
            if sum(min(COPIES * size, budget.limit) for size in sizes) > accounted:
                told = f"of {len(sizes)} messages {what}, {sum(sizes)} bytes, and {accounted} are set aside for it"
                self._tell("memory", f"{broker.id} holds two copies {told}")
        paused = [turn for turn in memory.reading.caches if isinstance(turn, ReadPermit)]
        ahead = sum(turn.ahead_bytes for turn in paused)
        if ahead > memory.reading.used:
            self._tell("memory", f"{broker.id} has read {ahead} bytes ahead, and {memory.reading.used} are set aside")

    def _tell(self, rule: str, detail: str) -> None:
        if (rule, detail) not in self._told:
            self._told[rule, detail] = None
            self._world.note("watch", f"{rule}: {detail}")
