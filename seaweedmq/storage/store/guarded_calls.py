"""Blocking calls on the guarded root of a storage, in threads. The base of the parts of ``files.FileSegmentStore``."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from seaweedmq.codec.paths import TOPIC_DOCUMENT, document_path
from seaweedmq.errors import NotFound, StorageFailed
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.store.file_handles import open_descriptor
from seaweedmq.storage.store.marker import RootGuard

T = TypeVar("T")

WRITE_THREADS = 4
SYNC_THREADS = 8
"""Number of threads for fsyncs: they wait for the device, which can merge concurrent ones."""
READ_THREADS = 4
DOCUMENT_THREADS = 4
"""Number of threads for documents, so that records never wait for one."""
BLOB_THREADS = 4
"""Number of threads for payloads by reference, so that neither records nor documents wait for one."""
CREATE_ATTEMPTS = 3
"""Attempts to create a file: a topic's deletion may move its new folders away before the file is created."""


class GuardedCalls:
    """A storage root whose blocking calls run in threads and verify the cluster's marker before and after."""

    def __init__(self, root: Path | str) -> None:
        self.place = DirectoryPlace(Path(root).absolute())
        self._guard = RootGuard(self.place)
        self._writes = ThreadPoolExecutor(WRITE_THREADS, "seaweedmq-write")
        self._syncs = ThreadPoolExecutor(SYNC_THREADS, "seaweedmq-sync")
        self._reads = ThreadPoolExecutor(READ_THREADS, "seaweedmq-read")
        self._documents = ThreadPoolExecutor(DOCUMENT_THREADS, "seaweedmq-document")
        self._blobs = ThreadPoolExecutor(BLOB_THREADS, "seaweedmq-blob")

    async def close(self) -> None:
        """Wait for running calls and end the threads; owners must have closed all writers and readers."""
        for pool in (self._writes, self._syncs, self._reads, self._documents, self._blobs):
            await asyncio.to_thread(pool.shutdown)

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster that the store is bound to."""
        return self._guard.cluster_id

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on."""
        self._guard.bind(cluster_id)

    async def _read_whole(self, relative: str) -> bytes:
        try:
            return await self._run(self._documents, "read", relative, lambda: self.place.read(relative))
        except FileNotFoundError:
            raise NotFound(f"{relative} is missing in {self.place}") from None

    async def _run(
        self, pool: ThreadPoolExecutor, action: str, path: str, call: Callable[[], T], *, verify_after: bool = True
    ) -> T:
        """Run a blocking call; while the root exists, the caller handles FileExistsError and FileNotFoundError."""
        guarded = self._guarded(action, path, call, verify_after=verify_after)
        return await asyncio.get_running_loop().run_in_executor(pool, guarded)

    async def _open(self, pool: ThreadPoolExecutor, action: str, path: str, call: Callable[[], int]) -> int:
        """Open a descriptor by a call that verifies the marker itself: an error afterwards would leak it."""
        return await open_descriptor(pool, self._guarded(action, path, call, verify_after=False))

    def _guarded(self, action: str, path: str, call: Callable[[], T], *, verify_after: bool) -> Callable[[], T]:
        def guarded() -> T:
            try:
                self._guard.verify()
                result = call()
                if verify_after:  # the mount may have vanished: an empty listing may be that of the folder beneath it
                    self._guard.verify()
                return result
            except (FileExistsError, FileNotFoundError) as e:
                self._guard.verify()
                if self.place.exists():
                    raise
                raise storage_failed(action, str(self.place.path(path)), e) from e
            except OSError as e:
                raise storage_failed(action, str(self.place.path(path)), e) from e

        return guarded

    async def _of_marker(self, action: str, call: Callable[[], T]) -> T:
        """Run a blocking call that needs no marker."""

        def converted() -> T:
            with failing(action, self.place):
                return call()

        return await asyncio.get_running_loop().run_in_executor(self._documents, converted)

    def _make_folder(self, relative: str) -> Path:
        return self.place.make_folder(relative, sibling=self._guard.sibling)

    def _create_exclusively(self, relative: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(CREATE_ATTEMPTS):
            self._make_folder(relative.rpartition("/")[0])
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.place.path(relative), flags, 0o644)
        return os.open(self.place.path(relative), flags, 0o644)

    def _missing_document(self, topic: TopicName) -> StorageFailed:
        """Return the error of a topic whose document is missing while its files are used."""
        document = self.place.path(document_path(topic, TOPIC_DOCUMENT))
        return StorageFailed(f"{document} is missing: the topic was deleted, or is being created")
