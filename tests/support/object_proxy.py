"""An HTTP proxy in front of an object store that injects faults into chosen requests.

It runs on the event loop of the test. Each connection carries one request. The signature of a request covers the name
of the server, which the proxy passes on unchanged.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

LENGTH = re.compile(rb"^content-length: *(\d+)\r$", re.IGNORECASE | re.MULTILINE)
CONDITION = re.compile(rb"^if-(?:none-)?match:[^\r]*\r\n", re.IGNORECASE | re.MULTILINE)
CONNECTION = re.compile(rb"^connection:[^\r]*\r\n", re.IGNORECASE | re.MULTILINE)
_FIRST_LINES = {400: "Bad Request", 403: "Forbidden", 409: "Conflict", 500: "Internal Server Error", 503: "Slow Down"}


class FaultKind(StrEnum):
    """An injected fault."""

    STATUS = "status"
    """The answer is an error, and the request is not applied."""
    RESET = "reset"
    """The connection breaks, and the request is not applied."""
    HANG = "hang"
    """No answer ever, and the request is not applied."""
    REPLY_LOST = "reply lost"
    """The request is applied, and the connection breaks in place of its answer."""
    LATE = "late"
    """The connection breaks; the request is applied at :meth:`ObjectProxy.release`."""
    TWICE = "twice"
    """The request is applied and answered, and applied again at :meth:`ObjectProxy.release`."""
    UNCONDITIONAL = "unconditional"
    """If-Match and If-None-Match are removed: a store that does not know them."""
    SHORT_BODY = "short body"
    """Half of the answer's body arrives, then the connection ends."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """A fault of the next ``times`` requests that it selects."""

    kind: FaultKind
    times: float = 1
    """Number of requests; ``math.inf`` is until :meth:`ObjectProxy.heal`."""
    method: str = ""
    contains: str = ""
    """Part of the path and query."""
    status: int = 500
    code: str = "InternalError"
    """Error code in the body of the answer."""

    def befalls(self, request: "ProxiedRequest") -> bool:
        return self.times > 0 and self.method in ("", request.method) and self.contains in request.path


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request that reached the proxy."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()


@dataclass(slots=True)
class ObjectProxy:
    """A proxy at a free port of 127.0.0.1; an asynchronous context manager."""

    store_port: int
    requests: list[ProxiedRequest] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    late: list[ProxiedRequest] = field(default_factory=list)
    """Requests that ``release`` applies."""
    on_request: Callable[[ProxiedRequest], None] = lambda request: None
    port: int = 0
    _server: asyncio.Server | None = None
    _ends: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def __aenter__(self) -> "ObjectProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._ends.set()
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def inject(self, kind: FaultKind, **chosen: object) -> Fault:
        """Add a fault; the first one that befalls a request is injected."""
        fault = Fault(kind=kind, **chosen)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all faults."""
        self.faults.clear()

    async def release(self) -> None:
        """Apply the requests that are late."""
        late, self.late = self.late, []
        for request in late:
            await self._forward(request)

    def sent(self, method: str = "") -> int:
        """Return the number of requests so far, or of those with a method."""
        return sum(method in ("", request.method) for request in self.requests)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()  # the client left
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        request = ProxiedRequest(head, await reader.readexactly(int(length[1])) if length else b"")
        self.requests.append(request)
        self.on_request(request)
        fault = next((each for each in self.faults if each.befalls(request)), None)
        if fault is None:
            writer.write(await self._forward(request))
            return
        fault.times -= 1
        match fault.kind:
            case FaultKind.STATUS:
                writer.write(_rejection(fault, is_head=request.method == "HEAD"))
            case FaultKind.RESET:
                writer.transport.abort()
            case FaultKind.HANG:
                await self._ends.wait()
            case FaultKind.REPLY_LOST:
                await self._forward(request)
                writer.transport.abort()
            case FaultKind.LATE:
                self.late.append(request)
                writer.transport.abort()
            case FaultKind.TWICE:
                self.late.append(request)
                writer.write(await self._forward(request))
            case FaultKind.UNCONDITIONAL:
                plain = ProxiedRequest(CONDITION.sub(b"", request.head), request.body)
                writer.write(await self._forward(plain))
            case FaultKind.SHORT_BODY:
                answer_head, _, body = (await self._forward(request)).partition(b"\r\n\r\n")
                writer.write(answer_head + b"\r\n\r\n" + body[: len(body) // 2])

    async def _forward(self, request: ProxiedRequest) -> bytes:
        """Apply a request, and return the whole answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.store_port)
        try:
            head = CONNECTION.sub(b"", request.head)
            writer.write(head[:-2] + b"connection: close\r\n\r\n" + request.body)
            await writer.drain()
            return await reader.read(-1)
        finally:
            writer.close()


def _rejection(fault: Fault, *, is_head: bool) -> bytes:
    body = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>".encode()
    first = f"HTTP/1.1 {fault.status} {_FIRST_LINES.get(fault.status, 'Injected')}\r\n".encode()
    head = first + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return head if is_head else head + body
