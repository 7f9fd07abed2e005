"""Blows at the storage as a whole: its root is lost and returns, its file system fills and empties."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seaweedmq.core.files.retention import Listed, expired_files, retention_policy
from tests.sim.rules.retention import listed
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

UNDER_WAY_S = 1.0
"""Seconds within which an append that began before the root was lost is acknowledged."""
LOST_S = (2.0, 8.0)
FULL_S = (1.0, 10.0)
PATIENCE_S = 6.0
"""Seconds within which a file that may be deleted is deleted, even on a full file system."""


class StorageRoot:
    """Losses of the root or its space, with checks of the cluster meanwhile."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = world.rng("storage root")

    async def lose_root(self) -> None:
        """Unmount and remount the root. Meanwhile no file is created beneath it and no record acknowledged."""
        world, disk = self._world, self._world.disk
        if not disk.is_calm:
            return
        world.note("nemesis", "takes the root of the storage away")
        disk.lose_root()
        try:
            await asyncio.sleep(UNDER_WAY_S)
            world.watch.sample()
            before = world.watch.committed
            await asyncio.sleep(self._rng.uniform(*LOST_S))
            world.watch.sample()
            for (topic, segment), committed in world.watch.committed.items():
                opened = world.cluster.state.segments.get(topic, {}).get(segment)
                start = 0 if opened is None else opened.start_offset
                if committed > before.get((topic, segment), start):
                    self._tell("lost root", f"{topic}#{segment} committed {committed} while the root was lost")
        finally:
            world.note("nemesis", "returns the root of the storage")
            for path in disk.return_root():
                self._tell("lost root", f"{path} was created in the folder beneath")

    async def fill(self) -> None:
        """Fill the file system for a while. Retention frees space."""
        world, disk = self._world, self._world.disk
        if not disk.is_calm:
            return
        world.note("nemesis", "fills the storage")
        is_well = world.etcd.is_well and all(process.is_well for process in world.processes)
        disk.fill()
        try:
            due = set(self._due()) if is_well else set()
            for_s = self._rng.uniform(*FULL_S)
            await asyncio.sleep(for_s)
            for path in sorted(due & disk.files.keys()):
                if for_s >= PATIENCE_S:
                    self._tell("neglected", f"{path} is due, and {for_s:.1f} s later it still fills the storage")
        finally:
            world.note("nemesis", "empties the storage")
            disk.capacity_bytes = None

    def _due(self) -> Iterator[str]:
        """Yield paths of files that may be deleted by every clock."""
        world, state = self._world, self._world.cluster.state
        files = listed(world.disk.store)
        for name, topic in state.topics.items():
            segments = [s for s in state.segments.get(name, {}).values() if s.is_open or s.sequences_complete]
            of_topic = [
                Listed(s.end_offset, [f for f in files if f.segment == s.id and f.topic == name]) for s in segments
            ]
            policy = retention_policy(topic, world.scenario.broker)
            yield from (file.path for file in expired_files(of_topic, policy, world.clocks.earliest_us()))

    def _tell(self, rule: str, detail: str) -> None:
        self._world.violations.append(Violation(rule, detail))
