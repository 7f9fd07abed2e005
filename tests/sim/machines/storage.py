"""Shared storage as simulated processes see it: slow, sometimes failing, and torn by a kill in the middle of a write.

All processes share one real ``MemorySegmentStore``. Each has its own ``SimStore``, so that the appends in progress at
its death are known.
"""

import asyncio
import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seaweedmq.core.files.retention import broker_of
from seaweedmq.errors import StorageFailed
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import TopicName
from tests.doubles.memory_store import MemoryFile, MemoryLogWriter, MemorySegmentStore, StorageOp
from tests.sim.machines.loop import OWNER
from tests.sim.machines.network import machine_of
from tests.sim.machines.storage_faults import Trouble

TAKING_SPACE = frozenset({StorageOp.CHECK, StorageOp.CREATE, StorageOp.APPEND, StorageOp.FENCE, StorageOp.PUT})
"""Operations that a full file system rejects."""
NO_SPACE = "No space left on device"

ANSWERED_LATE = {
    "put_log": StorageOp.CREATE, "list_files": StorageOp.LIST, "list_topic_files": StorageOp.LIST,
    "with_folder": StorageOp.LIST, "used_segments": StorageOp.LIST, "create_claim": StorageOp.PUT,
    "read_claims": StorageOp.READ, "removed": StorageOp.LIST, "fence": StorageOp.FENCE,
}  # fmt: skip
"""Methods whose answers are under way for as long as half of this operation takes."""
NOT_SYNCED_SHARE = 0.5
"""Share of appends that the store does not fsync at once although the writer requests it: a store may defer the fsync,
as writers do that have more data."""


@dataclass(slots=True, kw_only=True)
class StorageFaults:
    """Faults that the nemesis sets."""

    latency_s_max: float = 0.001
    sync_s_max: float = 0.01
    slow_s_max: float = 0.0
    """Seconds added to every operation while the storage is slow."""
    failing_share: float = 0.0
    """Share of operations that fail, entirely or in part."""

    def calm(self) -> None:
        self.slow_s_max = self.failing_share = 0.0


class SimDisk:
    """The shared store, and its faults."""

    def __init__(self, store: MemorySegmentStore, rng: random.Random) -> None:
        self.store = store
        self.rng = rng
        self.faults = StorageFaults()
        self.failures = 0
        self.troubles: list[Trouble] = []
        self.capacity_bytes: int | None = None
        """Size of the file system; None is unlimited."""
        self._mounted: dict[str, MemoryFile] | None = None
        """The files of the storage while its root is lost and the store shows the folder beneath."""
        self.on_delete: Callable[[SegmentFile, MemoryFile], None] = lambda file, content: None
        self.on_removed: Callable[[TopicName, int, int], None] = lambda topic, segment, offset: None
        store.fault = self._before
        store.tear = rng

    @property
    def is_calm(self) -> bool:
        has_room = self.capacity_bytes is None and not self.is_root_lost
        return has_room and not self.faults.slow_s_max and not self.faults.failing_share and not self.troubles

    @property
    def is_root_lost(self) -> bool:
        """Whether the mount is gone, and an empty folder lies in its place."""
        return self._mounted is not None

    @property
    def files(self) -> dict[str, MemoryFile]:
        return self.store.files if self._mounted is None else self._mounted

    def lose_root(self) -> None:
        """Unmount the root. Open files stay usable, as after ``umount --lazy``."""
        assert self._mounted is None
        self._mounted, self.store.files = self.store.files, {}

    def return_root(self) -> list[str]:
        """Mount it again. Return the paths of what was created in the folder beneath."""
        assert self._mounted is not None
        beneath = sorted(self.store.files)
        self.store.files, self._mounted = self._mounted, None
        return beneath

    def fill(self) -> None:
        self.capacity_bytes = self._used_bytes()

    def mounted(self) -> "SimStore":
        return SimStore(self)

    def lose_power(self, broker_ids: Container[str] | None) -> None:
        """Lose unflushed writes of these brokers, entirely or in part. None: of all writers."""
        beneath, self.store.files = self.store.files, self.files
        writers = {f.writer for f in self.store.files.values()}
        if broker_ids is not None:
            writers = {writer for writer in writers if broker_of(writer) in broker_ids}
        for writer in sorted(writers):
            self.store.crash(writer=writer, rng=self.rng if self.rng.random() < 0.5 else None)
        self.store.files = beneath

    async def pause(self, op: StorageOp) -> None:
        """Wait for half of an operation's duration."""
        faults = self.faults
        longest_s = faults.sync_s_max if op is StorageOp.SYNC else faults.latency_s_max
        await asyncio.sleep(self.rng.uniform(0, longest_s + faults.slow_s_max))

    async def _before(self, op: StorageOp, path: str) -> None:
        await self.pause(op)
        if self.faults.failing_share and self.rng.random() < self.faults.failing_share:
            self.failures += 1
            raise StorageFailed(f"the nemesis refused to {op.value} {path}")
        if self.capacity_bytes is not None and op in TAKING_SPACE and self._used_bytes() >= self.capacity_bytes:
            raise StorageFailed(f"cannot {op.value} {path or 'anything'}: {NO_SPACE}")
        for trouble in self.troubles[:]:
            await trouble.befall(op, path, machine_of(OWNER.get()), self.rng)

    def _used_bytes(self) -> int:
        return sum(len(file.data) for file in self.files.values())


