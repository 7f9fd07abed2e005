"""Client calls of the three shapes, with the errors of ``seaweedmq.errors``.

gRPC ends a call that was cancelled on this side with CancelledError, whoever cancelled it. Only a cancelled task may
see that one, so the reason is looked up: the caller's requests failed, or the connection was closed by its owner.
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
class _Fate:
    """Of a connection, which several peers may share."""

    is_closed: bool = False
    is_replaced: bool = False
    """Closed because there is a newer one, and not because nobody wants any."""


class Peer:
    """One broker as the calls to it see it: its address, and whether the connection was closed on purpose."""

    def __init__(self, address: str, metadata: tuple[tuple[str, str], ...]) -> None:
        self.address = address
        self._metadata = metadata
        self._lifecycle = _Fate()

    def with_metadata(self, key: str, value: str) -> "Peer":
        """The same broker on the same connection, told more with each call."""
        other = Peer(self.address, (*self._metadata, (key, value)))
        other._lifecycle = self._lifecycle
        return other

    @property
    def closed(self) -> bool:
        """Whether the owner of the connection has closed it."""
        return self._lifecycle.is_closed

    def close(self, *, replaced: bool = False) -> None:
        """The connection is being closed: what is under way ends with Closed, or with Unavailable if it is replaced."""
        self._lifecycle.is_closed, self._lifecycle.is_replaced = True, replaced

    async def unary(self, method: str, callable_: Any, request: bytes, timeout_s: float) -> bytes:
        """One request, one reply, within a deadline."""
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
        """Requests one way, replies the other. An error of ``requests`` ends the call and is raised here."""
        call, sender = self._start(method, callable_, requests, encode)
        try:
            async for reply in call:
                yield decode(reply)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise self._reason(error, method, sender) from error
        finally:
            await _finish(call, sender)

    async def feed(self, method: str, callable_: Any, requests: AsyncIterator[Q], encode: Callable[[Q], bytes]) -> None:
        """Requests until they or the broker end. An error of ``requests`` ends the call and is raised here."""
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
        """A call, and the task that sends its requests."""
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
            return Unavailable(f"{method} at broker {self.address} ended: another broker has the address by now; retry")
        return Closed(f"{method} at broker {self.address} ended: the client was closed; make a new one")


async def _finish(call: Any, sender: asyncio.Task[None]) -> None:
    """End the call and wait until the requests are closed."""
    call.cancel()
    sender.cancel()
    await asyncio.wait((sender,))
    if not sender.cancelled():
        sender.exception()  # was raised to the reader already, or the reader has left


async def _send(call: Any, requests: AsyncIterator[Q], encode: Callable[[Q], bytes]) -> None:
    """Send the requests as fast as gRPC takes them, then half-close.

    ``call.write`` would replace the peer's status by an INTERNAL of its own when it meets a call that the peer has just
    ended, so that refusals are lost at random (grpcio 1.85); the layer below only raises.
    """
    wire_call = call._cython_call  # noqa: SLF001 - as said above
    try:
        async for request in requests:
            data = encode(request)
            try:
                await call.wait_for_connection()
                await wire_call.send_serialized_message(data)
            except (grpc.aio.AioRpcError, grpc.aio.InternalError, grpc.aio.UsageError, asyncio.InvalidStateError):
                return  # the call is over, and the side that reads it knows why
        await _half_close(call)
    except asyncio.CancelledError:
        raise
    except BaseException:
        call.cancel()  # wakes the side that reads, which raises this in the caller's task
        raise
    finally:
        await close(requests)


async def _half_close(call: Any) -> None:
    try:
        await call.done_writing()
    except (grpc.aio.AioRpcError, grpc.aio.InternalError):
        return  # as above
