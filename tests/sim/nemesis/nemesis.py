"""All random blows of a seed; each blow has an end, and ``heal`` ends them all."""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from seaweedmq.model.topic import Durability
from tests.sim.machines.storage_faults import StorageNemesis
from tests.sim.nemesis.aimed import Aimed
from tests.sim.nemesis.aimed_files import AimedAtFiles
from tests.sim.nemesis.aimed_kafka import AimedAtKafka
from tests.sim.nemesis.aimed_memory import AimedAtAdoptions
from tests.sim.nemesis.aimed_metadata import AimedAtMetadata
from tests.sim.nemesis.aimed_replicas import AimedAtReplicas
from tests.sim.nemesis.brokers import BrokerNemesis
from tests.sim.nemesis.clock_steps import ClockSteps
from tests.sim.nemesis.etcd import EtcdNemesis
from tests.sim.nemesis.etcd_answers import EtcdAnswers
from tests.sim.nemesis.etcd_lost import EtcdLost
from tests.sim.nemesis.losses import Losses
from tests.sim.nemesis.members import GroupNemesis, MemberNemesis
from tests.sim.nemesis.storage_root import StorageRoot
from tests.sim.nemesis.surroundings import Surroundings
from tests.sim.users.operator import Operator
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

MADE_GOOD_S_MAX = 60.0
"""Seconds after healing by which a segment whose primary's machine was lost is sealed."""

FORGET_FIRST_SHARE = 0.4
"""Share of runs that begin with replicas losing etcd: this takes seconds, and publishers must continue meanwhile."""

Blow = Callable[[], Coroutine[Any, Any, None]]


