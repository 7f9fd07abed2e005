"""Client calls of three kinds (unary, stream, feed), with the errors of ``seaweedmq.errors``.

gRPC ends every call that is cancelled on this side with CancelledError, for any reason. Only a cancelled task may see
that error, so the reason is determined here: the caller's requests failed, or the owner closed the connection.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc.aio

from seaweedmq.errors import Closed, SeaweedMQError, Unavailable
from seaweedmq.rpc import status
from seaweedmq.runtime.closing import close

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(slots=True)
class _ConnectionState:
    """State of a connection, which several peers may share."""

    is_closed: bool = False
    is_replaced: bool = False
    """Whether a newer connection to the address replaced this one, so that calls may be retried."""


class Peer:
    """A broker as seen by calls to it: its address, and whether the owner closed the connection."""

    def __init__(self, address: str, metadata: tuple[tuple[str, str], ...]) -> None:
        self.address = address
        self._metadata = metadata
        self._lifecycle = _ConnectionState()

    def with_metadata(self, key: str, value: str) -> "Peer":
        """Return a peer on the same connection that sends one more metadata pair with each call."""
        other = Peer(self.address, (*self._metadata, (key, value)))
        other._lifecycle = self._lifecycle
        return other

    @property
    def closed(self) -> bool:
        """Whether the owner of the connection has closed it."""
        return self._lifecycle.is_closed

    def close(self, *, replaced: bool = False) -> None:
        """Mark the connection as closed: pending calls end with Closed, or with Unavailable if ``replaced``."""
        self._lifecycle.is_closed, self._lifecycle.is_replaced = True, replaced

    async def unary(self, method: str, callable_: Any, request: bytes, timeout_s: float) -> bytes:
        """Make a call with one request and one reply within a deadline."""
        self._check_open(method)
        try:
            reply: bytes = await callable_(request, timeout=timeout_s, metadata=self._metadata)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise self._reason(error, method, timeout_s=timeout_s) from error
        return reply

    async def stream(
        self,
        method: str,
        callable_: Any,
        requests: AsyncIterator[Q],
        encode: Callable[[Q], bytes],
        decode: Callable[[bytes], R],
    ) -> AsyncIterator[R]:
        """Send requests and yield replies; an error of ``requests`` ends the call and is raised here."""
        call, sender = self._start(method, callable_, requests, encode)
        try:
            async for reply in call:
                yield decode(reply)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise self._reason(error, method, sender) from error
        finally:
            await _finish(call, sender)

    async def feed(self, method: str, callable_: Any, requests: AsyncIterator[Q], encode: Callable[[Q], bytes]) -> None:
        """Send requests until they or the broker end; an error of ``requests`` ends the call and is raised here."""
        call, sender = self._start(method, callable_, requests, encode)
        try:
            await call
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise self._reason(error, method, sender) from error
        finally:
            await _finish(call, sender)

    def _start(
        self, method: str, callable_: Any, requests: AsyncIterator[Q], encode: Callable[[Q], bytes]
    ) -> tuple[Any, asyncio.Task[None]]:
        """Start a call and the task that sends its requests."""
        self._check_open(method)
        call = callable_(metadata=self._metadata)
        return call, asyncio.create_task(_send(call, requests, encode), name=f"send {method} to {self.address}")

    def _reason(
        self,
        error: grpc.aio.AioRpcError | asyncio.CancelledError,
        method: str,
        sender: asyncio.Task[None] | None = None,
        timeout_s: float | None = None,
    ) -> BaseException:
        if isinstance(error, grpc.aio.AioRpcError):
            return status.from_status(error, method=method, address=self.address, timeout_s=timeout_s)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return error
        failure = sender.exception() if sender and sender.done() and not sender.cancelled() else None
        if failure is not None:
            return failure
        return self._closed_error(method) if self.closed else error

    def _check_open(self, method: str) -> None:
        if self.closed:
            raise self._closed_error(method)

    def _closed_error(self, method: str) -> SeaweedMQError:
        if self._lifecycle.is_replaced:
            return Unavailable(f"{method} at broker {self.address} ended, another broker has the address: retry")
        return Closed(f"{method} at broker {self.address} ended, the client is closed: create a new one")


async def _finish(call: Any, sender: asyncio.Task[None]) -> None:
    """Cancel the call and wait until its requests are closed."""
    call.cancel()
    sender.cancel()
    await asyncio.wait((sender,))
    if not sender.cancelled():
        sender.exception()  # retrieved only: the reader has raised it, or is cancelled


async def _send(call: Any, requests: AsyncIterator[Q], encode: Callable[[Q], bytes]) -> None:
    """Send the requests as fast as gRPC takes them, then half-close.

    If the peer has just ended the call, ``call.write`` replaces the peer's status by its own INTERNAL, so that
    rejections are lost at random (grpcio 1.85). The layer below only raises an error.
    """
    wire_call = call._cython_call  # noqa: SLF001 - see the docstring
    try:
        async for request in requests:
            data = encode(request)
            try:
                await call.wait_for_connection()
                await wire_call.send_serialized_message(data)
            except (grpc.aio.AioRpcError, grpc.aio.InternalError, grpc.aio.UsageError, asyncio.InvalidStateError):
                return  # the call is over, and its reader gets the status
        await _half_close(call)
    except asyncio.CancelledError:
        raise
    except BaseException:
        call.cancel()  # wakes the reader, which raises this error in the caller's task
        raise
    finally:
        await close(requests)


async def _half_close(call: Any) -> None:
    try:
        await call.done_writing()
    except (grpc.aio.AioRpcError, grpc.aio.InternalError):
        return  # the call is over, and its reader gets the status
