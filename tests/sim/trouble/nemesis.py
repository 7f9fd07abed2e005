"""Everything that goes wrong, by the seed's dice. Each blow has an end; ``heal`` ends them all."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from seaweedmq.codec import keys
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Durability
from tests.sim.machines.loop import Owner
from tests.sim.machines.network import KEEPALIVE_TIMEOUT_S
from tests.sim.machines.process import BrokerProcess
from tests.sim.machines.storage_faults import StorageNemesis
from tests.sim.trouble.aimed import Aimed
from tests.sim.trouble.aimed_files import AimedAtFiles
from tests.sim.trouble.aimed_kafka import AimedAtKafka
from tests.sim.trouble.aimed_memory import AimedAtAdoptions
from tests.sim.trouble.aimed_metadata import AimedAtMetadata
from tests.sim.trouble.aimed_replicas import AimedAtReplicas
from tests.sim.trouble.losses import Losses
from tests.sim.users.group import GroupNemesis, MemberNemesis
from tests.sim.users.operator import Operator
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

MADE_GOOD_S_MAX = 60.0
"""Once all is well, a segment whose primary's machine was lost is sealed within this time."""

FORGET_FIRST_SHARE = 0.4
"""So many runs begin with replicas that lose etcd: it takes seconds, and publishers are to go on meanwhile."""

PARTED_S = (0.2, 1.0, 4.0)

Blow = Callable[[], Coroutine[Any, Any, None]]


