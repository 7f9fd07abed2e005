"""Request scheduling of one connection.

Replies are always sent in the order of the requests; ``RequestOrder`` defines which requests wait for others.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from seaweedmq.errors import SeaweedMQError, Unsupported
from seaweedmq.kafka.wire.encoding import LARGE_ELEMENTS, is_large
from seaweedmq.kafka.wire.error_mapping import code_of
from seaweedmq.kafka.wire.frames import reply_buffers, writing
from seaweedmq.kafka.wire.interfaces import ConnectionHandle
from seaweedmq.kafka.wire.messages import API, Buffer, EncodedReply, Handler, Reply, Request
from seaweedmq.kafka.wire.replies.error_reply import error_reply, error_scope_of
from seaweedmq.kafka.wire.replies.freeing import free_message
from seaweedmq.kafka.wire.reply_queue import ReplySlot
from seaweedmq.kafka.wire.versions import PRODUCE_LOWEST, name_of
from seaweedmq.runtime.turns import in_turns

log = logging.getLogger(__name__)

LARGE_BYTES = 16 * 1024
"""Size from which a request is rejected in a thread: the error reply may repeat every element of the request."""


class RequestOrder(Enum):
    """Order in which one connection handles the requests of an API."""

    IN_ORDER = "in order"
    """Produce: the appends of a request finish before those of the next request begin; commits are awaited later.

    Once the appends are done, the handler returns an awaitable of the reply:
    ``async def produce(request) -> Awaitable[Reply]``. The scheduler awaits these one after another, in the order of
    replies. If the client disconnects, the appends of a started request still finish, and its wait for the commit is
    cancelled.
    """
    CONTROL = "control"
    """One request after another.

    A handler that is not a coroutine function (``def beat(request) -> asyncio.Future[Reply]``) needs no task. If its
    future is done on return, the reply is sent in the same step of the event loop.
    """
    CONCURRENT = "concurrent"
    """Requests that may wait for long: each begins at once, and no other request waits for it."""


_ORDERS: Mapping[int, RequestOrder] = {
    API.PRODUCE: RequestOrder.IN_ORDER,
    API.FETCH: RequestOrder.CONCURRENT,
    API.JOIN_GROUP: RequestOrder.CONCURRENT,
    API.SYNC_GROUP: RequestOrder.CONCURRENT,
}


def order_of(api: int) -> RequestOrder:
    """Return the order of the requests of an API, by its key."""
    return _ORDERS.get(api, RequestOrder.CONTROL)


class Tasks:
    """The tasks of all connections of a listener; a failed task is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run ``work`` in a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def ended(self, timeout_s: float) -> None:
        """Wait until all tasks have ended; cancel those that still run after ``timeout_s`` seconds."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.critical("task failed: %s", task.get_name(), exc_info=task.exception())


class RequestScheduler:
    """The scheduler of the unanswered requests of one connection."""

    def __init__(self, connection: ConnectionHandle, handlers: Mapping[int, Handler], tasks: Tasks) -> None:
        self._connection = connection
        self._handlers = handlers
        self._tasks = tasks
        self._queues: dict[RequestOrder, deque[tuple[Request, ReplySlot]]] = {
            RequestOrder.IN_ORDER: deque(),
            RequestOrder.CONTROL: deque(),
        }
        self._appender: asyncio.Task[None] | None = None
        self._appended: deque[tuple[Request, ReplySlot, Awaitable[Reply]]] = deque()
        """Appended Produce requests with the awaitables of their replies, oldest first."""
        self._settler: asyncio.Task[None] | None = None
        self._waits: set[asyncio.Task[None]] = set()
        self._controlled: asyncio.Future[Any] | None = None
        """The future or task of the one CONTROL request under way."""
        self._is_lost = False

    def receive(self, request: Request, slot: ReplySlot) -> None:
        """Start a request, or queue it behind earlier ones of the same order."""
        order = order_of(request.api)
        if order is RequestOrder.CONCURRENT:
            self._spawn_answer(request, slot, self._handle(request))
            return
        self._queues[order].append((request, slot))
        if order is RequestOrder.CONTROL:
            self._control()
        elif self._appender is None:
            self._appender = self._spawn(self._append_all(), f"{order.value} requests")

    def lost(self) -> None:
        """Cancel waiting requests and drop queued ones: the client is disconnected."""
        self._is_lost = True
        for queue in self._queues.values():
            while queue:
                queue.popleft()[1].fill()
        while self._appended:
            _, slot, rest = self._appended.popleft()
            slot.fill()
            _drop(rest)
        for task in self._waits:
            task.cancel()
        if self._settler is not None:
            self._settler.cancel()
        if self._controlled is not None:
            self._controlled.cancel()

    def _control(self) -> None:
        """Handle queued CONTROL requests until one of them waits."""
        queue = self._queues[RequestOrder.CONTROL]
        while queue and self._controlled is None:
            request, slot = queue.popleft()
            try:
                reply = self._begin(request)
            except Exception as error:  # noqa: BLE001 - answered and logged
                self._fail(request, slot, error)
                continue
            if not isinstance(reply, asyncio.Future):
                self._controlled = self._spawn_answer(request, slot, reply)
                self._controlled.add_done_callback(self._next_control)
            elif reply.done():
                self._reply_done(request, slot, reply)
            else:
                self._controlled = reply
                reply.add_done_callback(partial(self._reply_done_later, request, slot))

    def _reply_done(self, request: Request, slot: ReplySlot, reply: asyncio.Future[Reply]) -> None:
        try:
            self._send_reply(request, slot, reply.result())
        except asyncio.CancelledError:
            slot.fill()
        except Exception as error:  # noqa: BLE001 - answered and logged
            self._fail(request, slot, error)

    def _reply_done_later(self, request: Request, slot: ReplySlot, reply: asyncio.Future[Reply]) -> None:
        self._reply_done(request, slot, reply)
        self._next_control()

    def _next_control(self, _: object = None) -> None:
        self._controlled = None
        self._control()

    async def _append_all(self) -> None:
        queue = self._queues[RequestOrder.IN_ORDER]
        try:
            while queue:
                await self._append(*queue.popleft())
        finally:
            self._appender = None

    async def _append(self, request: Request, slot: ReplySlot) -> None:
        """Run the appends of a Produce request and queue the wait for its reply."""
        try:
            rest = await self._handle(request)
        except asyncio.CancelledError:
            slot.fill()
            raise
        except Exception as error:  # noqa: BLE001 - answered and logged
            self._fail(request, slot, error)
        else:
            if self._is_lost:
                slot.fill()
                _drop(rest)
                return
            self._appended.append((request, slot, rest))
            if self._settler is None:
                self._settler = self._spawn(self._settle_all(), "replies in order")

    async def _settle_all(self) -> None:
        """Await the replies in order: with a task for each, every commit would wake all, to wait for earlier ones."""
        try:
            while self._appended:
                await self._answer(*self._appended.popleft())
        finally:
            self._settler = None

    def _spawn_answer(self, request: Request, slot: ReplySlot, reply: Awaitable[Reply]) -> "asyncio.Task[None]":
        task = self._spawn(self._answer(request, slot, reply), name_of(request.api))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)

        def ended(_: object) -> None:  # a task cancelled before its first step runs none of its cleanup
            if not slot.is_filled:
                slot.fill()
            _drop(reply)

        task.add_done_callback(ended)
        return task

    async def _handle(self, request: Request) -> Reply:
        return await self._begin(request)

    def _begin(self, request: Request) -> Awaitable[Reply]:
        handler = self._handlers.get(request.api)
        if handler is None or (request.api == API.PRODUCE and request.version < PRODUCE_LOWEST):
            raise Unsupported(
                f"{name_of(request.api)} version {request.version} is not supported: use one from ApiVersions"
            )
        return handler(request)

    async def _answer(self, request: Request, slot: ReplySlot, reply: Awaitable[Reply]) -> None:
        try:
            result = await reply
            if isinstance(result, EncodedReply):
                self._send_reply(request, slot, result)
            elif result is not None:
                await self._write(request, slot, result)
            elif _wants_no_answer(request):
                slot.fill()
            else:
                raise AssertionError("the handler returned no reply")
        except asyncio.CancelledError:
            if not slot.is_filled:
                slot.fill()
            raise
        except Exception as error:  # noqa: BLE001 - answered and logged
            await self._fail_in_place(request, slot, error)
        if request.elements >= LARGE_ELEMENTS:
            await free_message(request.body, request.turn)

    async def _write(self, request: Request, slot: ReplySlot, reply: Reply) -> None:
        """Send a reply; encode a large one in steps."""
        if not is_large(reply):
            self._send_reply(request, slot, reply)
            return
        steps = writing(request.api, request.version, request.correlation_id, reply)
        slot.fill(await in_turns(steps, request.turn))
        await free_message(reply, request.turn)

    def _send_reply(self, request: Request, slot: ReplySlot, reply: Reply) -> None:
        buffers = reply_buffers(request.api, request.version, request.correlation_id, reply)
        slot.fill(buffers, reply.sent if isinstance(reply, EncodedReply) else None)

    def _fail(self, request: Request, slot: ReplySlot, error: Exception) -> None:
        """Send an error reply; close the connection if that fails."""
        if _is_large(request):
            self._spawn(self._fail_in_place(request, slot, error), name_of(request.api))
        elif self._note_failure(request, slot, error):
            self._send_error(request, slot, partial(_failed_buffers, request, error))

    async def _fail_in_place(self, request: Request, slot: ReplySlot, error: Exception) -> None:
        """Send an error reply from a coroutine; a reply that may be large is made in a thread."""
        if not self._note_failure(request, slot, error):
            return
        failed = partial(_failed_buffers, request, error)
        if not _is_large(request):
            self._send_error(request, slot, failed)
            return
        made = asyncio.ensure_future(asyncio.to_thread(failed))
        try:
            await asyncio.wait({made})
        except asyncio.CancelledError:
            slot.fill()
            raise
        self._send_error(request, slot, made.result)

    def _note_failure(self, request: Request, slot: ReplySlot, error: Exception) -> bool:
        """Log a failure; return whether the client waits for a reply."""
        client = f"{request.context.peer} ({request.context.client_id})"
        name = f"{name_of(request.api)} version {request.version} of {client}"
        code = code_of(error, scope=error_scope_of(request.api))
        if isinstance(error, SeaweedMQError | TimeoutError):
            log.debug("Kafka request failed: %s: %s: %s", name, code.name, error)
        else:
            log.error("Kafka request failed: %s: %s", name, code.name, exc_info=error)
        if not _wants_no_answer(request):
            return True
        slot.fill()
        self._connection.fail(f"Produce request with acks=0 failed: {error}")
        return False

    def _send_error(self, request: Request, slot: ReplySlot, failed: Callable[[], Sequence[Buffer]]) -> None:
        try:
            buffers = failed()
        except Exception:
            log.exception("Kafka error reply not encoded: %s", name_of(request.api))
            slot.fill()
            self._connection.fail("error reply not encoded")
        else:
            slot.fill(buffers)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return self._tasks.spawn(work, f"{name} of {self._connection.context.peer}")


def _is_large(request: Request) -> bool:
    return request.api != API.PRODUCE and request.size_bytes >= LARGE_BYTES


def _failed_buffers(request: Request, error: Exception) -> Sequence[Buffer]:
    words = str(error) if isinstance(error, SeaweedMQError) else f"{type(error).__name__}: see the broker's log"
    reply = error_reply(request, code_of(error, scope=error_scope_of(request.api)), words)
    return reply_buffers(request.api, request.version, request.correlation_id, reply)


def _drop(awaitable: Awaitable[Reply]) -> None:
    """Close a coroutine that is not awaited, so that Python does not warn about it."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def _wants_no_answer(request: Request) -> bool:
    return request.api == API.PRODUCE and request.body.acks == 0
