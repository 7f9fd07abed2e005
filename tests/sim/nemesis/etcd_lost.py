"""Blows by which etcd loses its data or returns to a backup, followed by a recovery from the storage."""

import asyncio
from typing import TYPE_CHECKING

from seaweedmq.broker.recovery.cluster import recover_cluster
from seaweedmq.broker.recovery.plan import EtcdCondition
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_from_json
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.cluster import StorageMarker
from tests.doubles.memory_meta import Backup
from tests.sim.machines.loop import Owner
from tests.sim.nemesis.losses import Losses
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

NEWS_KEPT_S = 5.0
"""Age in seconds beyond which a backup is older than the storage's marker, which the leader raises every 2 s.

Without a leader since the backup the marker was not raised; the last changes before may be lost unnoticed."""
RECOVERED_S_MAX = 60.0
RETRY_S = 0.5
WATCHED_S_MAX = 5.0
"""Longest time in seconds until the checkers have followed etcd."""


class EtcdLost:
    """Backups of etcd, its losses, and its restores."""

    def __init__(self, world: "World", losses: Losses) -> None:
        self._world = world
        self._losses = losses
        self._rng = world.rng("etcd lost")
        self._backups: list[tuple[float, Backup]] = []

    async def save_a_backup(self) -> None:
        """Save a backup, as ``etcdctl snapshot save`` does."""
        self._backups.append((self._world.loop.time(), self._world.etcd.server.save()))

    async def lose_etcd(self) -> None:
        """Empty etcd or restore a backup, with some brokers dead, and recover it."""
        world, rng = self._world, self._rng
        if self._losses.spared or not world.etcd.is_well or not world.disk.is_calm or not world.cluster.state.topics:
            return
        marker = await world.disk.mounted().read_marker()
        assert marker is not None, "the disk is calm"
        old = [backup for saved_s, backup in self._backups if self._is_older(saved_s, backup, marker)]
        backup = rng.choice((Backup(), rng.choice(old))) if old else Backup()
        share = rng.choice((0.0, 0.5, 1.0))
        dead = [process for process in world.processes if process.is_running and rng.random() < share]
        for process in dead:
            process.kill(machine=False)
        world.etcd.restore(backup)
        await asyncio.sleep(rng.choice((0.0, 0.5, 3.0)))
        owner = Owner("recovery")
        await world.network.spawn(owner, self._recover(owner), owner.name)
        for process in dead:
            if not process.is_running:
                process.start()

    def _is_older(self, saved_s: float, backup: Backup, marker: StorageMarker) -> bool:
        """Whether the storage knows, or must know, that a backup is not the newest state."""
        entry = backup.entries.get(keys.CLUSTER)
        generation = -1 if entry is None else identity_from_json(entry.value).generation
        if (generation, backup.revision) < (marker.generation, marker.etcd_revision):
            return True
        lock = self._world.etcd.server.get(keys.LEADER)
        has_led_since = lock is not None and lock.create_revision <= backup.revision
        return generation == marker.generation and has_led_since and saved_s + NEWS_KEPT_S <= self._world.loop.time()

    async def _recover(self, owner: Owner) -> None:
        """Run ``seaweedmq cluster recover --apply`` until it succeeds."""
        world = self._world
        end_s = world.loop.time() + RECOVERED_S_MAX
        while world.loop.time() < end_s:
            try:
                plan = await recover_cluster(
                    world.disk.mounted(),
                    world.etcd.client(owner),
                    apply=True,
                    rng=self._rng,
                    wall_us=world.clocks.here_us,
                    lease_ttl_s=world.scenario.broker.lease_ttl_s,
                )
            except SeaweedMQError as error:
                world.note(owner.name, f"is not done: {error!r}")
                await asyncio.sleep(RETRY_S)
                continue
            world.note(owner.name, f"found etcd {plan.state}: {len(plan.changes)} changes, problems {plan.problems}")
            if plan.problems or plan.state is EtcdCondition.IN_STEP:
                why = "; ".join(plan.problems) or "etcd is taken for one that is in step"
                world.violations.append(Violation("not recovered", why))
            async with asyncio.timeout(WATCHED_S_MAX):
                while world.cluster.state.revision < world.etcd.server.revision:  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(0.001)
            world.cluster.on_recovered()
            return
        world.violations.append(Violation("not recovered", f"etcd is not recovered within {RECOVERED_S_MAX:g} s"))
