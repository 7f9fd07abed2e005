"""Loss of machines with their processes' unflushed writes, whenever the promise covers it.

``stored`` records survive a loss at any time. ``replicated`` records survive it while another broker holds those not
fsynced yet: that broker is spared further blows until the segment is sealed, since by then it has written out all of
them. A segment without a follower, although its topic requires one, is fsynced before any acknowledgement, so that its
machine may be lost at any time (if the scenario allows it). The network, the storage, the leader and other brokers may
still fail meanwhile.
"""

import random
from typing import TYPE_CHECKING

from seaweedmq.broker.segment.primary import SAFE_REPLICAS
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Durability, TopicName
from tests.sim.machines.process import BrokerProcess
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World


class Losses:
    """Machines that were lost, and brokers that now hold the only copy of some records."""

    def __init__(self, world: "World") -> None:
        self._world = world
        topics = world.scenario.all_topics
        self._stored = {TopicName.parse(t.name) for t in topics if t.durability is Durability.STORED}
        self._holders: dict[tuple[TopicName, int, int], BrokerProcess] = {}
        """For every segment whose primary's machine was lost, a follower with its acknowledged records."""

    @property
    def spared(self) -> set[str]:
        """Return the names of machines that must not be hit now."""
        self._holders = {key: holder for key, holder in self._holders.items() if self._is_open(*key)}
        return {holder.name for holder in self._holders.values()}

    def some_broker(self, rng: random.Random) -> BrokerProcess | None:
        """Return a running broker that may be hit."""
        spared = self.spared
        running = [p for p in self._world.processes if p.is_running and p.name not in spared]
        return rng.choice(running) if running else None

    def is_covered(self, process: BrokerProcess) -> bool:
        """Whether all acknowledged records survive the loss of this machine now."""
        if self.spared or not self._world.etcd.is_well:
            return False
        return all(self._holder(segment, process) for segment in self.at_stake(process))

    def lose(self, process: BrokerProcess) -> None:
        for segment in self.at_stake(process):
            holder = self._holder(segment, process)
            assert holder is not None
            self._holders[segment.topic, self._uid(segment.topic), segment.id] = holder
        process.kill(machine=True)
        if self._holders:
            self._world.note("nemesis", f"spares {sorted(self.spared)} until what they hold is in the files")

    def at_stake(self, process: BrokerProcess) -> list[Segment]:
        """Return open segments that any incarnation of that machine's broker wrote and may not have fsynced."""
        lives = self._world.cluster.state.brokers_at(process.address)
        segments = self._world.cluster.state.segments.values()
        opened = (s for numbered in segments for s in numbered.values() if s.is_open)
        return [s for s in opened if s.primary in lives and s.topic not in self._stored and not self._is_fsynced(s)]

    def is_thin(self, segment: Segment) -> bool:
        """Whether it has no follower although its topic requires one."""
        topic = self._world.cluster.state.topics.get(segment.topic)
        return topic is not None and len(segment.replicas) < min(topic.replicas, SAFE_REPLICAS)

    def _is_fsynced(self, segment: Segment) -> bool:
        return self._world.scenario.lone_replicas_fail and self.is_thin(segment)

    def _holder(self, segment: Segment, lost: BrokerProcess) -> BrokerProcess | None:
        """Return a follower elsewhere with its copy that is well or stops cleanly, and so writes the copy out."""
        return next(
            (
                process
                for process in self._world.processes
                if process is not lost and (process.is_well or process.leaves_well) and self._holds(process, segment)
            ),
            None,
        )

    def _uid(self, name: TopicName) -> int:
        topic = self._world.cluster.state.topics.get(name)
        return 0 if topic is None else topic.uid

    def _is_open(self, topic: TopicName, uid: int, segment: int) -> bool:
        if self._uid(topic) != uid:
            return False  # the topic was deleted, perhaps recreated
        found = self._world.cluster.state.segments.get(topic, {}).get(segment)
        return found is not None and found.is_open

    def _holds(self, process: BrokerProcess, segment: Segment) -> bool:
        broker = process.broker
        if (
            broker is None
            or Insides(broker).incarnation is None
            or not self._world.etcd.has_lease(Insides(broker).incarnation.session.lease)
        ):
            return False
        is_follower = broker.id in segment.replicas[1:] and Insides(broker).incarnation.session.alive()
        found = Insides(broker).view.topics.get(segment.topic)
        return is_follower and found is not None and (found.uid, segment.id) in Insides(broker).followers.replicas
