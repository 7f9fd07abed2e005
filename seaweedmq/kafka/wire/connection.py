"""Connection of one client, which reads requests within limits and writes replies in the order of the requests.

Each request gets a slot among the replies when it is read, so no reply overtakes another or is lost, however long it
takes. Reading pauses, and TCP makes the client wait, when the client has too many requests in flight, does not read its
replies, or holds its share of the memory (``budget``). Bytes of requests are admitted as they arrive, and a reply is
accounted for until the client has read it. Of requests with replies that may be far larger, a connection handles one at
a time, which begins when there is memory for the reply.
"""

import asyncio
import logging
import struct
from collections import deque
from functools import partial

from seaweedmq.kafka.wire.budget import PRESS_INTERVAL_S, Pace
from seaweedmq.kafka.wire.decoding import Malformed, Steps
from seaweedmq.kafka.wire.frames import NotAdvertised, reading
from seaweedmq.kafka.wire.interfaces import Listener, ReplySlot, RequestReceiver
from seaweedmq.kafka.wire.messages import API, Buffer, Line, Request, not_pressed
from seaweedmq.kafka.wire.request_assembler import RequestAssembler
from seaweedmq.runtime.turns import Turn

log = logging.getLogger(__name__)

_KEY = struct.Struct(">h")
RECEIVE_BYTES = 256 * 1024
"""Size of the receive buffer that all connections of a listener share; each empties it at once."""
RECEIVE_BYTES_MIN = 4 * 1024
"""Minimum bytes of one receive, even if the connection's share is used up."""
WRITE_BYTES = 1024 * 1024
"""Approximate bytes of replies written to the socket at once; more follow when these have left."""
CLIENT_ID_SHOWN_MAX = 100
REQUEST_BYTES = 8 * 1024
"""Memory of a request in addition to its bytes: objects, a task, a slot. A waiting Fetch needs about 7 KB."""
ELEMENT_BYTES = 160
"""Memory of an element of a decoded request in addition to its bytes."""
SLOT_BYTES = 512
"""Memory of a reply in its slot in addition to its bytes."""
LARGE_REPLIES = frozenset(
    {
        API.METADATA,
        API.OFFSET_FETCH,
        API.DESCRIBE_GROUPS,
        API.LIST_GROUPS,
        API.DESCRIBE_CONFIGS,
        API.DESCRIBE_LOG_DIRS,
        API.DESCRIBE_PRODUCERS,
        API.DESCRIBE_TOPIC_PARTITIONS,
        API.LIST_PARTITION_REASSIGNMENTS,
        API.ELECT_LEADERS,
    }
)
"""APIs whose replies may be far larger than the requests. Fetch has its own memory."""
QUERIES = frozenset(
    {
        API.METADATA,
        API.LIST_OFFSETS,
        API.OFFSET_FETCH,
        API.OFFSET_FOR_LEADER_EPOCH,
        API.FIND_COORDINATOR,
        API.DESCRIBE_GROUPS,
        API.LIST_GROUPS,
        API.DELETE_GROUPS,
        API.OFFSET_DELETE,
        API.CREATE_TOPICS,
        API.DELETE_TOPICS,
        API.CREATE_PARTITIONS,
        API.DELETE_RECORDS,
        API.DESCRIBE_CLUSTER,
        API.DESCRIBE_TOPIC_PARTITIONS,
        API.DESCRIBE_CONFIGS,
        API.ALTER_CONFIGS,
        API.INCREMENTAL_ALTER_CONFIGS,
        API.DESCRIBE_LOG_DIRS,
        API.DESCRIBE_PRODUCERS,
        API.ELECT_LEADERS,
    }
)
"""APIs of which the listener begins one request per iteration of the event loop.

Many clients that repeat them then delay each other, not clients that move records or send heartbeats.
"""
HALF_CLOSED_S = 5.0
"""Seconds for the replies to a client that closed its half of the connection.

The time is extended by as much whenever the client read some bytes in it: the socket does not distinguish such a client
from one that is unreachable.
"""


