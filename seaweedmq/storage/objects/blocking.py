"""The blocking face of ``ports.Objects``, for threads, Spark tasks and Arrow.

It runs the asynchronous methods on one event loop in a thread of the process, so that there is one rule for
retries, errors and counting. A hop takes about 100 us, a request to a store milliseconds.
"""

import asyncio
import os
import threading
from collections.abc import Collection, Coroutine, Iterator, Sequence
from typing import Any, Literal, TypeVar

from seaweedmq.ports import (
    PART_BYTES,
    TIMEOUT_S,
    Buffers,
    ObjectContent,
    ObjectFolder,
    Objects,
    ObjectState,
    ObjectWriter,
)
from seaweedmq.runtime.process.forking import leave_alone_in_children

T = TypeVar("T")

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class BlockingObjects:
    """The methods of ``ports.Objects`` for any thread but that of an event loop.

    They take the same arguments and raise the same errors.
    """

    def __init__(self, objects: Objects) -> None:
        """Wrap objects that no other event loop uses."""
        self._objects = objects

    def __repr__(self) -> str:
        return f"BlockingObjects({self._objects!r})"

    @property
    def uri(self) -> str:
        """Location of the prefix."""
        return self._objects.uri

    def create(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        """Create an object unless the key is taken, and return its e_tag."""
        return _run(self._objects.create(key, content, timeout_s=timeout_s))

    def put(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        """Create or replace an object, and return its e_tag."""
        return _run(self._objects.put(key, content, timeout_s=timeout_s))

    def replace(self, key: str, content: Buffers, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> str:
        """Replace the version ``e_tag`` of an object, and return the new e_tag."""
        return _run(self._objects.replace(key, content, e_tag=e_tag, timeout_s=timeout_s))

    def get(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectContent:
        """Return a whole object."""
        return _run(self._objects.get(key, timeout_s=timeout_s))

    def get_changed(self, key: str, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> ObjectContent | None:
        """Return a whole object unless it still has the version ``e_tag``."""
        return _run(self._objects.get_changed(key, e_tag=e_tag, timeout_s=timeout_s))

    def get_range(self, key: str, start: int, end: int, *, timeout_s: float = TIMEOUT_S) -> memoryview:
        """Return the bytes from ``start`` up to ``end``."""
        return _run(self._objects.get_range(key, start, end, timeout_s=timeout_s))

    def head(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectState:
        """Return the state of an object."""
        return _run(self._objects.head(key, timeout_s=timeout_s))

    def list(
        self, folder: str = "", *, after: str = "", timeout_s: float = TIMEOUT_S
    ) -> Iterator[Sequence[ObjectState]]:
        """Return pages of the objects at any depth below a folder."""
        pages = self._objects.list(folder, after=after, timeout_s=timeout_s)

        async def following() -> Sequence[ObjectState]:
            try:
                return await anext(pages)
            except StopAsyncIteration:
                return ()

        while page := _run(following()):
            yield page

    def list_folder(self, folder: str = "", *, timeout_s: float = TIMEOUT_S) -> ObjectFolder:
        """Return the objects and folders directly in a folder."""
        return _run(self._objects.list_folder(folder, timeout_s=timeout_s))

    def delete(self, keys: Collection[str], *, timeout_s: float = TIMEOUT_S) -> None:
        """Delete objects; missing ones are ignored."""
        _run(self._objects.delete(keys, timeout_s=timeout_s))

    def open_writer(self, key: str, *, part_bytes: int = PART_BYTES, timeout_s: float = TIMEOUT_S) -> "BlockingWriter":
        """Begin an object that is written in parts."""
        return BlockingWriter(self._objects.open_writer(key, part_bytes=part_bytes, timeout_s=timeout_s))

    def sign(self, method: Literal["GET", "PUT"], key: str, *, expires_s: float) -> str:
        """Return a URL by which anyone may read or write the object for some seconds: a secret, never logged."""
        return _run(self._objects.sign(method, key, expires_s=expires_s))


class BlockingWriter:
    """The blocking face of ``ports.ObjectWriter``."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer

    def write(self, chunk: bytes | memoryview) -> None:
        """Append bytes; return when they may be reused."""
        _run(self._writer.write(chunk))

    def close(self) -> None:
        """Complete the object; on return it is stored."""
        _run(self._writer.close())


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call on the loop of this process, and cancel it if this thread is interrupted while it waits."""
    future = asyncio.run_coroutine_threadsafe(call, _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            leave_alone_in_children(_loop)
            threading.Thread(target=_loop.run_forever, name="objects", daemon=True).start()
        return _loop


def _after_fork() -> None:
    """Forget the loop, whose thread exists in the parent only."""
    global _starting, _loop
    _starting, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)
