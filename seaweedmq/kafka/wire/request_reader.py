"""Reading of one connection's requests, within its share of the memory.

Reading pauses, and TCP makes the client wait, when the client has too many requests in flight, does not read its
replies, or holds its share of the memory (``budget``). Bytes of requests are admitted as they arrive. Of requests with
replies that may be far larger, a connection handles one at a time, which begins when there is memory for the reply.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from seaweedmq.kafka.wire.budget import Share
from seaweedmq.kafka.wire.deadlines import Deadlines, Due
from seaweedmq.kafka.wire.decoding import Steps
from seaweedmq.kafka.wire.frames import NotAdvertised, reading
from seaweedmq.kafka.wire.interfaces import ConnectionHandle, Listener, RequestReceiver
from seaweedmq.kafka.wire.message_cursor import Malformed
from seaweedmq.kafka.wire.messages import API, Line, Request
from seaweedmq.kafka.wire.reply_queue import ReplyQueue, ReplySlot
from seaweedmq.kafka.wire.request_assembler import RequestAssembler
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from seaweedmq.runtime.turns import Turn

_KEY = struct.Struct(">h")
RECEIVE_BYTES_MIN = 4 * 1024
"""Minimum bytes of one receive, even if the connection's share is used up."""
CLIENT_ID_SHOWN_MAX = 100
REQUEST_BYTES = 8 * 1024
"""Memory of a request in addition to its bytes: objects, a task, a slot. A waiting Fetch needs about 7 KB."""
ELEMENT_BYTES = 160
"""Memory of an element of a decoded request in addition to its bytes."""
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
"""APIs of which the listener begins one request per iteration of the event loop. Many clients that repeat them then
delay each other, not clients that move records or send heartbeats."""


