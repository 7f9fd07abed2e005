"""One connection of a client: requests off the socket within limits, replies onto it in the order of the requests.

A request's place among the replies is taken when it is read, so no reply overtakes another or is lost, however long
each takes. What is not read stays in the socket: when the client has too many requests in flight, or all clients
together too many bytes, reading pauses, and TCP tells the client to wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from seaweedmq.kafka.wire.assembly import Assembly
from seaweedmq.kafka.wire.decoding import Malformed
from seaweedmq.kafka.wire.frames import NotAdvertised, read_request
from seaweedmq.kafka.wire.messages import Buffer, Line
from seaweedmq.kafka.wire.roles import Listening, Receiver, Slot

log = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024
"""Of the one buffer into which all connections of a listener receive, each emptying it at once."""
WRITE_HIGH_BYTES = 1024 * 1024
"""Replies are handed to the socket while less than this waits there."""
CLIENT_ID_SHOWN_MAX = 100
READ_BYTES_PER_S_MIN = 256 * 1024
"""A large request may take as much longer."""


class Connection(asyncio.BufferedProtocol):
    """See the module. ``id`` is unique in the process."""

    def __init__(self, listening: Listening, connection_id: int) -> None:
        self.id = connection_id
        self.peer = ""
        self._client_host = ""
        self._client_id = ""
        self._listening = listening
        self._limits = listening.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._assembly = Assembly(listening.limits.request_bytes_max)
        self._is_direct = False
        self._wanted_bytes = 0
        self._granted_bytes = 0
        self._slots: deque[Slot] = deque()
        self._line = Line()
        self._unsent: list[Callable[[], None]] = []
        self._is_reading = True
        self._is_writing = True
        self._will_flush = False
        self._is_draining = False
        self._is_closing = False
        self._active_at = self._loop.time()
        self._read_due: float | None = None
        self._write_due: float | None = None
        self._unwritten_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peer = f"{host}:{port}"
        self._client_host = f"/{host}"
        self._receiver = self._listening.opened(self)
        if self._receiver is None:
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)  # type: ignore[union-attr]
        self._watch()

    def get_buffer(self, sizehint: int) -> memoryview:
        direct = self._assembly.direct()
        self._is_direct = direct is not None
        return self._listening.buffer if direct is None else direct

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._active_at = self._loop.time()
        if self._is_direct:
            whole = self._assembly.received_direct(nbytes)
            if whole is not None:
                self._take(whole)
        else:
            self._received(self._listening.buffer[:nbytes])
        self._watch_reading()

    def eof_received(self) -> bool | None:
        return None

    def pause_writing(self) -> None:
        self._is_writing = False
        self._unwritten_bytes = self._waiting_bytes()
        self._write_due = self._loop.time() + self._limits.read_s
        self._watch()

    def resume_writing(self) -> None:
        self._is_writing = True
        self._write_due = None
        self._active_at = self._loop.time()
        self._tell_sent()
        if not self._is_closing:
            self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._listening.in_flight.forget(self._grant)
        granted, self._granted_bytes = self._granted_bytes, 0
        self._listening.in_flight.give(granted)
        self._assembly = Assembly(self._limits.request_bytes_max)
        self._tell_sent()
        self._drop_filled()
        receiver, self._receiver, self._transport = self._receiver, None, None  # a ring would wait for the collector
        if receiver is not None:
            self._listening.closed(self)
            receiver.lost()

    # Requests.

    def _received(self, data: memoryview) -> None:
        try:
            for request in self._assembly.received(data, self._may_begin):
                self._take(request)
                if self._is_closing:
                    return
        except Malformed as error:
            self.fail(str(error))

    def _may_begin(self, size: int) -> bool:
        """Whether a request of this size may be read in now; if not, reading pauses until it may."""
        if self._has_room() and self._wanted_bytes == 0:
            if self._granted_bytes or self._listening.in_flight.take(size, self._grant):
                self._granted_bytes = size
                return True
            self._wanted_bytes = size
        self._stop_reading()
        return False

    def _has_room(self) -> bool:
        """Whether the client may ask more: it takes its replies, and not too many are to come."""
        return self._is_writing and len(self._slots) < self._limits.requests_max and not self._is_draining

    def _grant(self) -> None:
        self._granted_bytes, self._wanted_bytes = self._wanted_bytes, 0
        self._loop.call_soon(self._go_on)  # not within what another connection is doing

    def _take(self, data: memoryview) -> None:
        assert self._receiver is not None
        self._read_due = None
        granted, self._granted_bytes = self._granted_bytes, 0
        try:
            request = read_request(
                data, peer=self.peer, client_host=self._client_host, connection=self.id, line=self._line
            )
        except (Malformed, NotAdvertised) as error:
            self._listening.in_flight.give(granted)
            self.fail(str(error))
            return
        self._client_id = request.client_id[:CLIENT_ID_SHOWN_MAX]
        slot = Slot(self, granted)
        self._slots.append(slot)
        self._line.join(request.api)
        self._receiver.receive(request, slot)

    def _stop_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._is_closing:
            self._is_reading = False
            self._read_due = None  # it is not the client who does not go on
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Read again, if nothing is against it, beginning with what was received and not taken."""
        if self._is_closing or self._is_reading or self._wanted_bytes or not self._has_room():
            return
        self._received(memoryview(b""))
        if not self._assembly.rest and not self._is_closing and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()
            self._watch_reading()

    # Replies.

    def filled(self, size_bytes: int) -> None:
        """A slot has its reply; the bytes of its request are not needed any more."""
        self._listening.in_flight.give(size_bytes)
        if self._is_closing:
            self._drop_filled()
        elif self._slots[0].is_filled:
            self._flush_soon()  # those that are filled in the same turn of the loop go out in one system call

    def _flush(self) -> None:
        assert self._transport is not None
        self._active_at = self._loop.time()
        buffers: list[Buffer] = []
        waiting = self._waiting_bytes()
        while self._slots and self._slots[0].is_filled and self._is_writing:
            if waiting > WRITE_HIGH_BYTES:  # the transport says pause_writing only when it tried to write
                self._flush_soon()
                break
            slot = self._slots.popleft()
            buffers += slot.buffers
            waiting += sum(map(len, slot.buffers))
            if slot.sent is not None:
                self._unsent.append(slot.sent)
        if buffers:
            self._transport.writelines(buffers)
        if self._unsent and self._is_writing:
            self._tell_sent()
        if self._is_draining and not self._slots:
            self._close()
        elif not self._is_reading:
            self._loop.call_soon(self._go_on)

    def _flush_soon(self) -> None:
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._will_flush = False
        if not self._is_closing:
            self._flush()

    def _waiting_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _tell_sent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for sent in unsent:
            sent()

    def _drop_filled(self) -> None:
        """Nobody is there to hear them."""
        while self._slots and self._slots[0].is_filled:
            slot = self._slots.popleft()
            if slot.sent is not None:
                slot.sent()

    # The end.

    def drain(self) -> None:
        """Read nothing more, answer what was read, then close."""
        self._is_draining = True
        self._stop_reading()
        if not self._slots:
            self._close()

    def fail(self, reason: str) -> None:
        """Close at once, and say in the log why."""
        if not self._is_closing:
            who = f"{self.peer} ({self._client_id})" if self._client_id else self.peer
            log.warning("Kafka connection of %s is closed: %s", who, reason)
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    # Deadlines: one timer, for the soonest.

    def _watch_reading(self) -> None:
        if not self._assembly.is_half or not self._is_reading:
            self._read_due = None
        elif self._read_due is None:
            longer_s = self._assembly.lacking_bytes / READ_BYTES_PER_S_MIN
            self._read_due = self._loop.time() + self._limits.read_s + longer_s
            self._watch()

    def _watch(self) -> None:
        """Have the timer fire no later than the next deadline; if that moved on until then, it is set again."""
        dues = (self._active_at + self._limits.idle_s, self._read_due, self._write_due)
        soonest = min(due for due in dues if due is not None)
        if self._timer is None or soonest < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = soonest
            self._timer = self._loop.call_at(soonest, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._is_closing:
            return
        now = self._loop.time()
        limits = self._limits
        if self._write_due is not None and now >= self._write_due:
            waiting = self._waiting_bytes()
            if waiting >= self._unwritten_bytes:
                self.fail(
                    f"it took nothing of the {waiting:,} bytes of replies that wait for it in {limits.read_s:g} s"
                )
                return
            self._unwritten_bytes = waiting
            self._write_due = now + limits.read_s
        if self._read_due is not None and now >= self._read_due:
            self.fail(f"a request was not there whole in time: {self._assembly.lacking_bytes:,} bytes lack")
            return
        if now >= self._active_at + limits.idle_s:
            if not self._slots and self._is_writing:
                log.debug("Kafka connection of %s is closed: idle for %g s", self.peer, limits.idle_s)
                self._close()
                return
            self._active_at = now  # it waits for an answer
        self._watch()
