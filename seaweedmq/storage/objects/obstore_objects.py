"""The objects below a prefix of a bucket, by ``obstore``."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from seaweedmq.errors import InvalidArgument, StorageFailed
from seaweedmq.ports import (
    PART_BYTES,
    TIMEOUT_S,
    Buffers,
    ObjectContent,
    ObjectFolder,
    ObjectState,
    ObjectWriter,
)
from seaweedmq.storage.objects.answers import NO_ANSWER, Answer, answer_of
from seaweedmq.storage.objects.meter import RequestKind, RequestMeter
from seaweedmq.storage.objects.requests import Requests, late
from seaweedmq.storage.objects.settings import PART_ATTEMPTS_MAX, client_of, library
from seaweedmq.storage.objects.uri import ObjectsUri, check_key

if TYPE_CHECKING:
    from obstore import AsyncWritableFile, ObjectMeta

T = TypeVar("T")

PAGE_OBJECTS = 1000
"""Objects of one page of a listing and of one deletion, the limit of S3."""
DELETIONS_AT_ONCE = 16
"""Single deletions that are under way for a store that does not delete several objects."""
PARTS_AT_ONCE = 4
"""Parts of one writer that wait for the store; the writer has as many in memory, and the one being filled."""
SIGNED_S_MAX = 7 * 86_400
"""Limit of S3 on the life of a signed URL."""


class ObstoreObjects:
    """A ``ports.Objects`` on S3, Google Cloud Storage or Azure. Belongs to the event loop; pickled as its URI."""

    def __init__(
        self,
        uri: ObjectsUri,
        *,
        meter: RequestMeter | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Create a client, without access to the store.

        Raises:
            Unsupported: If ``obstore`` is not installed.
            InvalidArgument: If the environment has a setting that cannot work.
        """
        self._uri = uri
        self._library = library()
        self._client = client_of(uri)
        self._parts_client = client_of(uri, attempts_max=PART_ATTEMPTS_MAX)
        failures = (self._library.exceptions.BaseError, OSError)
        self._requests = Requests(failures, meter or RequestMeter(), rng or random.Random())

    def __repr__(self) -> str:
        return f"ObstoreObjects({str(self._uri)!r})"

    def __reduce__(self) -> tuple[type["ObstoreObjects"], tuple[ObjectsUri]]:
        return ObstoreObjects, (self._uri,)

    @property
    def uri(self) -> str:
        """URI of the prefix."""
        return str(self._uri)

    @property
    def meter(self) -> RequestMeter:
        """Counter of the requests."""
        return self._requests.meter

    async def create(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        """Create an object unless the key is taken, and return its e_tag."""
        return await self._put("create", key, content, "create", timeout_s)

    async def put(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        """Create or replace an object, and return its e_tag."""
        return await self._put("write", key, content, "overwrite", timeout_s)

    async def replace(self, key: str, content: Buffers, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> str:
        """Replace the version ``e_tag`` of an object, and return the new e_tag."""
        return await self._put("replace", key, content, {"e_tag": e_tag}, timeout_s)

    async def _put(self, action: str, key: str, content: Buffers, mode: Any, timeout_s: float) -> str:
        buffers = list(content)

        async def attempt() -> str:
            # An iterable is one request with the buffers themselves; with multipart it would be copied into parts.
            done = await self._library.put_async(self._client, key, buffers, mode=mode, use_multipart=False)
            return done["e_tag"] or ""

        size_bytes = sum(memoryview(buffer).nbytes for buffer in buffers)
        return await self._send(RequestKind.PUT, action, key, attempt, timeout_s, written_bytes=size_bytes)

    async def get(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectContent:
        """Return a whole object."""
        return await self._send(RequestKind.GET, "read", key, lambda: self._content(key, {}), timeout_s)

    async def get_changed(self, key: str, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> ObjectContent | None:
        """Return a whole object unless it still has the version ``e_tag``."""

        async def attempt() -> ObjectContent | None:
            try:
                return await self._content(key, {"if_none_match": e_tag})
            except self._library.exceptions.NotModifiedError:
                return None

        return await self._send(RequestKind.GET, "read", key, attempt, timeout_s)

    async def _content(self, key: str, options: Any) -> ObjectContent:
        found = await self._library.get_async(self._client, key, options=options)
        content = memoryview(await found.bytes_async())
        self.meter.add(RequestKind.GET, 0, read_bytes=content.nbytes)
        state = _state(found.meta)
        if content.nbytes != state.size_bytes:
            raise OSError("the body is short")
        return ObjectContent(state, content)

    async def get_range(self, key: str, start: int, end: int, *, timeout_s: float = TIMEOUT_S) -> memoryview:
        """Return the bytes from ``start`` up to ``end``, fewer beyond the end of the object."""
        if not 0 <= start <= end:
            raise InvalidArgument(f"bytes {start} to {end} of {self._name(key)} break the rule 0 <= start <= end")
        if start == end:
            return memoryview(b"")

        async def attempt() -> memoryview:
            try:
                found = await self._library.get_async(self._client, key, options={"range": (start, end)})
                content = memoryview(await found.bytes_async())
            except self._library.exceptions.BaseError as error:
                if answer_of(error).status == 416:  # the object ends before the start
                    return memoryview(b"")
                raise
            self.meter.add(RequestKind.GET, 0, read_bytes=content.nbytes)
            if content.nbytes != min(end, found.meta["size"]) - start:
                raise OSError("the body is short")
            return content

        return await self._send(RequestKind.GET, "read", key, attempt, timeout_s)

    async def head(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectState:
        """Return the state of an object."""

        async def attempt() -> ObjectState:
            return _state(await self._library.head_async(self._client, key))

        return await self._send(RequestKind.HEAD, "read the state of", key, attempt, timeout_s)

    async def list(
        self, folder: str = "", *, after: str = "", timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[Sequence[ObjectState]]:
        """Return pages of the objects below a folder.

        A failure between two pages continues after the last key if all keys so far were in order, as of S3, Google and
        Azure; otherwise it ends the listing.
        """
        begin, last, pages, ordered = after, "", None, True

        async def attempt() -> Sequence[ObjectState]:
            nonlocal last, pages
            if pages is None:
                if not ordered:
                    raise StorageFailed(
                        f"cannot list {self._name(folder)}: the store failed between two pages; list again"
                    )
                last = ""
                pages = aiter(
                    self._library.list(self._client, folder or None, offset=after or None, chunk_size=PAGE_OBJECTS)
                )
            try:
                return [_state(meta) for meta in await anext(pages)]
            except StopAsyncIteration:
                return ()
            except BaseException:
                pages = None
                raise

        while page := await self._send(RequestKind.LIST, "list", folder, attempt, timeout_s):
            keys = [state.key for state in page]
            ordered = ordered and keys[0] > last and keys == sorted(keys)
            last = keys[-1]
            bound = after if ordered else begin
            if found := [state for state in page if state.key > bound]:
                yield found
            after = max(after, last)
            if len(page) < PAGE_OBJECTS:
                return

    async def list_folder(self, folder: str = "", *, timeout_s: float = TIMEOUT_S) -> ObjectFolder:
        """Return the objects and folders directly in a folder."""

        async def attempt() -> ObjectFolder:
            found = await self._library.list_with_delimiter_async(self._client, folder or None)
            objects = sorted(map(_state, found["objects"]), key=lambda state: state.key)
            self.meter.add(RequestKind.LIST, (len(objects) + len(found["common_prefixes"])) // (PAGE_OBJECTS + 1))
            return ObjectFolder(objects, sorted(found["common_prefixes"]))

        return await self._send(RequestKind.LIST, "list", folder, attempt, timeout_s)

    async def delete(self, keys: Collection[str], *, timeout_s: float = TIMEOUT_S) -> None:
        """Delete objects, a thousand in one request; missing ones are ignored."""
        named = list(dict.fromkeys(keys))
        for key in named:
            check_key(key)
        for start in range(0, len(named), PAGE_OBJECTS):
            await self._delete(named[start : start + PAGE_OBJECTS], timeout_s)

    async def _delete(self, keys: Sequence[str], timeout_s: float) -> None:
        async def attempt() -> None:
            if await self._is_deleted(keys) or len(keys) == 1:
                return
            # Azure ends the deletion of several objects at the first one that is missing.
            for start in range(0, len(keys), DELETIONS_AT_ONCE):
                some = keys[start : start + DELETIONS_AT_ONCE]
                self.meter.add(RequestKind.DELETE, len(some))
                await asyncio.gather(*(self._is_deleted([key]) for key in some))

        await self._send(RequestKind.DELETE, "delete", keys[0], attempt, timeout_s)

    async def _is_deleted(self, keys: Sequence[str]) -> bool:
        """Delete objects; return False if the store reports a missing one."""
        try:
            await self._library.delete_async(self._client, keys)
        except FileNotFoundError as error:
            if answer_of(error).lacks_bucket:
                raise
            return False
        return True

    def open_writer(self, key: str, *, part_bytes: int = PART_BYTES, timeout_s: float = TIMEOUT_S) -> ObjectWriter:
        """Begin an object that is written in parts, which ``obstore`` retries itself."""
        check_key(key)
        file = self._library.open_writer_async(
            self._parts_client, key, buffer_size=part_bytes, max_concurrency=PARTS_AT_ONCE
        )
        return _PartsWriter(self._name(key), file, part_bytes, timeout_s, self.meter)

    async def sign(self, method: Literal["GET", "PUT"], key: str, *, expires_s: float) -> str:
        """Return a URL that is valid for some seconds."""
        if not 1 <= expires_s <= SIGNED_S_MAX:
            raise InvalidArgument(f"a URL that is valid for {expires_s:g} s: give 1 to {SIGNED_S_MAX} s")

        check_key(key)
        return await self._requests.without_request(
            "sign a URL of", self._name(key), lambda: self._signed(method, key, expires_s)
        )

    async def _signed(self, method: str, key: str, expires_s: float) -> str:
        url: str = await self._library.sign_async(self._client, method, key, timedelta(seconds=expires_s))
        return url

    async def _send(
        self,
        kind: RequestKind,
        action: str,
        key: str,
        attempt: Callable[[], Awaitable[T]],
        timeout_s: float,
        *,
        written_bytes: int = 0,
    ) -> T:
        if key or kind is not RequestKind.LIST:  # all objects may be listed
            check_key(key)
        return await self._requests.send(
            kind, action, self._name(key), attempt, timeout_s=timeout_s, written_bytes=written_bytes
        )

    def _name(self, key: str) -> str:
        return f"{self._uri}/{key}" if key else str(self._uri)


class _PartsWriter:
    """An object that ``obstore`` writes in parts, or in one request if it has less than one part."""

    def __init__(
        self, name: str, file: "AsyncWritableFile", part_bytes: int, timeout_s: float, meter: RequestMeter
    ) -> None:
        self._name = name
        self._file = file
        self._part_bytes = part_bytes
        self._timeout_s = timeout_s
        self._meter = meter
        self._size_bytes = self._counted = 0

    async def write(self, chunk: bytes | memoryview) -> None:
        view = memoryview(chunk)
        for start in range(0, view.nbytes, self._part_bytes):  # a longer one would begin several parts at once
            part = view[start : start + self._part_bytes]
            await self._call(self._file.write(part))
            self._size_bytes += part.nbytes
            begun = 1 + self._size_bytes // self._part_bytes if self._is_in_parts else 0
            self._count(begun, written_bytes=part.nbytes)

    async def close(self) -> None:
        await self._call(self._file.close())
        self._count(2 + -(-self._size_bytes // self._part_bytes) if self._is_in_parts else 1)

    @property
    def _is_in_parts(self) -> bool:
        """Whether ``obstore`` writes parts, between a request that begins and one that completes the object."""
        return self._size_bytes >= self._part_bytes

    def _count(self, requests: int, *, written_bytes: int = 0) -> None:
        self._meter.add(RequestKind.PUT, requests - self._counted, written_bytes=written_bytes)
        self._counted = requests

    async def _call(self, call: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await call
        except TimeoutError:
            raise late(Answer(0, NO_ANSWER), "write", self._name, self._timeout_s) from None
        except Exception as error:
            if not isinstance(error, (OSError, library().exceptions.BaseError)):
                raise
            raise StorageFailed(str(answer_of(error).error("write", self._name))) from None


def _state(meta: "ObjectMeta") -> ObjectState:
    modified_us = int(meta["last_modified"].timestamp() * 1_000_000)
    return ObjectState(meta["path"], meta["size"], meta["e_tag"] or "", modified_us)