class SimStore:
    """A ``ports.SegmentStore``: the shared one, with delayed answers."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self._inner = disk.store
        self.appending: dict[str, bytes] = {}
        """Appends in progress by path, which a kill may tear."""

    def kill(self) -> int:
        """Note the process's death: a random part of each append in progress stays in the file. Return the number of
        torn files."""
        torn = 0
        for path, data in self.appending.items():
            file = self.disk.files.get(path)
            if file is not None and not file.crashed:
                file.data += data[: self.disk.rng.randint(0, len(data))]
                torn += 1
        self.appending.clear()
        return torn

    def __getattr__(self, name: str) -> Any:
        """Return a method of the shared store that this one does not have itself."""
        method, op = getattr(self._inner, name), ANSWERED_LATE.get(name)
        if op is None:
            return method

        async def answered_late(*args: Any, **options: Any) -> Any:
            answer = await method(*args, **options)
            await self.disk.pause(op)
            return answer

        return answered_late

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> "SimLogWriter":
        inner = await self._inner.create_log(topic, segment, base_offset, writer, preamble)
        await self.disk.pause(StorageOp.CREATE)
        return SimLogWriter(self, inner)

    async def create_journal(self, name: str) -> "SimLogWriter":
        return SimLogWriter(self, await self._inner.create_journal(name))

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        await self._inner.sync_files(files)
        await self.disk.pause(StorageOp.SYNC)

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        fenced = await self._inner.is_fenced(topic, uid, segment)
        await self.disk.pause(StorageOp.LOOK)
        return fenced

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        for file in files:
            content = self._inner.files.get(file.path)
            await self._inner.delete([file])
            if content is not None:
                self.disk.on_delete(file, content)

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        for segment, offset in removed.items():
            await self._inner.record_removed(topic, uid, {segment: offset})
            self.disk.on_removed(topic, segment, offset)

    async def close(self) -> None:
        """Do nothing: other processes use the shared store."""


class SimLogWriter:
    """A ``ports.LogWriter`` whose append may be torn by a kill, or applied before the writer learns of it."""

    def __init__(self, store: SimStore, inner: MemoryLogWriter) -> None:
        self._store = store
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        data = b"".join(chunks)
        self._store.appending[self.path] = data
        try:
            await self._inner.append([data])
        finally:
            self._store.appending.pop(self.path, None)
        await self._store.disk.pause(StorageOp.APPEND)
        if not sync or self._store.disk.rng.random() < NOT_SYNCED_SHARE:
            return False
        try:
            await self.sync()
        except StorageFailed:
            return False
        return True

    async def sync(self) -> None:
        await self._inner.sync()
        await self._store.disk.pause(StorageOp.SYNC)

    async def close(self) -> None:
        await self._inner.close()
