"""Watch of etcd: a stream that detects by itself when the server is unreachable."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from itertools import groupby
from typing import Any

from aetcd import rpc

from seaweedmq.errors import OutOfRange, Unavailable
from seaweedmq.ports import Changes, Entry

REQUESTS_MAX = 3
"""Unsent requests of one watch: its creation, a probe, and the end."""
PROBE_AFTER_S = 1.0
"""Silence before the server is probed, in seconds."""


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return ``key`` and ``range_end`` of all keys that begin with ``prefix``, which is not empty and is ASCII."""
    start = prefix.encode("ascii")
    return start, start[:-1] + bytes([start[-1] + 1])


def key_text(key: bytes) -> str:
    """Return a key as text. A foreign key below the prefix may not be UTF-8; it must not end the watch."""
    return key.decode(errors="backslashreplace")


def changes_of(response: Any) -> Iterator[Changes]:
    """Yield one Changes for each revision. etcd never splits the events of a revision, and a key changes once in it."""
    for revision, events in groupby(response.events, key=lambda event: int(event.kv.mod_revision)):
        puts: list[Entry] = []
        deletes: list[str] = []
        for event in events:
            if event.type == rpc.Event.DELETE:
                deletes.append(key_text(event.kv.key))
            else:
                kv = event.kv
                puts.append(Entry(key_text(kv.key), kv.value, int(kv.create_revision), revision, int(kv.lease)))
        yield Changes(revision, tuple(puts), tuple(deletes))


@contextlib.asynccontextmanager
async def open_watch(
    stub: Any, prefix: str, from_revision: int, timeout_s: float, closed: asyncio.Event
) -> AsyncIterator[AsyncIterator[Any]]:
    """Open a stream of watch responses, until ``closed`` is set; it ends with an error, as it has no normal end.

    Raises Unavailable if the server ends the stream, or is silent for ``PROBE_AFTER_S`` and then does not answer a
    probe within ``timeout_s``. Raises OutOfRange if ``from_revision`` is compacted, or above etcd's next one: its data
    was restored then, and the watch would be silent until etcd reaches that revision. Raises AioRpcError if the call
    fails.
    """
    start, end = prefix_range(prefix)
    create = rpc.WatchCreateRequest(key=start, range_end=end, start_revision=from_revision)
    requests: asyncio.Queue[Any] = asyncio.Queue(REQUESTS_MAX)
    requests.put_nowait(rpc.WatchRequest(create_request=create))
    call = stub.Watch(_each(requests))
    stream = _Stream(call, requests, timeout_s, from_revision, closed)
    try:
        async with contextlib.aclosing(stream.responses()) as responses:
            yield responses
    finally:
        call.cancel()
        # gRPC keeps the task that reads the requests of an ended call until the requests end.
        requests.put_nowait(None)
        await stream.close()


class _Stream:
    def __init__(
        self, call: Any, requests: "asyncio.Queue[Any]", timeout_s: float, from_revision: int, closed: asyncio.Event
    ) -> None:
        self._call = call
        self._from_revision = from_revision
        self._requests = requests
        self._timeout_s = timeout_s
        self._reading: asyncio.Task[Any] | None = None
        self._closing = asyncio.create_task(closed.wait())

    async def responses(self) -> AsyncGenerator[Any, None]:
        response = await self._next(self._timeout_s)  # "created"
        if response is not None and not response.compact_revision and not response.canceled:
            self._check_reached(int(response.header.revision))
        while True:
            if response is None:
                self._requests.put_nowait(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
                response = await self._next(self._timeout_s)
                if response is None:
                    raise Unavailable(f"etcd was silent on a watch for {self._timeout_s} s: retry")
                continue
            if response.compact_revision:
                raise OutOfRange(f"etcd compacted revision {response.compact_revision} during a watch: list again")
            if response.canceled:
                raise Unavailable(f"etcd ended a watch ({response.cancel_reason or 'no reason given'}): retry")
            yield response
            response = await self._next(PROBE_AFTER_S)

    def _check_reached(self, revision: int) -> None:
        if revision + 1 < self._from_revision:
            raise OutOfRange(
                f"etcd is at revision {revision}, before {self._from_revision}: its data was restored; list again"
            )

    async def close(self) -> None:
        """Release the stream; the call must be cancelled."""
        self._closing.cancel()
        pending = [task for task in (self._reading, self._closing) if task is not None]
        await asyncio.gather(*pending, return_exceptions=True)

    async def _next(self, timeout_s: float) -> Any | None:
        """Return the next response, or None after ``timeout_s``."""
        if self._reading is None:
            # Not awaited directly: the cancellation of a read cancels the whole call.
            self._reading = asyncio.create_task(self._call.read())
        await asyncio.wait((self._reading, self._closing), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._closing.done():
            raise Unavailable("the connection to etcd was closed during a watch: open a new one")
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        if reading.cancelled():
            raise Unavailable("the connection to etcd was dropped during a watch: retry")
        response = reading.result()
        if not isinstance(response, rpc.WatchResponse):
            raise Unavailable("etcd ended a watch: retry")
        return response


async def _each(requests: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    while (request := await requests.get()) is not None:
        yield request