class RequestReader:
    """The reader of one connection, which decodes its requests and passes them to the receiver."""

    def __init__(
        self, listening: Listener, share: Share, line: Line, replies: ReplyQueue, deadlines: Deadlines
    ) -> None:
        self._listening = listening
        self._share = share
        self._line = line
        self._replies = replies
        self._deadlines = deadlines
        self._loop = asyncio.get_running_loop()
        self._receiver: RequestReceiver | None = None
        self._transport: asyncio.Transport | None = None
        self._fail: Callable[[str], None] = _closed
        self._connection_id = 0
        self.context = CallContext(listener=ListenerKind.KAFKA, peer="")
        """The client, with the first characters of the client id in its last request."""
        self._assembly = RequestAssembler(listening.limits.request_bytes_max)
        self._is_direct = False
        self._asked_bytes = 0
        """Bytes that the share waits for, or that it got but this connection has not used yet."""
        self._intake_bytes = 0
        """Bytes held for the incomplete request."""
        self._rest_bytes = 0
        """Bytes held for received data that is not admitted."""
        self._parked: tuple[Request, ReplySlot] | None = None
        """The request that waits for memory for its reply."""
        self.received_bytes = 0
        self._is_reading = True
        self._is_draining = False
        self.is_decoding = False
        """Whether a complete request waits for a turn to be decoded."""

    @property
    def lacking_bytes(self) -> int:
        """The missing bytes of the incomplete request."""
        return self._assembly.lacking_bytes

    @property
    def is_receiving(self) -> bool:
        """Whether the broker reads the rest of an incomplete request."""
        return self._assembly.is_half and self._is_reading

    @property
    def is_paused(self) -> bool:
        """Whether reading, or the request that was read last, waits for room."""
        return not self._is_reading or self._parked is not None

    @property
    def is_drained(self) -> bool:
        """Whether reading has ended, and every request that was read has begun."""
        return self._is_draining and not self.is_decoding

    def open(self, connection: ConnectionHandle, transport: asyncio.Transport, receiver: RequestReceiver) -> None:
        """Pass the requests that the transport receives to the receiver from now on."""
        self._connection_id, self.context, self._fail = connection.id, connection.context, connection.fail
        self._transport, self._receiver = transport, receiver

    def buffer(self) -> memoryview:
        """Return the memory of a large request, or else the listener's shared buffer."""
        direct = self._assembly.direct()
        self._is_direct = direct is not None
        if direct is not None:
            return direct
        # Decoded requests need memory beyond their bytes, and data behind them is held: receive a part only.
        size = max(RECEIVE_BYTES_MIN, self._share.free_bytes // 4)
        return self._listening.buffer[:size]

    def received(self, size: int) -> None:
        """Assemble requests from the bytes that were received into :meth:`buffer`."""
        self.received_bytes += size
        if self._is_direct:
            whole = self._assembly.received_direct(size)
            if whole is not None:
                self._take(whole)
        else:
            self._received(self._listening.buffer[:size])
        self._watch()

    def _received(self, data: memoryview) -> None:
        rest, self._rest_bytes = self._rest_bytes, 0
        if rest:
            self._share.give(rest)
        try:
            for request in self._assembly.received(data, self):
                self._take(request)
                if self._replies.is_over:
                    return
        except Malformed as error:
            self._fail(str(error))
            return
        self._rest_bytes = len(self._assembly.rest)
        if self._rest_bytes:
            self._share.force(self._rest_bytes)

    def _watch(self) -> None:
        if self.is_receiving:
            self._deadlines.expect(Due.REQUEST)
        else:
            self._deadlines.lift(Due.REQUEST)

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
        self._deadlines.expect(Due.MEMORY)

    def granted(self) -> None:
        """Continue soon with the memory that the share waited for."""
        self._deadlines.lift(Due.MEMORY)
        self._loop.call_soon(self.resume)  # not inside another connection's call

    def _has_room(self) -> bool:
        """Whether the client may send more requests: it reads its replies, and few enough are in flight."""
        if self._parked is not None or self.is_decoding or self._is_draining:
            return False
        return self._replies.is_writing and self._replies.unanswered < self._listening.limits.requests_max

    def _take(self, data: memoryview) -> None:
        self._deadlines.lift(Due.REQUEST)
        slot = ReplySlot(self._replies)
        slot.held_bytes, self._intake_bytes = self._intake_bytes, 0
        turn = self._listening.turns.begin()
        steps = reading(
            data, context=self.context, connection=self._connection_id, line=self._line, settle=slot.settle, turn=turn
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
            self._fail(str(error))
        else:
            self._decode_later(steps, turn, slot)

    def _decode_later(self, steps: Steps[Request], turn: Turn, slot: ReplySlot) -> None:
        self.is_decoding = True
        self._stop_reading()
        self._listening.turns.call_next(partial(self._decode_on, steps, turn, slot))

    def _decode_on(self, steps: Steps[Request], turn: Turn, slot: ReplySlot) -> None:
        self.is_decoding = False
        if self._replies.is_over:
            self._replies.free(slot)
            return
        turn.renew()
        self._decode(steps, turn, slot)
        if not self.is_decoding:
            self._loop.call_soon(self.resume)

    def _begin(self, request: Request, slot: ReplySlot) -> None:
        self.context = request.context
        if len(self.context.client_id) > CLIENT_ID_SHOWN_MAX:  # up to 32 KB, which no memory is reserved for
            self.context = replace(self.context, client_id=self.context.client_id[:CLIENT_ID_SHOWN_MAX])
        decoded_bytes = ELEMENT_BYTES * request.elements
        if decoded_bytes:
            self._share.force(decoded_bytes)
        slot.held_bytes += decoded_bytes
        slot.settled_bytes = REQUEST_BYTES + decoded_bytes
        slot.is_reserved = self._share.end_request()
        slot.is_large = request.api in LARGE_REPLIES
        self._replies.add(slot)
        self._line.join(request.api)
        if slot.is_large and not slot.is_reserved:
            self._parked = request, slot
            self._unpark()
        else:
            self._deliver(request, slot)

    def _deliver(self, request: Request, slot: ReplySlot) -> None:
        assert self._receiver is not None
        if slot.is_large:
            self._replies.large = slot
        self._receiver.receive(request, slot)

    def _unpark(self) -> None:
        """Begin the request that waits for memory for its reply, if there is memory."""
        if self._parked is None or self._share.wanted or self._replies.large is not None:
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
        if self._is_reading and self._transport is not None and not self._replies.is_over:
            self._is_reading = False
            self._deadlines.lift(Due.REQUEST)  # the broker, not the client, causes the pause
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading if the limits allow it, beginning with received data that is not admitted yet."""
        if self._replies.is_over:
            return
        self._unpark()
        if self._is_reading or self._share.wanted or not self._has_room():
            return
        self._received(memoryview(b""))
        if self._assembly.rest or self._share.wanted or self.is_decoding:
            return
        if self._replies.is_over or self._transport is None:
            return
        self._is_reading = True
        self._transport.resume_reading()
        self._watch()

    def drain(self) -> None:
        """Read no more; requests that were read still begin."""
        self._is_draining = True
        self._stop_reading()

    def close(self) -> ReplySlot | None:
        """Return the memory, with the share; return the slot of a request that will not begin, to be filled."""
        self._assembly = RequestAssembler(self._listening.limits.request_bytes_max)
        asked = 0 if self._share.wanted else self._asked_bytes
        self._share.close()
        self._share.give(asked + self._intake_bytes + self._rest_bytes)
        self._asked_bytes = self._intake_bytes = self._rest_bytes = 0
        parked, self._parked = self._parked, None
        # Reference cycles would wait for the collector.
        self._transport = self._receiver = None
        self._fail = _closed
        return None if parked is None else parked[1]


def _closed(reason: str) -> None:
    """Ignore an error of a connection that is closed."""
