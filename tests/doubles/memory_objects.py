"""Object store in memory for tests and the simulation: requests are values, which a scheduler applies.

``MemoryBucket`` is the server, ``MemoryObjects`` a client. A client passes each request to its ``carry``, which decides
when, how often and whether the bucket applies it, and whether its answer arrives. By default that is once, at once. A
carrier that keeps requests applies them late, twice, or after their sender died.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

from seaweedmq.errors import AlreadyExists, Conflict, InvalidArgument, NotFound, SeaweedMQError
from seaweedmq.ports import (
    PART_BYTES,
    TIMEOUT_S,
    Buffers,
    ObjectContent,
    ObjectFolder,
    ObjectState,
    ObjectWriter,
)
from seaweedmq.storage.objects.uri import check_key

PAGE_OBJECTS = 1000


class ObjectOp(StrEnum):
    """A request to an object store."""

    CREATE = "create"
    PUT = "put"
    REPLACE = "replace"
    GET = "get"
    HEAD = "head"
    LIST = "list"
    LIST_FOLDER = "list folder"
    DELETE = "delete"


WRITES = frozenset({ObjectOp.CREATE, ObjectOp.PUT, ObjectOp.REPLACE, ObjectOp.DELETE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRequest:
    """A request to a bucket."""

    op: ObjectOp
    key: str = ""
    """Key, or folder of a listing."""
    keys: tuple[str, ...] = ()
    """Keys of a deletion."""
    content: bytes = b""
    e_tag: str = ""
    """Version that a REPLACE requires."""
    sender: str = ""
    """Client that sent it."""


ObjectAnswer: TypeAlias = ObjectContent | ObjectState | ObjectFolder | tuple[ObjectState, ...] | SeaweedMQError | None
"""An answer of a bucket; an error is a value, to be raised by the client that receives it."""
Carrier: TypeAlias = Callable[[ObjectRequest], Awaitable[ObjectAnswer]]
"""Function that brings a request to a bucket and its answer back, or raises StorageFailed."""


@dataclass(frozen=True, slots=True)
class _Stored:
    state: ObjectState
    content: bytes


@dataclass(slots=True, eq=False)
class MemoryBucket:
    """The server: objects by key. Each request is applied atomically by ``apply``."""

    wall_us: Callable[[], int]
    stored: dict[str, _Stored] = field(default_factory=dict)
    applied: dict[ObjectOp, int] = field(default_factory=lambda: dict.fromkeys(ObjectOp, 0))
    """Number of applied requests."""
    _versions: int = 0

    def apply(self, request: ObjectRequest) -> ObjectAnswer:
        """Apply a request, and return its answer."""
        self.applied[request.op] += 1
        key, stored = request.key, self.stored.get(request.key)
        if request.op is ObjectOp.LIST:
            return tuple(each.state for _, each in sorted(self.stored.items()) if _is_below(each.state.key, key))
        if request.op is ObjectOp.LIST_FOLDER:
            return self._folder(key)
        if request.op is ObjectOp.DELETE:
            for each in request.keys:
                self.stored.pop(each, None)
            return None
        if request.op is ObjectOp.CREATE and stored is not None:
            return AlreadyExists(f"{key} exists: an object is created once")
        if request.op in (ObjectOp.CREATE, ObjectOp.PUT):
            return self._store(request)
        if request.op is ObjectOp.REPLACE:
            if stored is None or stored.state.e_tag != request.e_tag:
                return Conflict(f"{key} has changed since it was read, or is missing: read it again, then retry")
            return self._store(request)
        if stored is None:
            return NotFound(f"{key} does not exist")
        return stored.state if request.op is ObjectOp.HEAD else ObjectContent(stored.state, memoryview(stored.content))

    def _store(self, request: ObjectRequest) -> ObjectState:
        self._versions += 1
        modified_us = self.wall_us() // 1_000_000 * 1_000_000
        state = ObjectState(request.key, len(request.content), f'"{self._versions}"', modified_us)
        self.stored[request.key] = _Stored(state, request.content)
        return state

    def _folder(self, folder: str) -> ObjectFolder:
        start = len(folder) + 1 if folder else 0
        below = sorted(key for key in self.stored if _is_below(key, folder))
        objects = [self.stored[key].state for key in below if "/" not in key[start:]]
        folders = {key[: key.index("/", start)] for key in below if "/" in key[start:]}
        return ObjectFolder(objects, sorted(folders))


def _is_below(key: str, folder: str) -> bool:
    return not folder or key.startswith(f"{folder}/")


class MemoryObjects:
    """A ``ports.Objects`` of a bucket in memory."""

    def __init__(self, bucket: MemoryBucket, sender: str = "", carry: Carrier | None = None) -> None:
        self.bucket = bucket
        self.sender = sender
        self._carry = carry or self._at_once

    @property
    def uri(self) -> str:
        return "memory://bucket/prefix"

    async def create(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        return await self._write(ObjectOp.CREATE, key, content)

    async def put(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        return await self._write(ObjectOp.PUT, key, content)

    async def replace(self, key: str, content: Buffers, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> str:
        return await self._write(ObjectOp.REPLACE, key, content, e_tag)

    async def get(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectContent:
        answer = await self._send(ObjectRequest(op=ObjectOp.GET, key=key, sender=self.sender))
        assert isinstance(answer, ObjectContent)
        return answer

    async def get_changed(self, key: str, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> ObjectContent | None:
        found = await self.get(key, timeout_s=timeout_s)
        return None if found.state.e_tag == e_tag else found

    async def get_range(self, key: str, start: int, end: int, *, timeout_s: float = TIMEOUT_S) -> memoryview:
        if not 0 <= start <= end:
            raise InvalidArgument(f"bytes {start} to {end} of {key} break the rule 0 <= start <= end")
        return (await self.get(key, timeout_s=timeout_s)).content[start:end] if start < end else memoryview(b"")

    async def head(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectState:
        answer = await self._send(ObjectRequest(op=ObjectOp.HEAD, key=key, sender=self.sender))
        assert isinstance(answer, ObjectState)
        return answer

    async def list(
        self, folder: str = "", *, after: str = "", timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[Sequence[ObjectState]]:
        while True:
            found = await self._send(ObjectRequest(op=ObjectOp.LIST, key=folder, sender=self.sender))
            assert isinstance(found, tuple)
            page = [state for state in found if state.key > after][:PAGE_OBJECTS]
            if page:
                yield page
                after = page[-1].key
            if len(page) < PAGE_OBJECTS:
                return

    async def list_folder(self, folder: str = "", *, timeout_s: float = TIMEOUT_S) -> ObjectFolder:
        answer = await self._send(ObjectRequest(op=ObjectOp.LIST_FOLDER, key=folder, sender=self.sender))
        assert isinstance(answer, ObjectFolder)
        return answer

    async def delete(self, keys: Collection[str], *, timeout_s: float = TIMEOUT_S) -> None:
        named = tuple(dict.fromkeys(keys))
        for key in named:
            check_key(key)
        for start in range(0, len(named), PAGE_OBJECTS):
            page = named[start : start + PAGE_OBJECTS]
            await self._send(ObjectRequest(op=ObjectOp.DELETE, keys=page, sender=self.sender))

    def open_writer(self, key: str, *, part_bytes: int = PART_BYTES, timeout_s: float = TIMEOUT_S) -> ObjectWriter:
        check_key(key)
        return _MemoryWriter(self, key)

    async def sign(self, method: Literal["GET", "PUT"], key: str, *, expires_s: float) -> str:
        check_key(key)
        return f"{self.uri}/{key}?{method}"

    async def _write(self, op: ObjectOp, key: str, content: Buffers, e_tag: str = "") -> str:
        sent = ObjectRequest(op=op, key=key, content=b"".join(content), e_tag=e_tag, sender=self.sender)
        answer = await self._send(sent)
        assert isinstance(answer, ObjectState)
        return answer.e_tag

    async def _send(self, request: ObjectRequest) -> ObjectAnswer:
        if request.key or request.op not in (ObjectOp.LIST, ObjectOp.LIST_FOLDER, ObjectOp.DELETE):
            check_key(request.key)
        answer = await self._carry(request)
        if isinstance(answer, SeaweedMQError):
            raise answer
        return answer

    async def _at_once(self, request: ObjectRequest) -> ObjectAnswer:
        return self.bucket.apply(request)


class _MemoryWriter:
    def __init__(self, objects: MemoryObjects, key: str) -> None:
        self._objects = objects
        self._key = key
        self._content = bytearray()

    async def write(self, chunk: bytes | memoryview) -> None:
        self._content += chunk

    async def close(self) -> None:
        await self._objects.put(self._key, [bytes(self._content)])
