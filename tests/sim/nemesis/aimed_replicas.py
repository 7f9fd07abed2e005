"""Blows at replicas, at publishers that resend frames, and at recreated topics."""

import asyncio
from typing import TYPE_CHECKING

from seaweedmq.codec.paths import table_dir, topic_dir
from seaweedmq.model.messages.calls import DeleteTopic
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from tests.doubles.memory_store import StorageOp
from tests.sim.machines.process import BrokerProcess
from tests.sim.machines.storage_faults import Trouble
from tests.sim.nemesis.aimed import ANSWER_S_MAX, SEALED_S_MAX, Aimed
from tests.sim.nemesis.losses import Losses
from tests.sim.scenario import IMPATIENT_S
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World

WORKS_AFTER = 0.9
LATER_S_MAX = 0.2
NEXT_LIFE_S_MAX = 8.0
"""Longest wait in seconds for the topic's recreation."""
REPLACEMENTS_AT_ONCE = 8
"""Segments of dead primaries that the leader replaces at once; further ones wait."""


class AimedAtReplicas:
    """Blows that read the code under test, without changing it."""

    def __init__(self, world: "World", aimed: Aimed, losses: Losses) -> None:
        self._world = world
        self._aimed = aimed
        self._losses = losses
        self._rng = world.rng("aimed at replicas")
        self._is_hiding = self._is_converting = self._is_deleting = False
        """Set once per run: full knowledge exists only of the topic's last incarnation, and so of foreign records in
        it."""

    # --- followers that are missing, stopped or lost ----------------------------------------------------------------

    async def lose_a_primary_and_stop_the_rest(self) -> None:
        """Lose the leader's machine with acknowledged, unflushed records, and stop all other brokers at that moment: no
        broker is left that could recover their replicas."""
        world, aimed = self._world, self._aimed
        found = await aimed.moment(lambda s: self._is_led_by_its_primary(s) and aimed.has_unsynced_acks(s))
        if found is None or not world.disk.is_calm:
            return
        primary = aimed.running(found)[0]
        others = [p for p in world.processes if p.is_running and p is not primary]
        if not all(p.is_well for p in others) or not self._losses.is_covered(primary):
            return
        self._losses.lose(primary)
        for process in others:
            process.request_stop()
        for process in others:
            await process.wait_stopping()
        await aimed.start_again([primary])

    async def lose_a_lone_replica(self) -> None:
        """Kill a broker; once the segments it followed continue without a follower, although their topic requires one,
        lose the machine of their primary."""
        aimed = self._aimed
        found = await aimed.moment(lambda s: len(s.replicas) > 1 and aimed.is_in_use(s))
        if found is None:
            return
        follower = aimed.running(found)[1]
        follower.kill(machine=False)
        lost: list[BrokerProcess] = []
        if await aimed.until(lambda: any(map(self._is_lone_and_unsynced, aimed.open_segments())), SEALED_S_MAX):
            await asyncio.sleep(self._rng.uniform(0, self._rng.choice((ANSWER_S_MAX, LATER_S_MAX))))
            thin = [s for s in aimed.open_segments() if self._losses.is_thin(s)]
            lost = [p for s in thin for p in aimed.running(s) if self._losses.is_covered(p)][:1]
            for process in lost:
                self._losses.lose(process)
        await aimed.start_again([follower, *lost])

    def _is_led_by_its_primary(self, segment: Segment) -> bool:
        return len(segment.replicas) > 1 and self._aimed.running(segment)[0] is self._aimed.leader()

    def _is_lone_and_unsynced(self, segment: Segment) -> bool:
        is_served = self._losses.is_thin(segment) and len(self._aimed.running(segment)) > 0
        return is_served and self._aimed.has_unsynced(segment)

    async def sleep_through_the_seal(self) -> None:
        """Suspend a machine until its segment without followers is sealed, and delay its metadata after it wakes."""
        aimed = self._aimed
        found = await aimed.moment(lambda s: len(s.replicas) == 1 and aimed.is_in_use(s))
        if found is None:
            return
        process = aimed.running(found)[0]
        owner, meta = process.suspend(), process.meta
        meta.is_cut_off = True
        try:
            await aimed.until(lambda: aimed.is_over(found), SEALED_S_MAX)
            process.thaw(owner)
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        finally:
            meta.is_cut_off = False

    # --- publishers that resend --------------------------------------------------------------------------------------

    async def deliver_late(self) -> None:
        """Hold a publisher's frame in transit until the publisher has opened another stream; then deliver it."""
        world = self._world
        running = {p.owner for p in world.processes}
        hasty = {p.owner for p in world.publishers if p.plan.config.delivery_timeout_s <= IMPATIENT_S}
        streams = [s for s in world.network.streams("publish") if s.server in running and s.client in hasty]
        if not streams:
            return
        stream = self._rng.choice(streams)
        process = next(p for p in world.processes if p.owner is stream.server)
        if process.broker is None:
            return
        latest = Insides(process.broker).publish.latest
        before = dict(latest)
        assert stream.client is not None
        world.note("nemesis", f"holds up what {stream.client.name} sends to {process.owner.name}")
        stream.up.hold()
        await self._aimed.until(
            lambda: any(latest.get(key, known) is not known for key, known in before.items()), NEXT_LIFE_S_MAX
        )
        stream.up.release()

    # --- recreated topics --------------------------------------------------------------------------------------------

    async def hear_of_both_topics_at_once(self) -> None:
        """Have a follower learn of a topic's deletion and recreation in one listing, and kill the primary before it has
        sent a frame."""
        world, aimed, lives = self._world, self._aimed, self._world.lives
        if lives is None or self._is_hiding or lives.is_last:
            return
        self._is_hiding = True
        if not await aimed.until(lambda: lives.is_ending and lives.is_last_but_one, NEXT_LIFE_S_MAX):
            return
        chosen = [s for s in self._of(lives.topic) if len(s.replicas) > 1 and aimed.has_unsynced(s)]
        leader = aimed.leader()
        followers = [p for s in chosen for p in aimed.running(s)[1:] if p.is_well and p is not leader]
        if not followers or self._losses.spared:
            return
        follower = self._rng.choice(followers)
        world.note("nemesis", f"{follower.owner.name} does not learn of the deletion of {lives.name}")
        meta, uid = follower.meta, self._uid(lives.topic)
        meta.is_cut_off = True
        killed: list[BrokerProcess] = []
        try:
            if await aimed.until(lambda: self._uid(lives.topic) not in (0, uid), NEXT_LIFE_S_MAX):
                server = world.etcd.server
                world.etcd.run(server.compact, server.revision)
                killed = [p for s in self._of(lives.topic) for p in aimed.running(s)[:1] if p is not follower]
                for process in killed:
                    process.kill(machine=False)
        finally:
            meta.is_cut_off = False
        await aimed.start_again(killed)

    async def delete_late(self) -> None:
        """Hold the call that deletes a topic in transit until the topic is recreated."""
        world, aimed, lives = self._world, self._aimed, self._world.lives
        if lives is None or self._is_deleting or lives.is_last:
            return
        self._is_deleting = True
        uid = self._uid(lives.topic)
        arrives = world.network.hold_next(DeleteTopic)
        world.note("nemesis", f"holds up the call that deletes {lives.name}")
        try:
            await aimed.until(lambda: self._uid(lives.topic) not in (0, uid), NEXT_LIFE_S_MAX)
        finally:
            arrives.set()

    async def leave_a_table_behind(self) -> None:
        """Hold the publishing of a table until its topic was deleted and recreated."""
        lives = self._world.lives
        if lives is None or self._is_converting or not lives.is_last_but_one:
            return
        self._is_converting = True
        uid = self._uid(lives.topic)
        trouble = Trouble(
            hangs=True, ops=frozenset({StorageOp.PUT}), path=table_dir(lives.topic), works_after=WORKS_AFTER
        )
        await self._trouble_until_the_next_life(trouble, uid)

    async def hold_up_replacements(self) -> None:
        """Keep the leader busy with a dead broker's segments; before it handles the last one, its topic is deleted and
        recreated."""
        aimed, lives = self._aimed, self._world.lives
        if lives is None:
            return
        found = await aimed.moment(lambda s: s.topic == lives.topic and len(s.replicas) == 1 and aimed.is_in_use(s))
        if found is None:
            return
        primary = aimed.running(found)[0]
        others = [s for s in aimed.open_segments() if s.replicas == found.replicas and s.topic != found.topic]
        if lives.is_last or len(others) < REPLACEMENTS_AT_ONCE:
            return
        uid = self._uid(lives.topic)
        trouble = Trouble(hangs=True, ops=frozenset({StorageOp.FENCE}), path=topic_dir(others[0].topic))
        primary.kill(machine=False)
        await asyncio.gather(aimed.start_again([primary]), self._trouble_until_the_next_life(trouble, uid))

    async def _trouble_until_the_next_life(self, trouble: Trouble, uid: int) -> None:
        lives, troubles = self._world.lives, self._world.disk.troubles
        assert lives is not None
        self._world.note("nemesis", f"storage: {trouble}, until {lives.name} was deleted and created again")
        troubles.append(trouble)
        try:
            if await self._aimed.until(lambda: self._uid(lives.topic) not in (0, uid), NEXT_LIFE_S_MAX):
                await asyncio.sleep(self._rng.uniform(0, 0.3))
        finally:
            troubles.remove(trouble)
            trouble.over.set()

    def _of(self, topic: TopicName) -> list[Segment]:
        return [s for s in self._aimed.open_segments() if s.topic == topic]

    def _uid(self, name: TopicName) -> int:
        topic = self._world.cluster.state.topics.get(name)
        return 0 if topic is None else topic.uid
