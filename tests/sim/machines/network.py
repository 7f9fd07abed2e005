"""An in-memory network between simulated processes: a ``Dialer`` whose streams are slow, bounded and breakable.

A stream is two pipes. Each delivers in order, after a random latency, and holds a bounded number of messages, so that a
receiver that stops reading stops the sender; the sender of a large message continues once the receiver took it. A break
loses the messages in transit; each side notices it at its own time. The network then cancels the server's handler, as
``grpc.aio`` does, and the client reads ``Unavailable``.
"""

import asyncio
import contextvars
import math
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from seaweedmq.codec.frame import decode_header
from seaweedmq.errors import DeadlineExceeded, SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.blobs import BlobData, BlobRange, UploadReply, UploadRequest
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.messages.calls import Call
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES, FrameHead
from seaweedmq.model.messages.groups import GroupReply, GroupRequest
from seaweedmq.model.messages.publish import PublishAck, PublishFrames, PublishReply, PublishRequest
from seaweedmq.model.messages.replication import ReplicateFrames, ReplicateHeld, ReplicateReply, ReplicateRequest
from seaweedmq.model.messages.subscribe import SubscribeFrames, SubscribeReply, SubscribeRequest
from seaweedmq.ports import BrokerApi
from tests.sim.machines.loop import OWNER, Owner, OwnerState, SimLoop, place_of

T = TypeVar("T")
R = TypeVar("R")

UNARY_TIMEOUT_S = 10.0
KEEPALIVE_TIMEOUT_S = 2.0
"""Seconds after which a vanished peer (machine crash, partition) is noticed."""

CONNECT_TIMEOUT_S = 2.0


@dataclass(slots=True, kw_only=True)
class NetworkFaults:
    """Faults that the nemesis sets; :meth:`calm` is a fast and reliable network."""

    latency_s_min: float = 0.0001
    latency_s_max: float = 0.002
    slow_share: float = 0.0
    """Share of messages that take up to ``slow_s_max``."""
    slow_s_max: float = 0.5
    break_share: float = 0.0
    """Share of messages that break their stream instead of arriving."""
    lost_ack_share: float = 0.0
    """Share of acknowledgements that break their stream instead of arriving: the client cannot know the outcome."""

    def calm(self) -> None:
        self.slow_share = self.break_share = self.lost_ack_share = 0.0


_NOBODY = contextvars.Context()

_SERVED: contextvars.ContextVar["Stream | None"] = contextvars.ContextVar("served", default=None)
"""The call that is being answered."""


class Answer(bytes):
    """A server's message on a connection of bytes."""


class EndOfStream(Exception):
    """The sender finished, and the receiver has received every message."""