class Nemesis:
    """Strikes every now and then, and sometimes while the last blow still hurts."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng: random.Random = world.rng("nemesis")
        self.groups = GroupNemesis(world.group, world.network, world.rng("group nemesis"))
        self.kafka_groups = MemberNemesis(world.kafka_group.members, world.network, world.rng("Kafka group nemesis"))
        self.losses = Losses(world)
        self.aimed = Aimed(world, self.losses)
        self.files = AimedAtFiles(world, self.aimed, self.losses)
        self.adoptions = AimedAtAdoptions(world)
        self.replicas = AimedAtReplicas(world, self.aimed, self.losses)
        self.storage = StorageNemesis(world, self.aimed, self.losses)
        self.operator = Operator(world, world.rng("operator"))
        self.metadata = AimedAtMetadata(world, self.losses, self.operator)
        self.kafka = AimedAtKafka(world, self)
        self.blows = 0
        self._pending: list[asyncio.Task[None]] = []

    async def run(self, for_s: float, pause_s: tuple[float, float]) -> None:
        """Strike for a while, then heal everything."""
        loop = self.world.loop
        end_s = loop.time() + for_s
        scenario = self.world.scenario
        stored = any(topic.durability is Durability.STORED for topic in scenario.topics)
        blows: list[tuple[Blow, int]] = [
            (self.kill_broker, 6),
            (self.kill_leader, 3),
            (self.kill_all, 1),
            (self.lose_a_machine, 5),
            (self.stop_broker, 4),
            (self.stop_while_starting, 1),
            (self.aimed.stop_while_rejoining, 3),
            (self.operator.drain, 2),
            (self.lose_leases, 1),
            (self.rolling_restart, 1),
            (self.freeze_broker, 3),
            (self.suspend_machine, 2),
            (self.part_brokers, 4),
            (self.drain_behind_the_leaders_back, 2),
            (self.seal_behind_the_primarys_back, 8 if scenario.fences_matter else 0),
            (self.aimed.lose_a_writer, 12 if stored else 0),
            (self.aimed.lose_a_writer_after_the_seal, 4),
            (self.aimed.forget_replicas, 4 if scenario.fences_matter else 0),
            (self.aimed.lose_all_leases, 3),
            (self.operator.reshape, 10),
            (self.groups.trouble_member, 6 if self.world.group.members else 0),
            (self.break_streams, 4),
            (self.slow_network, 2),
            (self.lossy_network, 3),
            (self.slow_storage, 2),
            (self.failing_storage, 2),
            (self.storage.trouble, 8),
            (self.storage.refuse_a_write_out, 6 if any(t.replicas > 1 for t in scenario.topics) else 0),
            (self.set_a_clock, 6 if self.world.clocks.is_wild else 1),
            (self.stop_etcd, 1),
            (self.freeze_etcd, 1),
            (self.lossy_etcd, 2),
            (self.cut_off_from_etcd, 2),
            (self.late_news, 2),
            (self.compact_etcd, 1),
            (self.files.lose_a_writer_behind_an_fsync, 0),
            (self.files.lose_a_writer_before_its_first_fsync, 0),
            (self.files.lose_files_that_are_believed, 0),
            (self.files.leave_a_fence_unseen, 0),
            (self.files.set_a_clock_far_back, 0),
            (self.files.seal_behind_a_busy_primary, 0),
            (self.files.die_behind_a_torso, 0),
            (self.files.die_while_writing_again, 0),
            (self.adoptions.seal_while_adopting, 0),
            (self.metadata.leave_behind, 0),
            (self.metadata.seal_twice, 0),
            (self.metadata.lead_without_knowing, 0),
            (self.metadata.forget_an_empty_segment, 0),
            (self.replicas.lose_a_primary_and_stop_the_rest, 0),
            (self.replicas.lose_a_lone_replica, 0),
            (self.replicas.sleep_through_the_seal, 0),
            (self.replicas.deliver_late, 0),
            (self.replicas.hear_of_both_topics_at_once, 0),
            (self.replicas.leave_a_table_behind, 0),
            (self.replicas.delete_late, 0),
            (self.replicas.hold_up_replacements, 0),
            (self.groups.freeze_until_out, 0),
            (self.groups.cut_off_until_out, 0),
            (self.groups.come_back_unheard, 0),
            (self.metadata.stumble_out_of_leading, 0),
            (self.operator.delete_records, 0),
            (self.kafka_groups.trouble_member, 6 if self.world.kafka_group.members else 0),
            (self.kafka.trouble_coordinator, 8 if self.world.kafka_group.members else 0),
            (self.kafka.wake_a_coordinator, 0),
            (self.kafka.wake_a_committer, 0),
        ]
        assert scenario.favoured.keys() <= {blow.__name__ for blow, _ in blows}
        weights = [scenario.favoured.get(blow.__name__, weight) for blow, weight in blows]
        undisturbed = (  # they take seconds, and the next blow might spoil them
            self.seal_behind_the_primarys_back,
            self.aimed.lose_a_writer_after_the_seal,
            self.aimed.forget_replicas,
            self.aimed.lose_all_leases,
            self.files.lose_files_that_are_believed,
            self.files.leave_a_fence_unseen,
            self.files.seal_behind_a_busy_primary,
            self.files.die_behind_a_torso,
            self.files.die_while_writing_again,
            self.metadata.forget_an_empty_segment,
            self.metadata.stumble_out_of_leading,
            self.groups.come_back_unheard,
            self.replicas.lose_a_primary_and_stop_the_rest,
            self.replicas.sleep_through_the_seal,
            self.replicas.deliver_late,
            self.replicas.hold_up_replacements,
            self.kafka.wake_a_coordinator,
            self.kafka.wake_a_committer,
        )
        while loop.time() < end_s:
            await asyncio.sleep(self.rng.uniform(*pause_s))
            (blow,) = self.rng.choices([blow for blow, _ in blows], weights)
            if not self.blows and scenario.fences_matter and self.rng.random() < FORGET_FIRST_SHARE:
                blow = self.aimed.forget_replicas
            self.blows += 1
            self._pending.append(loop.create_task(blow(), name=blow.__name__))
            if blow in undisturbed:
                await asyncio.wait(self._pending[-1:])
        await self.storage.outlast()
        await self.heal()

    async def heal(self) -> None:
        """End every blow and start what is down."""
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        self._pending.clear()
        world = self.world
        world.network.faults.calm()
        world.network.join()
        self.groups.heal()
        self.kafka_groups.heal()
        world.disk.faults.calm()
        world.etcd.lost_share = 0.0
        self._end_etcd_outage()
        for process in world.processes:
            process.thaw(process.owner)
            process.meta.is_cut_off = False
            process.meta.hears.set()
            process.meta.hears_metadata.set()
        for process in world.processes:
            await process.wait_stopping()
            if not process.is_running:
                process.start()
        world.note("nemesis", "healed everything")
        try:
            async with asyncio.timeout(MADE_GOOD_S_MAX):
                while self.losses.spared:  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(0.1)
        except TimeoutError:
            stuck = f"after {MADE_GOOD_S_MAX} s what {sorted(self.losses.spared)} hold alone is not in the files"
            world.violations.append(Violation("made good", stuck))
            raise

    def _note(self, what: str) -> None:
        self.world.note("nemesis", what)

    def _some_broker(self) -> BrokerProcess | None:
        spared = self.losses.spared
        running = [p for p in self.world.processes if p.is_running and p.name not in spared]
        return self.rng.choice(running) if running else None

    def _leader(self) -> BrokerProcess | None:
        lock = self.world.etcd.server.get(keys.LEADER)
        return None if lock is None else self._process_of(lock.value.decode())

    def _process_of(self, broker_id: str) -> BrokerProcess | None:
        return next((p for p in self.world.processes if p.runs_as(broker_id)), None)

    # --- processes --------------------------------------------------------------------------------------------------

    async def kill_broker(self) -> None:
        process = self._some_broker()
        if process is not None:
            await self.kill([process])

    async def kill_leader(self) -> None:
        leader = self._leader()
        if leader is not None and leader.name not in self.losses.spared:
            await self.kill([leader])

    async def kill_all(self) -> None:
        if not self.losses.spared:
            await self.kill([p for p in self.world.processes if p.is_running])

    async def kill(self, processes: list[BrokerProcess]) -> None:
        machine = self.world.scenario.machines_fail and self.rng.random() < 0.5
        for process in processes:
            process.kill(machine=machine)
        if machine and not any(p.is_running for p in self.world.processes):
            self.world.lose_all_power()
        await asyncio.sleep(self.rng.choice((0.0, 0.3, 1.0, 3.0)))
        for process in processes:
            if not process.is_running:
                process.start()

    async def stop_broker(self) -> None:
        """SIGTERM, also to whoever holds the only copy of something: in good order nothing is lost, if the storage
        takes it."""
        running = [p for p in self.world.processes if p.is_running]
        if running and self.world.disk.is_calm:
            self.rng.choice(running).request_stop()

    async def stop_while_starting(self) -> None:
        """SIGTERM to a broker that is just about to join."""
        process = self._some_broker()
        if process is None:
            return
        process.kill(machine=False)
        process.start()
        owner = process.owner
        await asyncio.sleep(self.rng.uniform(0, 0.05))
        if process.owner is owner and process.is_running:
            process.request_stop()

    async def freeze_broker(self) -> None:
        process = self._some_broker()
        if process is not None and not process.is_frozen:
            await self.hold(process, process.freeze())

    async def suspend_machine(self) -> None:
        """It sleeps for a while, beyond its lease perhaps, and its monotonic clock does not tell."""
        process = self._some_broker()
        if process is not None and not process.is_frozen:
            await self.hold(process, process.suspend())

    async def hold(self, process: BrokerProcess, owner: Owner) -> None:
        """Nothing is heard of it for a short or a long time."""
        pause_s = self.rng.choice((0.2, 1.0, 4.0))
        await asyncio.sleep(min(pause_s, KEEPALIVE_TIMEOUT_S))
        if pause_s > KEEPALIVE_TIMEOUT_S and process.owner is owner:
            self.world.network.break_streams_of(owner)
            await asyncio.sleep(pause_s - KEEPALIVE_TIMEOUT_S)
        process.thaw(owner)

    async def rolling_restart(self) -> None:
        """One broker after another is asked to stop; its supervisor starts it again."""
        for process in self.world.processes:
            if process.is_running and not process.is_frozen and process.name not in self.losses.spared:
                process.request_stop()
                await process.wait_stopping()
                await asyncio.sleep(1.0)

    async def lose_a_machine(self) -> None:
        """What a broker wrote and did not fsync is gone with it, while the last blows still hurt."""
        covered = [p for p in self.world.processes if p.is_running and self.losses.is_covered(p)]
        if not covered:
            return
        process = self.rng.choice([p for p in covered if self.losses.at_stake(p)] or covered)
        self.losses.lose(process)
        await asyncio.sleep(self.rng.choice((0.0, 0.3, 1.0, 3.0)))
        if not process.is_running:
            process.start()

    def _open_segments(self) -> list[Segment]:
        segments = self.world.cluster.state.segments.values()
        return [s for numbered in segments for s in numbered.values() if s.is_open]

    # --- network ----------------------------------------------------------------------------------------------------

    async def part_brokers(self) -> None:
        """Two brokers hear nothing of each other, or only one of them does."""
        machines = [p.name for p in self.world.processes]
        if len(machines) < 2:
            return
        one, other = self.rng.sample(machines, 2)
        await self.part(one, other, both=self.rng.random() < 0.5, for_s=self.rng.choice(PARTED_S))

    async def drain_behind_the_leaders_back(self) -> None:
        """The leader has to move segments whose primaries it can not talk to, though their followers can."""
        leader = self._leader()
        spared = self.losses.spared
        others = [p for p in self.world.processes if p.is_well and p is not leader and p.name not in spared]
        if leader is None or len(others) < 2:
            return
        primary, leaving = self.rng.sample(others, 2)
        leaving.request_stop()
        await self.part(leader.name, primary.name, both=True, for_s=self.rng.choice(PARTED_S))

    async def seal_behind_the_primarys_back(self) -> None:
        """The leader has to seal a segment whose primary it can not talk to, and the primary is the last to learn of
        it: all that stops it is that its followers were fenced."""
        leader = self._leader()
        chosen = [s for s in self._open_segments() if self._can_be_sealed_unseen(s, leader)]
        if leader is None or not chosen:
            return
        segment = self.rng.choice(chosen)
        self._note(f"has {segment} sealed behind the back of {segment.primary}")
        primary = self._process_of(segment.primary)
        assert primary is not None
        primary.request_stop()
        network = self.part(
            leader.name, primary.name, both=self.rng.random() < 0.5, for_s=self.rng.choice((1.0, 3.0, 5.0))
        )
        etcd = self._delay_news(primary) if self.rng.random() < 0.5 else self._cut_off(primary, self.rng.uniform(1, 3))
        await asyncio.gather(network, etcd)

    def _can_be_sealed_unseen(self, segment: Segment, leader: BrokerProcess | None) -> bool:
        """Whether it has followers, none of its replicas is the leader, all are well, and it is in use."""
        replicas = [self._process_of(replica) for replica in segment.replicas]
        if len(replicas) < 2 or not all(p is not None and p is not leader and p.is_well for p in replicas):
            return False
        if replicas[0] is None or replicas[0].name in self.losses.spared:
            return False
        owned = replicas[0] and replicas[0].broker and replicas[0].broker.inspect.segments.get(segment.key)
        return bool(owned) and owned.log.end > segment.start_offset

    async def part(self, one: str, other: str, *, both: bool, for_s: float) -> None:
        self._note(f"cuts {one} {'and' if both else '->'} {other}")
        network = self.world.network
        network.cut(one, other)
        if both:
            network.cut(other, one)
        await asyncio.sleep(for_s)
        network.join(one, other)
        if both:
            network.join(other, one)

    async def break_streams(self) -> None:
        self._note(f"breaks {self.world.network.break_some(self.rng.choice((0.3, 1.0)))} streams")

    async def slow_network(self) -> None:
        self._note("slows the network")
        self.world.network.faults.slow_share = self.rng.choice((0.05, 0.5))
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        self.world.network.faults.slow_share = 0.0

    async def lossy_network(self) -> None:
        self._note("loses messages and acknowledgements")
        self.world.network.faults.break_share = self.rng.choice((0.005, 0.03))
        self.world.network.faults.lost_ack_share = self.rng.choice((0.0, 0.3))
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        self.world.network.faults.break_share = self.world.network.faults.lost_ack_share = 0.0

    # --- clocks -----------------------------------------------------------------------------------------------------

    async def set_a_clock(self) -> None:
        """Forward or back."""
        machine = self.rng.choice(self.world.processes).name
        self._note(f"sets the clock of {machine}: it is {self.world.clocks.set_wrong(machine):+.1f} s off")

    # --- storage ----------------------------------------------------------------------------------------------------

    async def slow_storage(self) -> None:
        self._note("slows the storage")
        self.world.disk.faults.slow_s_max = self.rng.choice((0.05, 0.5))
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        self.world.disk.faults.slow_s_max = 0.0

    async def failing_storage(self) -> None:
        self._note("makes the storage fail")
        self.world.disk.faults.failing_share = self.rng.choice((0.05, 0.3, 1.0))
        await asyncio.sleep(self.rng.uniform(0.2, 1.5))
        self.world.disk.faults.failing_share = 0.0

    # --- etcd -------------------------------------------------------------------------------------------------------

    async def stop_etcd(self) -> None:
        etcd = self.world.etcd
        if etcd.server.is_running and not etcd.server.is_frozen and not self.losses.spared:
            self._note("stops etcd")
            etcd.run(etcd.server.stop)
            await asyncio.sleep(self.rng.uniform(0.2, 4))
            self._end_etcd_outage()

    async def freeze_etcd(self) -> None:
        etcd = self.world.etcd
        if etcd.server.is_running and not etcd.server.is_frozen and not self.losses.spared:
            self._note("freezes etcd")
            etcd.run(etcd.server.freeze)
            await asyncio.sleep(self.rng.uniform(0.2, 4))
            self._end_etcd_outage()

    def _end_etcd_outage(self) -> None:
        etcd = self.world.etcd
        if etcd.server.is_frozen:
            self._note("thaws etcd")
            etcd.run(etcd.server.thaw)
        if not etcd.server.is_running:
            self._note("starts etcd")
            etcd.run(etcd.server.start)

    async def lose_leases(self) -> None:
        """Etcd loses its table of leases, whatever else goes on."""
        if not self.losses.spared and self.world.etcd.is_well:
            self._note("makes etcd lose all leases")
            self.world.etcd.lose_leases()

    async def lossy_etcd(self) -> None:
        if self.losses.spared:
            return
        self._note("loses requests to etcd and its answers")
        self.world.etcd.lost_share = self.rng.choice((0.05, 0.3))
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        self.world.etcd.lost_share = 0.0

    async def cut_off_from_etcd(self) -> None:
        process = self._some_broker()
        if process is not None:
            await self._cut_off(process)

    async def _cut_off(self, process: BrokerProcess, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        if process.name in self.losses.spared:
            return
        self._note(f"cuts {process.owner.name} off from etcd")
        meta = process.meta
        meta.is_cut_off = True
        await asyncio.sleep(self.rng.choice((0.3, 1.0, 4.0)))
        meta.is_cut_off = False

    async def late_news(self) -> None:
        process = self._some_broker()
        if process is not None:
            await self._delay_news(process)

    async def _delay_news(self, process: BrokerProcess) -> None:
        """The process keeps its lease, and acts on metadata that others have left behind."""
        self._note(f"delays what {process.owner.name} hears from etcd")
        meta = process.meta
        meta.hears.clear()
        await asyncio.sleep(self.rng.choice((0.3, 1.0, 4.0)))
        meta.hears.set()

    async def compact_etcd(self) -> None:
        server = self.world.etcd.server
        if server.compacted_revision < server.revision:
            self._note("compacts etcd")
            self.world.etcd.run(server.compact, server.revision)