class Connection(asyncio.BufferedProtocol):
    """A connection of one client: see the module. ``id`` is unique in the process."""

    def __init__(self, listening: Listener, connection_id: int) -> None:
        self.id = connection_id
        self.peer = ""
        self._client_host = ""
        self._client_id = ""
        self._listening = listening
        self._limits = listening.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver: RequestReceiver | None = None
        self._assembly = RequestAssembler(listening.limits.request_bytes_max)
        self._is_direct = False
        self._share = listening.in_flight.open(self)
        self._asked_bytes = 0
        """Bytes that the share waits for, or that it got but this connection has not used yet."""
        self._intake_bytes = 0
        """Bytes held for the incomplete request."""
        self._rest_bytes = 0
        """Bytes held for received data that is not admitted."""
        self._parked: tuple[Request, ReplySlot] | None = None
        """The request that waits for memory for its reply."""
        self._large: ReplySlot | None = None
        """The slot of the request whose reply may be large and is not read yet."""
        self._received_bytes = 0
        self._written_bytes = 0
        self._slots: deque[ReplySlot] = deque()
        self._line = Line()
        self._line.press = self._press_reading
        self._pace = Pace()
        """Speed at which the client reads Fetch replies while others wait for their memory."""
        self._unsent: list[ReplySlot] = []
        """Slots whose replies are written to the socket but not read by the client."""
        self._is_reading = True
        self._is_writing = True
        self._will_flush = False
        self._is_draining = False
        self._is_decoding = False
        """Whether a complete request waits for a turn to be decoded."""
        self._is_closing = False
        self._active_at = self._loop.time()
        self._read_due: float | None = None
        self._write_due: float | None = None
        self._press_due: float | None = None
        self._end_due: float | None = None
        self._taken_at_end = 0
        """Bytes of replies that the client had read when ``_end_due`` was set."""
        self._unwritten_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # Callbacks of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the listener; close at once if it rejects the connection."""
        self._transport = transport  # type: ignore[assignment]
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peer = f"{host}:{port}"
        self._client_host = f"/{host}"
        self._receiver = self._listening.opened(self)
        if self._receiver is None:
            self.abort()
            return
        # With a limit of 0, writing pauses until the socket has taken all bytes, which shows that the client reads.
        self._transport.set_write_buffer_limits(high=0)  # type: ignore[union-attr]
        self._watch()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory of a large request, or else the listener's shared buffer."""
        direct = self._assembly.direct()
        self._is_direct = direct is not None
        if direct is not None:
            return direct
        # Decoded requests need memory beyond their bytes, and data behind them is held: receive a part only.
        size = max(RECEIVE_BYTES_MIN, self._share.free_bytes // 4)
        return self._listening.buffer[:size]

    def buffer_updated(self, nbytes: int) -> None:
        """Assemble requests from the received bytes."""
        if self._is_closing:
            return
        self._active_at = self._loop.time()
        self._received_bytes += nbytes
        if self._is_direct:
            whole = self._assembly.received_direct(nbytes)
            if whole is not None:
                self._take(whole)
        else:
            self._received(self._listening.buffer[:nbytes])
        self._watch_reading()

    def eof_received(self) -> bool | None:
        """Answer the requests that precede the client's half-close, as Apache Kafka does."""
        self._line.hurry()
        self._end_due = self._loop.time() + HALF_CLOSED_S
        self._taken_at_end = self._taken_bytes()
        self._watch()
        self.drain()
        return True

    def pause_writing(self) -> None:
        """Stop writing: the socket has not taken all bytes."""
        self._is_writing = False
        self._unwritten_bytes = self._waiting_bytes()
        self._write_due = self._loop.time() + self._limits.read_s
        self._watch()

    def resume_writing(self) -> None:
        """Write further replies: the socket has taken all bytes."""
        self._is_writing = True
        self._write_due = None
        self._active_at = self._loop.time()
        self._tell_sent()
        if not self._is_closing:
            self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Return the memory and cancel the requests of the connection."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._assembly = RequestAssembler(self._limits.request_bytes_max)
        asked = 0 if self._share.wanted else self._asked_bytes
        self._share.close()
        self._share.give(asked + self._intake_bytes + self._rest_bytes)
        self._asked_bytes = self._intake_bytes = self._rest_bytes = 0
        self._tell_sent()
        parked, self._parked = self._parked, None
        if parked is not None:
            parked[1].fill()
        self._drop_filled()
        self._line.press = not_pressed
        receiver, self._receiver, self._transport = (
            self._receiver,
            None,
            None,
        )  # a reference cycle would wait for the collector
        if receiver is not None:
            self._listening.closed(self)
            receiver.lost()

    # Requests.

    def _received(self, data: memoryview) -> None:
        rest, self._rest_bytes = self._rest_bytes, 0
        if rest:
            self._share.give(rest)
        try:
            for request in self._assembly.received(data, self):
                self._take(request)
                if self._is_closing:
                    return
        except Malformed as error:
            self.fail(str(error))
            return
        self._rest_bytes = len(self._assembly.rest)
        if self._rest_bytes:
            self._share.force(self._rest_bytes)

    def begin(self, size: int, admitted: int) -> bool:
        """Implement ``Admission``; without memory, pause reading until there is some."""
        if not self._has_room():
            self._stop_reading()
            return False
        return self._admitted(REQUEST_BYTES + admitted)

    def grow(self, admitted: int) -> bool:
        """Implement ``Admission``; without memory, pause reading until there is some."""
        return self._admitted(admitted)

    def _admitted(self, size: int) -> bool:
        if not self._has_taken(size):
            self._stop_reading()
            return False
        self._intake_bytes += size
        return True

    def _has_taken(self, size: int) -> bool:
        """Take ``size`` bytes, or use those that the share waited for; return whether there were as many."""
        if self._share.wanted:
            return False
        if self._asked_bytes:
            assert self._asked_bytes == size, "the amount differs from the one that was waited for"
            self._asked_bytes = 0
            return True
        if self._share.take(size):
            return True
        self._wait_for(size)
        return False

    def _wait_for(self, size: int) -> None:
        self._asked_bytes = size
        self._press_due = self._loop.time() + PRESS_INTERVAL_S
        self._watch()

    def granted(self) -> None:
        """Implement ``ShareOwner``."""
        self._press_due = None
        self._loop.call_soon(self._go_on)  # not inside another connection's call

    def _has_room(self) -> bool:
        """Whether the client may send more requests: it reads its replies, and few enough are in flight."""
        if self._parked is not None or self._is_decoding or self._is_draining:
            return False
        return self._is_writing and len(self._slots) < self._limits.requests_max

    def _take(self, data: memoryview) -> None:
        self._read_due = None
        slot = ReplySlot(self)
        slot.held_bytes, self._intake_bytes = self._intake_bytes, 0
        turn = self._listening.turns.begin()
        steps = reading(
            data,
            peer=self.peer,
            client_host=self._client_host,
            connection=self.id,
            line=self._line,
            settle=slot.settle,
            turn=turn,
        )
        if _KEY.unpack_from(data)[0] in QUERIES and not self._listening.turns.claim():
            self._decode_later(steps, turn, slot)
        else:
            self._decode(steps, turn, slot)

    def _decode(self, steps: Steps[Request], turn: Turn, slot: ReplySlot) -> None:
        """Decode a request; one with many elements in turns, which delays the requests behind it."""
        try:
            next(steps)
            while not turn.is_over:
                next(steps)
        except StopIteration as end:
            self._begin(end.value, slot)
        except (Malformed, NotAdvertised) as error:
            self._intake_bytes = slot.held_bytes
            self.fail(str(error))
        else:
            self._decode_later(steps, turn, slot)

    def _decode_later(self, steps: Steps[Request], turn: Turn, slot: ReplySlot) -> None:
        self._is_decoding = True
        self._stop_reading()
        self._listening.turns.call_next(partial(self._decode_on, steps, turn, slot))

    def _decode_on(self, steps: Steps[Request], turn: Turn, slot: ReplySlot) -> None:
        self._is_decoding = False
        if self._is_closing:
            self._free(slot)
            return
        turn.renew()
        self._decode(steps, turn, slot)
        if not self._is_decoding:
            self._loop.call_soon(self._go_on)

    def _begin(self, request: Request, slot: ReplySlot) -> None:
        self._client_id = request.client_id[:CLIENT_ID_SHOWN_MAX]
        decoded_bytes = ELEMENT_BYTES * request.elements
        if decoded_bytes:
            self._share.force(decoded_bytes)
        slot.held_bytes += decoded_bytes
        slot.settled_bytes = REQUEST_BYTES + decoded_bytes
        slot.is_reserved = self._share.end_request()
        slot.is_large = request.api in LARGE_REPLIES
        self._slots.append(slot)
        self._line.join(request.api)
        if slot.is_large and not slot.is_reserved:
            self._parked = request, slot
            self._unpark()
        else:
            self._deliver(request, slot)

    def _deliver(self, request: Request, slot: ReplySlot) -> None:
        assert self._receiver is not None
        if slot.is_large:
            self._large = slot
        self._receiver.receive(request, slot)

    def _unpark(self) -> None:
        """Begin the request that waits for memory for its reply, if there is memory."""
        if self._parked is None or self._share.wanted or self._large is not None:
            return
        size = self._listening.in_flight.reply_bytes
        if not self._asked_bytes and not self._share.take(size, is_guaranteed=False):
            self._wait_for(size)
            return
        self._asked_bytes = 0
        (request, slot), self._parked = self._parked, None
        slot.held_bytes += size  # the reply's own size replaces it once filled
        slot.is_reserved = self._share.end_request()
        self._deliver(request, slot)

    def _stop_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._is_closing:
            self._is_reading = False
            self._read_due = None  # the broker, not the client, causes the pause
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Resume reading if the limits allow it, beginning with received data that is not admitted yet."""
        if self._is_closing:
            return
        self._unpark()
        if self._is_reading or self._share.wanted or not self._has_room():
            return
        self._received(memoryview(b""))
        if self._assembly.rest or self._share.wanted or self._is_decoding:
            return
        if self._is_closing or self._transport is None:
            return
        self._is_reading = True
        self._transport.resume_reading()
        self._watch_reading()

    # Callbacks of the memory accounts.

    def moved_bytes(self) -> int | None:
        """Implement ``ShareOwner``."""
        if self._unsent or (self._assembly.is_half and self._is_reading):
            return self._received_bytes + self._taken_bytes()
        return None

    def hurry(self) -> bool:
        """Implement ``ShareOwner``."""
        is_waiting = self._line.grown.has_waiters
        self._line.hurry()
        return is_waiting

    def _press_reading(self, now: float, held_bytes: int) -> bool:
        """Implement ``Line.press``."""
        if self._is_closing or self._is_writing:
            self._pace.forget()
            self._line.hurry()  # the reply may be queued behind one that waits for events
            return False
        slow = self._pace.too_slow(now, self._taken_bytes())
        if slow is None:
            return False
        self.fail(
            f"other consumers wait for the {held_bytes:,} bytes of Fetch replies that it holds, but it read "
            f"{slow[0]:,} bytes in {slow[1]:.1f} s: read the replies, or raise kafka_fetch_bytes_max and "
            "memory_bytes_max"
        )
        return True

    # Replies.

    def filled(self, slot: ReplySlot) -> None:
        """Account for a filled slot: the reply's bytes replace the request's until the client has read them."""
        if self._is_closing:
            self._free(slot)
            self._drop_filled()
            return
        self._hold(slot, SLOT_BYTES + (sum(map(len, slot.buffers)) if slot.sent is None else 0))
        if self._slots[0].is_filled:
            self._flush_soon()  # replies of one loop iteration go out in one system call

    def settled(self, slot: ReplySlot) -> None:
        """Release memory of a request that waits for others: its contents are stored elsewhere."""
        self._hold(slot, min(slot.held_bytes, slot.settled_bytes))
        self._release(slot)

    def _hold(self, slot: ReplySlot, size: int) -> None:
        more, slot.held_bytes = size - slot.held_bytes, size
        if more > 0:
            self._share.force(more, is_reserved=slot.is_reserved)
        else:
            self._share.give(-more)

    def _free(self, slot: ReplySlot) -> None:
        self._hold(slot, 0)
        self._release(slot)
        if self._large is slot:
            self._large = None

    def _release(self, slot: ReplySlot) -> None:
        if slot.is_reserved:
            slot.is_reserved = False
            self._share.release()

    def _flush(self) -> None:
        assert self._transport is not None
        self._active_at = self._loop.time()
        buffers: list[Buffer] = []
        size = 0
        while self._slots and self._slots[0].is_filled and self._is_writing:
            if size > WRITE_BYTES:
                self._flush_soon()
                break
            slot = self._slots.popleft()
            buffers += slot.buffers
            size += sum(map(len, slot.buffers))
            self._unsent.append(slot)
        if buffers:
            self._written_bytes += size
            self._transport.writelines(buffers)
        if self._unsent and self._is_writing:
            self._tell_sent()
        if self._is_drained:
            self._close()
        elif not self._is_reading or self._parked is not None:
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

    def _taken_bytes(self) -> int:
        """Return the bytes of replies that the client, or the sockets, have taken."""
        return self._written_bytes - self._waiting_bytes()

    @property
    def _is_drained(self) -> bool:
        """Whether the connection has stopped reading, and the socket has taken every reply.

        A transport that is closed earlier would wait without a deadline for a client that does not read.
        """
        is_answered = not self._slots and not self._unsent and not self._is_decoding
        return self._is_draining and is_answered and self._is_writing

    def _tell_sent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for slot in unsent:
            slot.buffers = ()
            self._free(slot)
            if slot.sent is not None:
                slot.sent()

    def _drop_filled(self) -> None:
        """Drop replies that are ready: the connection is closed."""
        while self._slots and self._slots[0].is_filled:
            slot = self._slots.popleft()
            self._free(slot)
            if slot.sent is not None:
                slot.sent()

    # Closing.

    def drain(self) -> None:
        """Stop reading, answer the requests already read, then close."""
        self._is_draining = True
        self._stop_reading()
        if self._is_drained:
            self._close()

    def fail(self, reason: str) -> None:
        """Close at once, and log the reason."""
        if not self._is_closing:
            who = f"{self.peer} ({self._client_id})" if self._client_id else self.peer
            log.warning("Kafka connection closed: %s: %s", who, reason)
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        """Close without waiting: the socket has taken every reply."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    # Deadlines: one timer, for the earliest.

    def _watch_reading(self) -> None:
        if not self._assembly.is_half or not self._is_reading:
            self._read_due = None
        else:
            is_first = self._read_due is None
            self._read_due = self._loop.time() + self._limits.read_s
            if is_first:
                self._watch()

    def _watch(self) -> None:
        """Set the timer for the earliest deadline; if a deadline moves on, the timer fires early and is set again."""
        if self._is_closing:
            return
        idle_due = self._active_at + self._limits.idle_s
        dues = (idle_due, self._read_due, self._write_due, self._press_due, self._end_due)
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
        if self._end_due is not None and now >= self._end_due:
            taken = self._taken_bytes()
            if not self._unsent or taken <= self._taken_at_end:
                log.debug("Kafka connection closed: %s: the client closed its half", self.peer)
                self.abort()
                return
            self._taken_at_end = taken
            self._end_due = now + HALF_CLOSED_S
        if self._write_due is not None and now >= self._write_due:
            waiting = self._waiting_bytes()
            if waiting >= self._unwritten_bytes:
                self.fail(
                    f"it read none of the {waiting:,} waiting bytes of replies in {limits.read_s:g} s: read the replies"
                )
                return
            self._unwritten_bytes = waiting
            self._write_due = now + limits.read_s
        if self._read_due is not None and now >= self._read_due:
            lacking = self._assembly.lacking_bytes
            self.fail(
                f"no bytes of a request for {limits.read_s:g} s, and {lacking:,} are missing: send whole requests"
            )
            return
        if self._press_due is not None and now >= self._press_due:
            self._press_due = now + PRESS_INTERVAL_S
            self._listening.in_flight.press(now)
        if now >= self._active_at + limits.idle_s:
            if not self._slots and not self._is_decoding and self._is_writing:
                log.debug("Kafka connection closed: %s: idle for %g s", self.peer, limits.idle_s)
                self._close()
                return
            self._active_at = now  # the client waits for a reply
        self._watch()