def _now_s() -> float:
    """Return the loop's own time: the clocks of a stream's two ends differ if a machine was suspended."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop.boot_s


class Pipe(Generic[T]):
    """One direction of a stream: one sender, one receiver, at most ``messages_max`` messages in transit."""

    def __init__(self, latency_s: Callable[[], float], messages_max: int) -> None:
        self._latency_s = latency_s
        self._messages_max = messages_max
        self._items: deque[tuple[float, T]] = deque()
        self._last_arrival_s = 0.0
        self._is_lost = False
        self._end: Exception | None = None
        self._sender_error: Exception | None = None
        self._receiver_error: Exception | None = None
        self._receiver: asyncio.Future[None] | None = None
        """Future of a receiver that waits for the next item or for its arrival time."""
        self._timer: asyncio.TimerHandle | None = None
        """Timer that wakes the receiver."""
        self._senders: list[asyncio.Future[None]] = []
        """Futures of senders that wait for room."""
        self.is_held = False
        """Whether messages in transit, and those behind them, stand still."""
        self.on_release: Callable[[], None] = lambda: None

    async def send(self, item: T) -> None:
        """Wait for room, then send ``item``. Raises the error that broke the stream, once this side knows it."""
        loop = asyncio.get_running_loop()
        while self._sender_error is None and len(self._items) >= self._messages_max:
            waiter = loop.create_future()
            self._senders.append(waiter)
            await waiter
        if self._sender_error is not None:
            raise _copied_error(self._sender_error)
        self._put_off()
        sent = self._last_arrival_s, item
        self._items.append(sent)
        self._wake_receiver_at(self._last_arrival_s)
        if frame_bytes(item) > SMALL_MESSAGE_BYTES:
            while self._sender_error is None and (self._is_lost or any(other is sent for other in self._items)):
                waiter = loop.create_future()
                self._senders.append(waiter)
                await waiter

    @property
    def large(self) -> Iterator[int]:
        """Yield the size of each large message in transit, which its sender still holds."""
        return (size for size in (frame_bytes(item) for _, item in self._items) if size > SMALL_MESSAGE_BYTES)

    def end(self, error: Exception | None = None) -> None:
        """Send no more items; the receiver gets ``error``, or the end of the stream, after the items in transit."""
        if self._end is None:
            self._end = error or EndOfStream()
            self._put_off()
            self._wake_receiver_at(self._last_arrival_s)

    def hold(self) -> None:
        """Stop deliveries until ``release``."""
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        if self._receiver is not None:
            _set(self._receiver)
        self.on_release()

    def lose(self) -> None:
        """Deliver nothing more; neither side knows yet."""
        self._items.clear()
        self._is_lost = True
        self._last_arrival_s = math.inf
        self._wake_senders()

    def fail_sender(self, error: Exception) -> None:
        self._sender_error = error
        self._wake_senders()

    def fail_receiver(self, error: Exception) -> None:
        self._receiver_error = error
        if self._receiver is not None:
            _set(self._receiver)

    async def receive(self) -> T:
        """Return the next item. Raises EndOfStream, or the error that ended or broke the stream."""
        loop = asyncio.get_running_loop()
        while True:
            if self._receiver_error is not None:
                raise _copied_error(self._receiver_error)
            next_s = math.inf
            if self.is_held:
                pass
            elif self._items:
                next_s, item = self._items[0]
                if next_s <= _now_s():
                    self._items.popleft()
                    self._wake_senders()
                    return item
            elif self._end is not None:
                next_s = self._last_arrival_s
                if next_s <= _now_s():
                    raise _copied_error(self._end)
            self._receiver = loop.create_future()
            self._wake_receiver_at(next_s)
            try:
                await self._receiver
            finally:
                self._receiver = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None

    def _put_off(self) -> None:
        arrival_s = _now_s() + self._latency_s()
        self._last_arrival_s = max(self._last_arrival_s, arrival_s)

    def _wake_receiver_at(self, when_s: float) -> None:
        if self._receiver is not None and self._timer is None and when_s < math.inf:
            # A timer without a process: messages in transit arrive even if their sender is frozen or dead.
            self._timer = asyncio.get_running_loop().call_at(when_s, _set, self._receiver, context=_NOBODY)

    def _wake_senders(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            _set(sender)


def _set(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class Stream:
    """A call in progress: requests go ``up``, replies come ``down``."""

    def __init__(self, client: Owner | None, server: Owner, method: str, up: Pipe[Any], down: Pipe[Any]) -> None:
        self.client = client
        self.server = server
        self.method = method
        self.up = up
        self.down = down
        self.handler: asyncio.Task[None] | None = None
        self.is_broken = False
        self.is_forwarded = False
        """Whether a broker forwards the call for another process."""
        self.is_served = False
        self.unannounced_bytes = 0
        """Bytes of a large message that the server took and processes without prior announcement."""
        self._announced_bytes = 0

    def take(self, request: object) -> None:
        """Note that the server has taken the message."""
        if isinstance(request, FrameHead):
            self._announced_bytes = decode_header(request.header).payload_length
        elif self._announced_bytes > 0:
            self._announced_bytes -= frame_bytes(request)
        elif frame_bytes(request) > SMALL_MESSAGE_BYTES:
            self.unannounced_bytes = frame_bytes(request)

    def let_go(self) -> None:
        """Note that the server requests the next message or has answered."""
        self.unannounced_bytes = 0


@dataclass(frozen=True, slots=True)
class _Host:
    owner: Owner
    api: Any


class Network:
    """All reachable addresses and every open stream."""

    def __init__(self, loop: SimLoop, rng: random.Random, *, closes_slowly: bool = False) -> None:
        self.loop = loop
        self.faults = NetworkFaults()
        self.closes_slowly = closes_slowly
        """Whether a client needs time to close a stream, as in gRPC, which waits for pending sends."""
        self.unexpected: list[str] = []
        """Errors that no peer may ever cause: a handler raised an error that is not a SeaweedMQError."""
        self.raised_again: dict[str, None] = {}
        """Errors that handlers raised more than once: each raise extends the traceback, which keeps frames in memory.
        """
        self.passed_further: list[str] = []
        """Calls that were forwarded twice: brokers that disagree about the leader would forward them forever."""
        self.breaks = 0
        self.tap: Callable[[Owner | None, object], None] = lambda owner, message: None
        """Callback for every message of a stream, when its client sends or receives it."""
        self._rng = rng
        self._context = contextvars.Context()
        self._hosts: dict[str, _Host] = {}
        self._streams: list[Stream] = []
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._held_next: dict[type[Call[Any]], asyncio.Event] = {}
        """(from, to), names of machines: packets between them are lost until each cut is ended."""

    # --- what processes do ------------------------------------------------------------------------------------------

    def serve(self, address: str, owner: Owner, api: Any) -> None:
        self._hosts[address] = _Host(owner, api)

    def dialer(self, owner: Owner | None) -> "SimDialer":
        return SimDialer(self, owner)

    def spawn(self, owner: Owner | None, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task that belongs to ``owner``, regardless of the caller."""
        context = contextvars.copy_context()
        context.run(OWNER.set, owner)
        return self.loop.create_task(work, name=name, context=context)

    # --- what the nemesis does --------------------------------------------------------------------------------------

    def latency_s(self) -> float:
        faults = self.faults
        if faults.slow_share and self._rng.random() < faults.slow_share:
            return self._rng.uniform(faults.latency_s_min, faults.slow_s_max)
        return self._rng.uniform(faults.latency_s_min, faults.latency_s_max)

    def break_owner(self, owner: Owner, *, silently: bool) -> None:
        """Break every stream of a dead process. ``silently``: its machine died, so no packet notifies the peers."""
        for stream in [s for s in self._streams if s.client is owner or s.server is owner]:
            self.break_stream(stream, silently=silently)
        for address in [a for a, host in self._hosts.items() if host.owner is owner]:
            del self._hosts[address]

    def break_some(self, share: float) -> int:
        """Break a random ``share`` of all streams; return the number of broken streams."""
        chosen = [s for s in self._streams if self._rng.random() < share]
        for stream in chosen:
            self.break_stream(stream, silently=self._rng.random() < 0.3)
        return len(chosen)

    def streams(self, method: str) -> list[Stream]:
        return [s for s in self._streams if s.method == method]

    def cut(self, sender: str, receiver: str) -> None:
        """Lose every packet from one machine to another. Neither direction of a TCP connection then makes progress for
        long, but packets in the other direction arrive until a timeout."""
        self._cuts[sender, receiver] += 1
        for stream in self._streams[:]:
            ends = machine_of(stream.client), machine_of(stream.server)
            if ends in ((sender, receiver), (receiver, sender)):
                (stream.up if ends == (sender, receiver) else stream.down).lose()
                self._later(self._rng.uniform(0.1, KEEPALIVE_TIMEOUT_S), self._stop_writing, stream)

    def join(self, sender: str | None = None, receiver: str | None = None) -> None:
        if sender is None or receiver is None:
            self._cuts.clear()
        else:
            self._cuts -= Counter([(sender, receiver)])

    def is_cut(self, one: Owner | None, other: Owner) -> bool:
        """Whether packets between two processes are lost in either direction, so that no new connection opens."""
        ends = machine_of(one), machine_of(other)
        return ends in self._cuts or ends[::-1] in self._cuts

    def break_streams_but_of(self, machines: Container[str]) -> None:
        """Break the streams of all clients outside these machines."""
        for stream in [s for s in self._streams if machine_of(s.client) not in machines]:
            self.break_stream(stream)

    def break_streams_of(self, owner: Owner) -> None:
        """Break a process's streams, as peers do after a long silence."""
        for stream in [s for s in self._streams if s.client is owner or s.server is owner]:
            self.break_stream(stream, silently=True)

    def _stop_writing(self, stream: Stream) -> None:
        self.break_stream(stream, silently=True)

    def break_stream(self, stream: Stream, *, silently: bool = False) -> None:
        """Lose the messages in transit; both sides notice, each at its own time."""
        if stream.is_broken:
            return
        stream.is_broken = True
        self.breaks += 1
        self._forget(stream)
        stream.up.lose()
        stream.down.lose()
        worst_s = KEEPALIVE_TIMEOUT_S if silently else 0.01
        error = Unavailable("the connection to the broker was lost")
        self._later(self._rng.uniform(0, worst_s), self._fail_client, stream, error)
        self._later(self._rng.uniform(0, worst_s), self._fail_server, stream, error)

    def cancel_by_client(self, stream: Stream) -> None:
        """Cancel the call as its client does: the handler is cancelled when the cancellation arrives."""
        if not stream.is_broken:
            stream.is_broken = True
            self._forget(stream)
            cancelled = Unavailable("the client cancelled the call")
            if stream.up.is_held:  # the cancellation comes behind the messages that stand still
                stream.up.on_release = lambda: self._later(self.latency_s(), self._fail_server, stream, cancelled)
            else:
                self._later(self.latency_s(), self._fail_server, stream, cancelled)

    def note_unexpected(self, where: str, error: BaseException) -> None:
        self.unexpected.append(f"{where}: {error!r} at {place_of(error)}")

    # --- what is watched --------------------------------------------------------------------------------------------

    def large_to_subscribers(self, owner: Owner) -> list[int]:
        """Return the size of each large message that a broker has sent and no subscriber has taken."""
        return [size for s in self._streams if s.server is owner and s.method == "subscribe" for size in s.down.large]

    def large_to_followers(self, owner: Owner) -> list[int]:
        return [size for s in self._streams if s.client is owner and s.method == "replicate" for size in s.up.large]

    def large_unannounced(self, owner: Owner) -> list[int]:
        """Return the size of each large message that a broker has taken without prior announcement."""
        return [s.unannounced_bytes for s in self._streams if s.server is owner and s.unannounced_bytes]

    # --- inside -----------------------------------------------------------------------------------------------------

    def host(self, address: str) -> _Host | None:
        host = self._hosts.get(address)
        return None if host is None or host.owner.state is OwnerState.DEAD else host

    def open_stream(self, client: Owner | None, host: _Host, method: str, *, is_forwarded: bool = False) -> Stream:
        messages_max = self._rng.choice((1, 2, 4, 16))
        up, down = (Pipe[Any](self.latency_s, messages_max) for _ in range(2))
        stream = Stream(client, host.owner, method, up, down)
        stream.is_forwarded = is_forwarded
        self._streams.append(stream)
        stream.handler = self.spawn(host.owner, self.answer(stream, host, method), f"serve {method}")
        return stream

    def hold_next(self, kind: type[Call[Any]]) -> asyncio.Event:
        """Hold the next call of this kind in transit until the returned event is set. It arrives then, even if its
        caller has cancelled it."""
        self._held_next[kind] = asyncio.Event()
        return self._held_next[kind]

    def held(self, request: Call[Any]) -> asyncio.Event | None:
        """Return the event that holds this call in transit, or None."""
        return self._held_next.pop(type(request), None)

    def note_passing_on(self, broker: Owner | None, address: str) -> None:
        """Note that a broker forwards a call that it is answering.

        Raises:
            Unavailable: If that call was already forwarded once: only this limit ends a forwarding loop.
        """
        served = _SERVED.get()
        if served is not None and served.is_forwarded and served.is_served and broker is not None:
            self.passed_further.append(f"{broker.name} passed a call on to {address} that had been passed on to it")
            raise Unavailable(self.passed_further[-1])

    def breaks_on(self, message: object) -> bool:
        faults = self.faults
        share = faults.break_share
        if isinstance(message, PublishAck | ReplicateHeld | Answer):
            share += faults.lost_ack_share
        return share > 0 and self._rng.random() < share

    async def answer(self, stream: Stream, host: _Host, method: str) -> None:
        _SERVED.set(stream)
        stream.is_served = True
        try:
            async with aclosing(_replies(host.api, method, _requests(stream))) as replies:
                async for reply in replies:
                    if self.breaks_on(reply):
                        self.break_stream(stream)
                    if isinstance(reply, ReplicateHeld):
                        stream.let_go()
                    await stream.down.send(_copied(reply))
            stream.down.end()
        except SeaweedMQError as error:
            if _times_raised(error) > 1:
                self.raised_again[f"{error!r}, to {method}"] = None
            stream.down.end(_copied_error(error))
        except Exception as error:  # noqa: BLE001 - noted, and fails the run
            self.note_unexpected(f"{host.owner.name} {method}", error)
            stream.down.end(Unavailable(f"internal error: {error!r}"))
        finally:
            stream.is_served = False
            self._forget(stream)

    def _later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule the callback for the network, not for the running process, which may be dead by then."""
        self.loop.call_later(delay_s, callback, *args, context=self._context)

    def _fail_client(self, stream: Stream, error: Exception) -> None:
        stream.down.fail_receiver(error)
        stream.up.fail_sender(error)

    def _fail_server(self, stream: Stream, error: Exception) -> None:
        stream.up.fail_receiver(error)
        stream.down.fail_sender(error)
        if stream.handler is not None:
            stream.handler.cancel()

    def _forget(self, stream: Stream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)


def machine_of(owner: Owner | None) -> str:
    """Return the machine of a process: all incarnations of a broker share one."""
    return "" if owner is None else owner.name.partition(".")[0]


def _replies(api: Any, method: str, requests: AsyncIterator[Any]) -> Any:
    return _no_replies(api.report_load(requests)) if method == "report_load" else getattr(api, method)(requests)


async def _no_replies(call: Awaitable[None]) -> AsyncIterator[Any]:
    await call
    for nothing in list[Any]():
        yield nothing


async def _requests(stream: Stream) -> AsyncIterator[Any]:
    while True:
        stream.let_go()
        try:
            item = await stream.up.receive()
        except EndOfStream:
            return
        stream.take(item)
        yield item


def _copied(message: Any) -> Any:
    """Copy a message as it leaves the process, so that later changes to its buffers do not reach the receiver."""
    if isinstance(message, PublishFrames | SubscribeFrames | ReplicateFrames) and not isinstance(message.data, bytes):
        return replace(message, data=bytes(message.data))
    return message


def frame_bytes(message: object) -> int:
    """Return the bytes of frames in a message."""
    return len(message.data) if isinstance(message, PublishFrames | SubscribeFrames | ReplicateFrames) else 0


E = TypeVar("E", bound=Exception)


def _copied_error(error: E) -> E:
    """Copy an error as the other side receives it: without this side's traceback."""
    return type(error)(*error.args)


