"""Storage faults: failing or hanging operations, for some files, on one machine or all, briefly or long."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seaweedmq.codec.paths import log_dir, topic_dir
from seaweedmq.errors import StorageFailed
from seaweedmq.model.segment import Segment
from tests.doubles.memory_store import StorageOp

if TYPE_CHECKING:
    from tests.sim.nemesis.aimed import Aimed
    from tests.sim.nemesis.losses import Losses
    from tests.sim.world import World

WRITING = frozenset({StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC, StorageOp.PUT, StorageOp.CHECK})
READING = frozenset({StorageOp.LIST, StorageOp.OPEN, StorageOp.READ})
WHAT_FAILS: tuple[frozenset[StorageOp], ...] = (
    frozenset(StorageOp),
    WRITING,
    READING,
    *(frozenset({op}) for op in StorageOp),
)
LONG_SHARE = 0.04
LONG_S = (10.0, 60.0)
SHORT_S = (0.2, 4.0)


@dataclass(slots=True, eq=False, kw_only=True)
class Trouble:
    """A fault of some operations, until it is over."""

    hangs: bool
    """Whether operations hang; otherwise they fail at once."""
    ops: frozenset[StorageOp]
    path: str = ""
    """Part of the affected paths."""
    machine: str | None = None
    """The machine of the affected processes; None: all machines."""
    share: float = 1.0
    works_after: float = 0.5
    """Share of hanging operations that are applied in the end; the others fail."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    hung: set[str] = field(default_factory=set)
    """Machines with operations that hung."""

    def __str__(self) -> str:
        what = "all operations" if len(self.ops) == len(StorageOp) else ", ".join(sorted(self.ops))
        where = f" of {self.path!r}" if self.path else ""
        return f"{what}{where} {'hang' if self.hangs else 'fail'} for {self.machine or 'all'} ({self.share:.0%})"

    async def befall(self, op: StorageOp, path: str, machine: str, rng: random.Random) -> None:
        """Apply the trouble to an operation.

        Raises:
            StorageFailed: At once, or when the trouble is over, if the operation is affected."""
        if op not in self.ops or self.path not in path or self.machine not in (None, machine):
            return
        if self.share < 1 and rng.random() >= self.share:
            return
        if self.hangs:
            self.hung.add(machine)
            await self.over.wait()
            if rng.random() < self.works_after:
                return
        raise StorageFailed(f"the nemesis refused to {op.value} {path}")


class StorageNemesis:
    """Start and end of storage faults."""

    def __init__(self, world: "World", aimed: "Aimed", losses: "Losses") -> None:
        self._world = world
        self._aimed = aimed
        self._losses = losses
        self._rng = world.rng("storage nemesis")
        self._long_until_s = 0.0

    async def trouble(self) -> None:
        """Make some operations fail or hang, mostly for a short time."""
        rng = self._rng
        trouble = Trouble(
            hangs=rng.random() < 0.5,
            ops=rng.choice(WHAT_FAILS),
            path=self._some_path(),
            machine=rng.choice((None, None, rng.choice(self._world.processes).name)),
            share=rng.choice((0.3, 1.0, 1.0)),
        )
        for_s = rng.uniform(*SHORT_S)
        if rng.random() < LONG_SHARE and not self._long_until_s and not self._losses.spared:
            for_s = rng.uniform(*LONG_S)
            self._long_until_s = self._world.loop.time() + for_s
        await self._bring(trouble, for_s)

    async def refuse_a_write_out(self) -> None:
        """Kill a primary, and for a while fail the storage's writes of data that its followers hold."""
        found = await self._aimed.moment(self._is_held)
        if found is None:
            return
        rng = self._rng
        ops = rng.choice((frozenset({StorageOp.APPEND}), frozenset({StorageOp.SYNC}), WRITING))
        trouble = Trouble(hangs=rng.random() < 0.2, ops=ops, path=log_dir(found.topic, found.id))
        primary = self._aimed.running(found)[0]
        self._aimed.end(primary)
        await self._bring(trouble, rng.uniform(0.5, 5.0))
        await self._aimed.start_again([primary])

    async def outlast(self) -> None:
        await asyncio.sleep(max(0.0, self._long_until_s - self._world.loop.time()))

    async def _bring(self, trouble: Trouble, for_s: float) -> None:
        troubles = self._world.disk.troubles
        self._world.note("nemesis", f"storage: {trouble}, {for_s:.1f} s")
        troubles.append(trouble)
        try:
            await asyncio.sleep(for_s)
        finally:
            troubles.remove(trouble)
            trouble.over.set()

    def _is_held(self, segment: Segment) -> bool:
        return len(segment.replicas) > 1 and self._aimed.has_unsynced(segment)

    def _some_path(self) -> str:
        rng = self._rng
        segments = self._aimed.open_segments()
        if not segments or rng.random() < 0.4:
            return ""
        segment = rng.choice(segments)
        folder = topic_dir(segment.topic)
        return rng.choice((folder, f"{folder}/table", log_dir(segment.topic, segment.id)))
