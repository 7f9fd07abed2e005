"""Segment store on a mounted directory: a local disk, NFS, or a cluster file system."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from seaweedmq.codec.paths import GROUPS, TOPICS, claim_path, claims_dir, journal_path, parse_journal_name
from seaweedmq.errors import AlreadyExists
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.model.config import US_PER_S
from seaweedmq.ports import StorageSpace, StoredFiles
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place
from seaweedmq.storage.store import claims
from seaweedmq.storage.store import marker as markers
from seaweedmq.storage.store.blob_files import BlobFiles
from seaweedmq.storage.store.file_handles import FileLogWriter
from seaweedmq.storage.store.place_files import PlaceFiles
from seaweedmq.storage.store.segment_files import SegmentFiles
from seaweedmq.storage.store.topic_folders import TopicFolders

R = TypeVar("R")


class FileSegmentStore(SegmentFiles, TopicFolders, BlobFiles):
    """A ``ports.SegmentStore`` on an existing directory.

    Methods raise StorageFailed if the storage fails or lacks the marker of its cluster.
    """

    @property
    def uri(self) -> str:
        """URI by which ``open_directory_store`` opens the same store."""
        return self.place.root.as_uri()

    async def verify_root(self) -> None:
        """Check that the root has the marker of the bound cluster."""
        await self._run(self._documents, "verify", "", lambda: None, verify_after=False)

    async def read_marker(self) -> StorageMarker | None:
        """Read the marker of the root; None if there is none."""
        return await self._of_marker("read the marker of", lambda: markers.read_marker(self.place))

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        """Create the marker durably unless there is one; return the marker of the root."""
        return await self._of_marker("create the marker of", lambda: markers.create_marker(self.place, marker))

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace the marker of the same cluster durably."""
        await self._of_marker("replace the marker of", lambda: markers.replace_marker(self.place, marker))

    async def has_topics(self) -> bool:
        """Whether the storage has a non-empty folder of a topic."""
        return await self._of_marker("list the topics of", self._has_topics)

    async def check(self) -> None:
        """Check that the storage can be written."""
        await self._run(self._syncs, "write to the storage directory", "", self._probe)

    async def now_us(self) -> int:
        """Return the time of the clock that dates files, in microseconds since 1970 UTC."""
        return await self._run(
            self._syncs, "read the clock of", "", lambda: int(file_io.clock_s(self.place.root) * US_PER_S)
        )

    async def space(self) -> StorageSpace | None:
        """Return the free and total space of the file system; None if it does not report them."""
        return await self._run(self._syncs, "measure the space of", "", lambda: file_io.space(self.place.root))

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        """Create the claim of a number durably."""
        path = claim_path(kind, number)
        try:
            await self._run(
                self._documents, "create", path, lambda: claims.create_claim(self.place, kind, number, content)
            )
        except FileExistsError:
            raise AlreadyExists(f"{self.place.path(path)} exists, number {number} is taken: take another one") from None

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        """Return the content of each claim, by number."""
        return await self._run(self._documents, "read", claims_dir(kind), lambda: claims.read_claims(self.place, kind))

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        """Delete claims; ignore deleted ones."""
        paths = [claim_path(kind, number) for number in numbers]
        if paths:
            await self._run(self._documents, "delete", claims_dir(kind), lambda: self.place.delete(*paths))

    async def create_journal(self, name: str) -> FileLogWriter:
        """Create a group journal and return its writer."""
        relative = journal_path(name)
        try:
            fd = await self._run(self._writes, "create journal", relative, lambda: self._create_exclusively(relative))
        except FileExistsError:
            raise AlreadyExists(f"journal {relative} exists: every journal needs its own name") from None
        return FileLogWriter(self.place, relative, fd, 0, writes=self._writes, syncs=self._syncs, guard=self._guard)

    async def list_journals(self) -> list[str]:
        """List the names of the group journals."""
        names = await self._run(self._documents, "list", GROUPS, lambda: self.place.names(GROUPS, ".journal"))
        return sorted(name for name in names if parse_journal_name(name) is not None)

    async def read_journal(self, name: str) -> bytes:
        """Read a group journal."""
        return await self._read_whole(journal_path(name))

    async def delete_journals(self, names: Sequence[str]) -> None:
        """Delete group journals; ignore deleted ones."""
        paths = [journal_path(name) for name in names]
        if paths:
            await self._run(self._documents, "delete", paths[0], lambda: self.place.delete(*paths))

    def _probe(self) -> None:
        if not self.place.exists():
            raise NotADirectoryError(20, "no such directory; create it or mount it", str(self.place))
        with file_io.temporary_file(self.place.root) as probe:
            probe.write_bytes(b"\0")

    def _has_topics(self) -> bool:
        with contextlib.suppress(FileNotFoundError), os.scandir(self.place.path(TOPICS)) as entries:
            spaces = [f"{TOPICS}/{entry.name}" for entry in entries if entry.is_dir()]
            folders = (f"{space}/{name}" for space in spaces for name in self.place.names(space))
            return any(self.place.path(folder).is_dir() and self.place.holds_something(folder) for folder in folders)
        return False


def open_directory_store(uri: str) -> FileSegmentStore:
    """Return the store at a path or ``file://`` URI, without access to it; ``check()`` tests whether it is usable."""
    return FileSegmentStore(DirectoryPlace.parse(uri).root)


def run_with_files(place: Place, use: Callable[[StoredFiles], Coroutine[None, None, R]]) -> R:
    """Return the result of a coroutine on the files of a place, run in a thread: notebooks already run a loop."""

    async def opened() -> R:
        if not isinstance(place, DirectoryPlace):
            return await use(PlaceFiles(place))
        store = FileSegmentStore(place.root)
        try:
            return await use(store)
        finally:
            await store.close()

    with ThreadPoolExecutor(1, "seaweedmq-store") as pool:
        return pool.submit(asyncio.run, opened()).result()
