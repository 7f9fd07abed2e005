"""Payloads that records refer to, on a mounted directory: the calls of ``storage.blobs`` in threads."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

from seaweedmq.codec.paths import blob_days
from seaweedmq.errors import NotFound, StorageFailed, Unavailable
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import StoredBlob
from seaweedmq.storage import blobs
from seaweedmq.storage.store.guarded_calls import GuardedCalls

T = TypeVar("T")

SWEEP_TIMEOUT_S = 3_600.0
"""Longest sweep of one topic in seconds."""


class BlobFiles(GuardedCalls):
    """A ``ports.BlobStore``. Methods raise StorageFailed if the storage fails or lacks the marker of its cluster."""

    async def find_blob(self, topic: TopicName, uid: int, blob_id: str, days: Sequence[str]) -> StoredBlob | None:
        """Find what earlier uploads of an id left."""
        return await self._on_blob(
            "find a payload in", "", lambda: blobs.find_blob(self.place, topic, uid, blob_id, days)
        )

    async def create_part(self, uri: str, number: int) -> "FilePartWriter":
        """Begin a part, aside of its name."""
        folder = blobs.name_of(uri).staged

        def create() -> blobs.PartWriter:
            return blobs.PartWriter(self.place, self._make_folder(folder), number)

        # Without a check of the marker afterwards, whose error would leak the writer; each append checks it.
        creating = self._blobs.submit(self._guarded("create a part of", uri, create, verify_after=False))
        try:
            with _converted("create a part of", uri):
                return FilePartWriter(self, uri, await asyncio.wrap_future(creating))
        except asyncio.CancelledError:
            creating.add_done_callback(_close_created)
            raise

    async def read_part(self, blob: StoredBlob, number: int, position: int, length: int) -> bytes:
        """Read from one part."""
        return await self._on_blob(
            "read a part of", blob.uri, lambda: blobs.read_part(self.place, blob, number, position, length)
        )

    async def complete_blob(self, uri: str, part_count: int, size_bytes: int) -> None:
        """Give a payload its final name."""
        await self._on_blob(
            "complete", uri, lambda: blobs.complete_blob(self.place, blobs.name_of(uri), part_count, size_bytes)
        )

    async def read_blob(self, uri: str, position: int, length: int) -> bytes:
        """Read from a payload."""
        name = blobs.name_of(uri)

        def read() -> bytes:
            with suppress(NotFound):
                return blobs.read_blob(self.place, name, position, length)
            # A network file system may not show yet what another broker stored; readers take a miss for a loss.
            for folder in (blob_days(name.topic, name.uid), uri.rpartition("/")[0]):
                with suppress(FileNotFoundError):
                    self.place.refresh(folder)
            return blobs.read_blob(self.place, name, position, length)

        return await self._on_blob("read", uri, read)

    async def sweep_blobs(self, topic: TopicName, uid: int, now_us: int) -> int:
        """Sweep in a process of its own, if the topic has payloads."""
        days = blob_days(topic, uid)
        if not await self._run(self._blobs, "list", days, lambda: self.place.holds_something(days)):
            return 0
        command = [sys.executable, "-m", "seaweedmq.storage.jobs.sweep_process"]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, str(self.place), str(topic), str(now_us), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
            )
        except OSError as error:
            raise Unavailable(
                f"the sweep cannot be started ({error}): raise the limit of open files or of processes, and retry"
            ) from error
        try:
            async with asyncio.timeout(SWEEP_TIMEOUT_S):
                said, why = await process.communicate()
        except TimeoutError:
            raise StorageFailed(f"{days} was not swept within {SWEEP_TIMEOUT_S:g} s: check the storage") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            reason = why.decode(errors="replace").strip().rpartition("\n")[2]
            raise StorageFailed(f"{days} was not swept: {reason or f'its process ended with {process.returncode}'}")
        return int(said)

    async def _on_blob(self, action: str, uri: str, call: Callable[[], T]) -> T:
        with _converted(action, uri):
            return await self._run(self._blobs, action, uri, call)


@contextmanager
def _converted(action: str, uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        # The next attempt finds out: another upload of the same content completed it, or the topic was deleted.
        raise Unavailable(f"cannot {action} {uri}: it was completed or deleted meanwhile; retry") from error


def _close_created(creating: "Future[blobs.PartWriter]") -> None:
    if not creating.cancelled() and creating.exception() is None:
        creating.result().close()


class FilePartWriter:
    """A ``ports.PartWriter`` on a file."""

    def __init__(self, store: BlobFiles, uri: str, writer: blobs.PartWriter) -> None:
        self._store = store
        self._uri = uri
        self._writer = writer

    async def append(self, data: bytes) -> None:
        """Write the next bytes."""
        await self._store._on_blob("write", self._uri, lambda: self._writer.append(data))  # noqa: SLF001 - its part

    async def keep(self) -> None:
        """Make the part durable and give it its name."""
        await self._store._on_blob("flush", self._uri, self._writer.keep)  # noqa: SLF001

    async def close(self) -> None:
        """Close the file. It outlives a cancellation: another call of a thread may still use the descriptor."""
        await asyncio.shield(asyncio.to_thread(self._writer.close))