class Nemesis:
    """Blows at intervals, some during the effects of the previous one."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng: random.Random = world.rng("nemesis")
        self.groups = GroupNemesis(world.group, world.network, world.rng("group nemesis"))
        self.kafka_groups = MemberNemesis(world.kafka_group.members, world.network, world.rng("Kafka group nemesis"))
        self.losses = Losses(world)
        self.etcd = EtcdNemesis(world, self.rng, self.losses)
        self.brokers = BrokerNemesis(world, self.rng, self.losses, self.etcd)
        self.surroundings = Surroundings(world, self.rng)
        self.aimed = Aimed(world, self.losses)
        self.files = AimedAtFiles(world, self.aimed, self.losses)
        self.adoptions = AimedAtAdoptions(world)
        self.replicas = AimedAtReplicas(world, self.aimed, self.losses)
        self.storage = StorageNemesis(world, self.aimed, self.losses)
        self.operator = Operator(world, world.rng("operator"))
        self.metadata = AimedAtMetadata(world, self.losses, self.operator)
        self.kafka = AimedAtKafka(world, self.losses, self.brokers, self.operator)
        self.answers = EtcdAnswers(world, self.losses)
        self.root = StorageRoot(world)
        self.clock_steps = ClockSteps(world, self.operator, self.brokers, self.losses)
        self.etcd_lost = EtcdLost(world, self.losses)
        self.blows = 0
        self._pending: list[asyncio.Task[None]] = []

    async def run(self, for_s: float, pause_s: tuple[float, float]) -> None:
        loop = self.world.loop
        end_s = loop.time() + for_s
        scenario = self.world.scenario
        blows, undisturbed = self._blows(), self._undisturbed()
        assert scenario.favoured.keys() <= {blow.__name__ for blow, _ in blows}
        weights = [scenario.favoured.get(blow.__name__, weight) for blow, weight in blows]
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
        self.clock_steps.heal()
        world.etcd.lost_share = 0.0
        self.etcd.end_outage()
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

    def _blows(self) -> list[tuple[Blow, int]]:
        """Return all blows with their weights; weight 0 means only if a scenario favors the blow."""
        scenario = self.world.scenario
        stored = any(topic.durability is Durability.STORED for topic in scenario.topics)
        return [
            (self.brokers.kill_broker, 6), (self.brokers.kill_leader, 3), (self.brokers.kill_all, 1),
            (self.brokers.lose_a_machine, 5), (self.brokers.stop_broker, 4), (self.brokers.stop_while_starting, 1),
            (self.aimed.stop_while_rejoining, 3), (self.operator.drain, 2), (self.etcd.lose_leases, 1),
            (self.brokers.rolling_restart, 1), (self.brokers.freeze_broker, 3), (self.brokers.suspend_machine, 2),
            (self.brokers.part_brokers, 4), (self.brokers.drain_behind_the_leaders_back, 2),
            (self.brokers.seal_behind_the_primarys_back, 8 if scenario.fences_matter else 0),
            (self.aimed.lose_a_writer, 12 if stored else 0), (self.aimed.lose_a_writer_after_the_seal, 4),
            (self.aimed.forget_replicas, 4 if scenario.fences_matter else 0), (self.aimed.lose_all_leases, 3),
            (self.operator.reshape, 10), (self.groups.trouble_member, 6 if self.world.group.members else 0),
            (self.surroundings.break_streams, 4), (self.surroundings.slow_network, 2),
            (self.surroundings.lossy_network, 3), (self.surroundings.slow_storage, 2),
            (self.surroundings.failing_storage, 2), (self.storage.trouble, 8),
            (self.storage.refuse_a_write_out, 6 if any(t.replicas > 1 for t in scenario.topics) else 0),
            (self.surroundings.set_a_clock, 6 if self.world.clocks.is_wild else 1), (self.etcd.stop_etcd, 1),
            (self.etcd.freeze_etcd, 1), (self.etcd.lossy_etcd, 2), (self.etcd.cut_off_from_etcd, 2),
            (self.etcd.late_news, 2), (self.etcd.compact_etcd, 1), (self.files.lose_a_writer_behind_an_fsync, 0),
            (self.files.lose_a_writer_before_its_first_fsync, 0), (self.files.lose_files_that_are_believed, 0),
            (self.files.leave_a_fence_unseen, 0), (self.files.set_a_clock_far_back, 0),
            (self.files.seal_behind_a_busy_primary, 0), (self.files.die_behind_a_torso, 0),
            (self.files.die_while_writing_again, 0), (self.adoptions.seal_while_adopting, 0),
            (self.metadata.leave_behind, 0), (self.metadata.seal_twice, 0), (self.metadata.lead_without_knowing, 0),
            (self.metadata.forget_an_empty_segment, 0), (self.replicas.lose_a_primary_and_stop_the_rest, 0),
            (self.replicas.lose_a_lone_replica, 0), (self.replicas.sleep_through_the_seal, 0),
            (self.replicas.deliver_late, 0), (self.replicas.hear_of_both_topics_at_once, 0),
            (self.replicas.leave_a_table_behind, 0), (self.replicas.delete_late, 0),
            (self.replicas.hold_up_replacements, 0), (self.groups.freeze_until_out, 0),
            (self.groups.cut_off_until_out, 0), (self.groups.come_back_unheard, 0),
            (self.metadata.stumble_out_of_leading, 0), (self.operator.delete_records, 0),
            (self.kafka_groups.trouble_member, 6 if self.world.kafka_group.members else 0),
            (self.kafka.trouble_coordinator, 8 if self.world.kafka_group.members else 0),
            (self.kafka.wake_a_coordinator, 0), (self.kafka.wake_a_committer, 0), (self.answers.answer_with_errors, 0),
            (self.answers.run_out_of_space, 0), (self.root.lose_root, 0), (self.root.fill, 0),
            (self.clock_steps.step_clocks, 0), (self.kafka.recreate_behind_a_coordinator, 0),
            (self.clock_steps.step_between_two_seals, 0), (self.etcd_lost.save_a_backup, 0),
            (self.etcd_lost.lose_etcd, 0), (self.clock_steps.date_tables_back, 0),
        ]  # fmt: skip

    def _undisturbed(self) -> Collection[Blow]:
        """Return the blows that take seconds and that the next blow might spoil."""
        return (
            self.brokers.seal_behind_the_primarys_back, self.aimed.lose_a_writer_after_the_seal,
            self.aimed.forget_replicas, self.aimed.lose_all_leases, self.files.lose_files_that_are_believed,
            self.files.leave_a_fence_unseen, self.files.seal_behind_a_busy_primary, self.files.die_behind_a_torso,
            self.files.die_while_writing_again, self.metadata.forget_an_empty_segment,
            self.metadata.stumble_out_of_leading, self.groups.come_back_unheard,
            self.replicas.lose_a_primary_and_stop_the_rest, self.replicas.sleep_through_the_seal,
            self.replicas.deliver_late, self.replicas.hold_up_replacements, self.kafka.wake_a_coordinator,
            self.kafka.wake_a_committer, self.root.lose_root, self.root.fill, self.clock_steps.step_between_two_seals,
            self.kafka.recreate_behind_a_coordinator, self.etcd_lost.lose_etcd, self.clock_steps.date_tables_back,
        )  # fmt: skip
