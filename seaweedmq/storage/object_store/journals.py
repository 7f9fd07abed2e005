"""Journals of groups on an object store: the bytes of a journal as a few objects.

::

    groups/<journal>/<start, 20 digits>-<end, 20 digits>

An object cannot be extended. So an append stores all bytes since the last boundary again, under a name with the new
end, and after ``CHUNK_BYTES`` the next boundary begins. A journal is read as the longest objects from 0 on, each of
which begins where the one before it ends. The shorter ones are deleted at each boundary.

Rejected: one object for each append, of which a leader that restarts would read a hundred thousand. Appends begin
``APPEND_INTERVAL_S`` apart, so that busy groups cost at most ten requests a second; commits meanwhile share the next.
"""

import asyncio
import contextlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from seaweedmq.codec.paths import GROUPS, journal_path, parse_journal_name
from seaweedmq.errors import AlreadyExists, Closed, NotFound, StorageFailed
from seaweedmq.ports import Objects, ObjectState
from seaweedmq.storage.object_store.root import ObjectRoot

CHUNK_BYTES = 64 * 1024
"""Size from which an object is complete; an append writes less than this again."""
APPEND_INTERVAL_S = 0.1
READ_AT_ONCE = 16
"""Objects of a journal that are read concurrently."""
_PART = re.compile(r"([0-9]{20})-([0-9]{20})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """An object of a journal, with its bytes from ``start`` up to ``end``."""

    start: int
    end: int

    def key(self, journal: str) -> str:
        return f"{journal_path(journal)}/{self.start:020d}-{self.end:020d}"


class ObjectJournal:
    """A ``ports.LogWriter`` of a journal. After a failed append it rejects all calls, as the file of a directory."""

    def __init__(self, objects: Objects, root: ObjectRoot, name: str) -> None:
        """Take over a journal that was created just now."""
        self._objects = objects
        self._root = root
        self._name = name
        self._chunk = bytearray()
        """Bytes since the last boundary."""
        self._start = 0
        self._shorter: list[_Part] = [_Part(0, 0)]
        """Stored objects since the last boundary."""
        self._append_s = -math.inf
        """Time of the loop at which the last append began."""
        self._failure: str | None = None
        self._is_closed = False
        self._is_appending = False

    @property
    def path(self) -> str:
        """Path of the journal below the root."""
        return journal_path(self._name)

    @property
    def size_bytes(self) -> int:
        """Size of the journal in bytes, without a running append."""
        return self._start + len(self._chunk)

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        """Append bytes, one append at a time; they are flushed on return."""
        del sync
        self._check()
        assert not self._is_appending, f"{self.path}: two appends at once would mix their bytes"
        data = b"".join(chunks)
        if not data:
            return True
        self._is_appending, self._failure = True, "an append failed or was cancelled, and may be stored later"
        try:
            await self._store(data)
        finally:
            self._is_appending = False
        self._failure = None
        return True

    async def _store(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._append_s + APPEND_INTERVAL_S - loop.time()))
        self._append_s = loop.time()
        await self._root.verify_often()
        content = bytes(self._chunk) + data
        part = _Part(self._start, self._start + len(content))
        # One writer has this name, and gives each end once: what exists is of an attempt whose answer was lost.
        with contextlib.suppress(AlreadyExists):
            await self._objects.create(part.key(self._name), [content])
        self._chunk = bytearray(content)
        if len(content) < CHUNK_BYTES:
            self._shorter.append(part)
            return
        needless, self._shorter = self._shorter, []
        self._start, self._chunk = part.end, bytearray()
        await self._objects.delete([each.key(self._name) for each in needless if each.start or each.end])

    async def sync(self) -> None:
        """Check that the journal can be used: what was appended is flushed."""
        self._check()

    async def close(self) -> None:
        """Reject later calls."""
        self._is_closed = True

    def _check(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.path} was closed by its writer")
        if self._failure is not None and not self._is_appending:
            raise StorageFailed(f"{self.path} accepts no more because {self._failure}: continue in another journal")


async def create_journal(objects: Objects, root: ObjectRoot, name: str) -> ObjectJournal:
    """Create a journal, or raise AlreadyExists, possibly by an attempt of this call whose answer was lost."""
    try:
        await objects.create(_Part(0, 0).key(name), [])
    except AlreadyExists:
        raise AlreadyExists(f"journal {name} exists: every journal needs its own name") from None
    return ObjectJournal(objects, root, name)


async def list_journals(objects: Objects) -> list[str]:
    """Return the names of all journals, sorted."""
    folders = (await objects.list_folder(GROUPS)).folders
    names = [key.rpartition("/")[2] for key in folders]
    return sorted(name for name in names if parse_journal_name(name) is not None)


async def read_journal(objects: Objects, name: str) -> bytes:
    """Return the content of a journal, or raise NotFound if it does not exist, or was deleted meanwhile."""
    found = (await objects.list_folder(journal_path(name))).objects
    parts = _contiguous(found)
    if not parts:
        raise NotFound(f"journal {name} is missing in {objects.uri}")
    read: list[bytes] = []
    for at in range(0, len(parts), READ_AT_ONCE):
        some = (objects.get(part.key(name)) for part in parts[at : at + READ_AT_ONCE])
        read += [bytes(each.content) for each in await asyncio.gather(*some)]
    return b"".join(read)


async def delete_journals(objects: Objects, names: Sequence[str]) -> None:
    """Delete journals; missing ones are ignored."""
    for name in names:
        async for page in objects.list(journal_path(name)):
            await objects.delete([state.key for state in page])


def _contiguous(found: Sequence[ObjectState]) -> list[_Part]:
    """Return the parts that together are the journal from 0 on."""
    longest: dict[int, _Part] = {}
    for state in found:
        match = _PART.fullmatch(state.key.rpartition("/")[2])
        if match is None or int(match[2]) - int(match[1]) != state.size_bytes:
            continue
        part = _Part(int(match[1]), int(match[2]))
        longest[part.start] = max(part, longest.get(part.start, part))
    parts: list[_Part] = []
    while (part_at := longest.get(parts[-1].end if parts else 0)) is not None:
        parts.append(part_at)
        if part_at.start == part_at.end:
            break
    return parts
