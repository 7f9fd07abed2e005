"""Batching of unary calls to one broker: calls made at about the same time travel as one.

Any call costs both sides some 0.4 ms of Python, and the loss of a broker causes calls for a thousand segments at once.
A slow call delays no other: when the patience ends, the broker cancels the calls that are not done and returns the
other replies. The client repeats the cancelled calls with more patience, then alone. So only repeatable calls are
batched.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from seaweedmq.errors import DeadlineExceeded, InvalidArgument, SeaweedMQError, Unsupported, fresh
from seaweedmq.model.messages.calls import Call
from seaweedmq.rpc import status
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.unary import Unary
from seaweedmq.rpc.v1 import types_pb2

GATHER_S: Final = 0.001
"""Seconds for which the first call of a batch waits for others."""
PARTS_MAX: Final = 256
PATIENCES_S: Final = (0.1, 0.4)
"""Seconds for which each batched attempt waits until all calls are done; the next attempt is made alone."""
BATCH_TIMEOUT_S: Final = 20.0
"""Seconds after which a batch fails; callers have their own deadlines."""


@dataclass(slots=True, eq=False)
class _Part:
    method: Unary[Any, Any]
    request: bytes
    outcome: "asyncio.Future[bytes | None]"
    """Reply; None if the call is not done yet."""


class CallBatcher:
    """A batcher of the calls to one broker."""

    def __init__(
        self,
        alone: Callable[[Unary[Any, Any], bytes, float], Awaitable[bytes]],
        together: Callable[[bytes, float], Awaitable[bytes]],
        address: str,
    ) -> None:
        """Create a batcher; ``alone`` and ``together`` make the calls, with a deadline in seconds."""
        self._alone = alone
        self._together = together
        self._address = address
        self._gathering: dict[float, list[_Part]] = {}
        """Calls of the next batch, by patience in seconds."""
        self._sending: set[asyncio.Task[None]] = set()

    async def call(self, method: Unary[Any, Any], request: bytes, timeout_s: float) -> bytes:
        """Make a call and return its reply, with the same errors as a call made alone."""
        try:
            async with asyncio.timeout(timeout_s):
                for patience_s in PATIENCES_S:
                    reply = await self._ask(method, request, patience_s)
                    if reply is not None:
                        return reply
                # Each attempt starts again: another limit would end a call that needs most of its deadline.
                return await self._alone(method, request, timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{method.name} at broker {self._address} timed out after {timeout_s} s "
                "and may still take effect: retry"
            ) from None

    async def close(self) -> None:
        """Wait for the batches that were sent; the connection must be closed, which ends them."""
        if self._sending:
            await asyncio.wait(set(self._sending))

    async def _ask(self, method: Unary[Any, Any], request: bytes, patience_s: float) -> bytes | None:
        loop = asyncio.get_running_loop()
        parts = self._gathering.get(patience_s)
        if parts is None:
            parts = self._gathering[patience_s] = []
            loop.call_later(GATHER_S, self._send, patience_s)
        part = _Part(method, request, loop.create_future())
        parts.append(part)
        return await part.outcome

    def _send(self, patience_s: float) -> None:
        parts = [part for part in self._gathering.pop(patience_s) if not part.outcome.done()]
        for start in range(0, len(parts), PARTS_MAX):
            task = asyncio.create_task(
                self._call(parts[start : start + PARTS_MAX], patience_s), name=f"calls to {self._address}"
            )
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _call(self, parts: list[_Part], patience_s: float) -> None:
        try:
            if len(parts) == 1:
                outcomes: list[bytes | SeaweedMQError | None] = [
                    await self._alone(parts[0].method, parts[0].request, BATCH_TIMEOUT_S)
                ]
            else:
                outcomes = _outcomes(await self._together(_encoded(parts, patience_s), BATCH_TIMEOUT_S), len(parts))
        except SeaweedMQError as error:
            outcomes = [fresh(error) for _ in parts]
        for part, outcome in zip(parts, outcomes, strict=True):
            if part.outcome.done():
                continue  # its caller has timed out
            if isinstance(outcome, SeaweedMQError):
                part.outcome.set_exception(outcome)
            else:
                part.outcome.set_result(outcome)


def _encoded(parts: list[_Part], patience_s: float) -> bytes:
    return types_pb2.TogetherRequest(
        parts=[types_pb2.TogetherRequest.Part(method=p.method.name, request=p.request) for p in parts],
        patience_ms=round(1_000 * patience_s),
    ).SerializeToString()


def _outcomes(data: bytes, count: int) -> list[bytes | SeaweedMQError | None]:
    reply = types.parse(types_pb2.TogetherReply, data)
    if len(reply.parts) != count:
        raise InvalidArgument(f"{len(reply.parts)} replies received for {count} calls: upgrade the broker")
    return [_outcome(part) for part in reply.parts]


def _outcome(part: types_pb2.TogetherReply.Part) -> bytes | SeaweedMQError | None:
    match part.WhichOneof("outcome"):
        case "reply":
            return part.reply
        case "failure":
            return status.from_code(part.failure.code, part.failure.text)
        case _:
            return None


async def answer(
    data: bytes,
    methods: Callable[[str], Unary[Any, Any] | None],
    call: Callable[[Call[Any]], Awaitable[Any]],
    error_of: Callable[[str, Exception], SeaweedMQError],
) -> bytes:
    """Execute the parts of a ``Together`` request concurrently; return once all are done or its patience ends.

    ``methods`` returns the method of a name, None if it is unknown; ``call`` executes one call.
    ``error_of`` returns the error that the client gets for a method's error, of any kind.
    """
    request = types.parse(types_pb2.TogetherRequest, data)
    if len(request.parts) > PARTS_MAX:
        raise InvalidArgument(
            f"{len(request.parts)} calls in one request, the limit is {PARTS_MAX}: send several requests"
        )
    tasks = [
        asyncio.create_task(_answer_one(methods(part.method), part, call, error_of), name=part.method)
        for part in request.parts
    ]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=request.patience_ms / 1_000)
    finally:
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
    reply = types_pb2.TogetherReply()
    for task in tasks:
        reply.parts.append(types_pb2.TogetherReply.Part(later=True) if task.cancelled() else task.result())
    return reply.SerializeToString()


async def _answer_one(
    method: Unary[Any, Any] | None,
    part: types_pb2.TogetherRequest.Part,
    call: Callable[[Call[Any]], Awaitable[Any]],
    error_of: Callable[[str, Exception], SeaweedMQError],
) -> types_pb2.TogetherReply.Part:
    try:
        if method is None:
            raise Unsupported(f"this broker does not know {part.method}: upgrade it")
        reply = method.encode_reply(await call(method.decode_request(part.request)))
    except Exception as raised:  # noqa: BLE001 - an unexpected error must not fail the other parts
        error = error_of(part.method, raised)
        failure = types_pb2.TogetherReply.Failure(code=status.code_of(error), text=str(error))
        return types_pb2.TogetherReply.Part(failure=failure)
    return types_pb2.TogetherReply.Part(reply=reply)