def _times_raised(error: BaseException) -> int:
    """Return how often handlers raised the error. Every raise extends its traceback."""
    trace, times = error.__traceback__, 0
    while trace is not None:
        times += trace.tb_frame.f_code is Network.answer.__code__
        trace = trace.tb_next
    return times


class SimDialer:
    """A process's ``ports.Dialer``."""

    def __init__(self, network: Network, owner: Owner | None) -> None:
        self._network = network
        self._owner = owner

    def dial(self, address: str) -> BrokerApi:
        return _Remote(self._network, self._owner, address)

    def renew(self, address: str) -> None:
        """Do nothing: there is no connection to renew."""

    async def close(self) -> None:
        """Do nothing: each call makes its own connection."""


class _Remote:
    """A broker behind the network. Implements ``ports.BrokerApi``."""

    def __init__(self, network: Network, owner: Owner | None, address: str, *, is_forwarded: bool = False) -> None:
        self._network = network
        self._owner = owner
        self._address = address
        self._is_forwarded = is_forwarded

    @property
    def forwarded(self) -> "_Remote":
        return _Remote(self._network, self._owner, self._address, is_forwarded=True)

    def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[PublishReply]:
        return self._stream("publish", requests)

    def subscribe(
        self, requests: AsyncIterator[SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[SubscribeReply]:
        return self._stream("subscribe", requests)

    def replicate(
        self, requests: AsyncIterator[ReplicateRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[ReplicateReply]:
        return self._stream("replicate", requests)

    def upload(
        self, requests: AsyncIterator[UploadRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[UploadReply]:
        return self._stream("upload", requests)

    def read_blob(self, requests: AsyncIterator[BlobRange], context: CallContext = INTERNAL) -> AsyncIterator[BlobData]:
        return self._stream("read_blob", requests)

    def join_group(
        self, requests: AsyncIterator[GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[GroupReply]:
        return self._stream("join_group", requests)

    def kafka(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        return self._stream("kafka", requests)

    async def report_load(self, reports: AsyncIterator[BrokerLoad], context: CallContext = INTERNAL) -> None:
        async for _ in self._stream("report_load", reports):
            pass

    async def _connect(self) -> _Host:
        if self._is_forwarded:
            self._network.note_passing_on(self._owner, self._address)
        await asyncio.sleep(self._network.latency_s())
        host = self._network.host(self._address)
        if host is None:
            raise Unavailable(f"broker {self._address} is unreachable: connection refused")
        patience_s = CONNECT_TIMEOUT_S
        while self._network.is_cut(self._owner, host.owner):
            if patience_s <= 0:
                raise Unavailable(f"broker {self._address} is unreachable: no answer")
            patience_s -= 0.1
            await asyncio.sleep(0.1)
        return _Host(host.owner, host.api.forwarded) if self._is_forwarded else host

    async def _stream(self, method: str, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        host = await self._connect()
        stream = self._network.open_stream(self._owner, host, method, is_forwarded=self._is_forwarded)
        pump = asyncio.get_running_loop().create_task(self._pump(stream, requests), name=f"requests of {method}")
        try:
            while True:
                try:
                    reply = await stream.down.receive()
                except EndOfStream:
                    return
                self._network.tap(self._owner, reply)
                yield reply
        finally:
            pump.cancel()
            self._network.cancel_by_client(stream)
            if self._network.closes_slowly:
                await asyncio.wait((pump,))
                await asyncio.sleep(self._network.latency_s())

    async def _pump(self, stream: Stream, requests: AsyncIterator[Any]) -> None:
        try:
            async for request in requests:
                if self._network.breaks_on(request):
                    self._network.break_stream(stream)
                self._network.tap(self._owner, request)
                await stream.up.send(_copied(request))
            stream.up.end()
        except Unavailable:
            return  # the stream broke; the reader of the replies gets the error
        except Exception as error:  # noqa: BLE001 - noted, and fails the run
            self._network.note_unexpected(f"requests to {self._address}", error)
            stream.down.fail_receiver(Unavailable(f"request iterator failed: {error!r}"))

    async def call(self, request: Call[R], context: CallContext = INTERNAL) -> R:
        """Call, and wait for the answer. The call may be lost before it is applied, or its answer afterwards."""
        host = await self._connect()
        held = self._network.held(request)
        once = _Host(host.owner, _Once(host.api, request, held))
        stream = self._network.open_stream(self._owner, once, "call", is_forwarded=self._is_forwarded)
        if self._network.breaks_on(request):
            self._network.break_stream(stream)
        try:
            async with asyncio.timeout(UNARY_TIMEOUT_S):
                answer: R = await stream.down.receive()
                return answer
        except TimeoutError as error:
            name = type(request).__name__
            raise DeadlineExceeded(f"{self._address} did not answer {name} within {UNARY_TIMEOUT_S} s") from error
        finally:
            if held is None or held.is_set():
                self._network.cancel_by_client(stream)


class _Once:
    """A unary call as a stream of one reply."""

    def __init__(self, api: BrokerApi, request: Call[Any], held: asyncio.Event | None) -> None:
        self._api = api
        self._request = request
        self._held = held

    async def call(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        if self._held is not None:
            await self._held.wait()
        yield await self._api.call(self._request)
