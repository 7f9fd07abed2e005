"""Connection of one client, which reads requests within limits and writes replies in the order of the requests.

Each request gets a slot among the replies when it is read, so no reply overtakes another or is lost, however long it
takes. ``request_reader`` reads, ``reply_queue`` writes, and ``deadlines`` end a connection whose client does neither.
"""

import asyncio
import logging
from typing import cast

from seaweedmq.kafka.wire.budget import Pace
from seaweedmq.kafka.wire.deadlines import Deadlines, Due, Progress
from seaweedmq.kafka.wire.interfaces import Listener, RequestReceiver
from seaweedmq.kafka.wire.messages import Line, not_pressed
from seaweedmq.kafka.wire.reply_queue import ReplyQueue
from seaweedmq.kafka.wire.request_reader import RequestReader
from seaweedmq.model.messages.call_context import CallContext, ListenerKind

log = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024
"""Size of the receive buffer that all connections of a listener share; each empties it at once."""


class Connection(asyncio.BufferedProtocol):
    """A connection of one client: see the module. ``id`` is unique in the process."""

    def __init__(self, listening: Listener, connection_id: int) -> None:
        self.id = connection_id
        self.context = CallContext(listener=ListenerKind.KAFKA, peer="")
        """The client; its address is known once the connection is made."""
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver: RequestReceiver | None = None
        share = listening.in_flight.open(self)
        self._line = Line()
        self._line.press = self._press_reading
        self._pace = Pace()
        """Speed at which the client reads Fetch replies while others wait for their memory."""
        self._deadlines = Deadlines(listening.limits, self._check_deadlines)
        self._replies = ReplyQueue(share, self._flushed)
        self._reader = RequestReader(listening, share, self._line, self._replies, self._deadlines)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the listener; close at once if it rejects the connection."""
        self._transport = self._replies.transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self.context = CallContext(listener=ListenerKind.KAFKA, peer=f"{host}:{port}")
        self._receiver = self._listening.opened(self)
        if self._receiver is None:
            self.abort()
            return
        # With a limit of 0, writing pauses until the socket has taken all bytes, which shows that the client reads.
        self._transport.set_write_buffer_limits(high=0)
        self._reader.open(self, self._transport, self._receiver)
        self._deadlines.watch()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Assemble requests from the received bytes."""
        if not self._replies.is_over:
            self._deadlines.note_activity()
            self._reader.received(nbytes)

    def eof_received(self) -> bool | None:
        """Answer the requests that precede the client's half-close, as Apache Kafka does."""
        self._line.answer_waiting()
        self._deadlines.expect(Due.HALF_CLOSED, self._replies.taken_bytes)
        self.drain()
        return True

    def pause_writing(self) -> None:
        """Stop writing: the socket has not taken all bytes."""
        self._replies.pause()
        self._deadlines.expect(Due.READING, self._replies.waiting_bytes)

    def resume_writing(self) -> None:
        """Write further replies: the socket has taken all bytes."""
        self._deadlines.lift(Due.READING)
        self._deadlines.note_activity()
        self._replies.resume()

    def connection_lost(self, error: Exception | None) -> None:
        """Return the memory and cancel the requests of the connection."""
        self._end()
        parked = self._reader.close()
        self._replies.close()
        if parked is not None:
            parked.fill()
        receiver = self._receiver
        # Reference cycles would wait for the collector.
        self._line.press, self._receiver, self._transport = not_pressed, None, None
        if receiver is not None:
            self._listening.closed(self)
            receiver.lost()

    def granted(self) -> None:
        """Implement ``ShareOwner``."""
        self._reader.granted()

    def moved_bytes(self) -> int | None:
        """Implement ``ShareOwner``."""
        if self._replies.has_unread or self._reader.is_receiving:
            return self._reader.received_bytes + self._replies.taken_bytes
        return None

    def answer_waiting(self) -> bool:
        """Implement ``ShareOwner``."""
        is_waiting = self._line.grown.has_waiters
        self._line.answer_waiting()
        return is_waiting

    def _press_reading(self, now: float, held_bytes: int) -> bool:
        """Implement ``Line.press``."""
        if self._replies.is_over or self._replies.is_writing:
            self._pace.forget()
            self._line.answer_waiting()  # the reply may be queued behind one that waits for events
            return False
        slow = self._pace.too_slow(now, self._replies.taken_bytes)
        if slow is None:
            return False
        self.fail(
            f"other consumers wait for the {held_bytes:,} bytes of Fetch replies that it holds, but it read "
            f"{slow[0]:,} bytes in {slow[1]:.1f} s: read the replies, or raise kafka_fetch_bytes_max and "
            "memory_bytes_max"
        )
        return True

    def _flushed(self) -> None:
        self._deadlines.note_activity()
        if self._is_drained:
            self._close()
        elif self._reader.is_paused:
            self._loop.call_soon(self._reader.resume)

    def _check_deadlines(self) -> None:
        """Act on the missed deadlines."""
        progress = Progress(
            lacking_bytes=self._reader.lacking_bytes,
            taken_bytes=self._replies.taken_bytes,
            waiting_bytes=self._replies.waiting_bytes,
            has_unread=self._replies.has_unread,
            is_idle=self._replies.is_empty and not self._reader.is_decoding,
        )
        for missed, reason in self._deadlines.missed(progress):
            match missed:
                case Due.MEMORY:
                    self._listening.in_flight.press(self._loop.time())
                case Due.REQUEST | Due.READING:
                    self.fail(reason)
                case Due.HALF_CLOSED:
                    log.debug("Kafka connection closed: %s: %s", self.context.peer, reason)
                    self.abort()
                case Due.IDLE:
                    log.debug("Kafka connection closed: %s: %s", self.context.peer, reason)
                    self._close()

    def drain(self) -> None:
        """Stop reading, answer the requests already read, then close."""
        self._reader.drain()
        if self._is_drained:
            self._close()

    @property
    def _is_drained(self) -> bool:
        """Whether the connection has stopped reading, and the socket has taken every reply.

        A transport that is closed earlier would wait without a deadline for a client that does not read.
        """
        return self._reader.is_drained and self._replies.is_empty

    def fail(self, reason: str) -> None:
        """Close at once, and log the reason."""
        if not self._replies.is_over:
            peer, client_id = self.context.peer, self._reader.context.client_id
            client = f"{peer} ({client_id})" if client_id else peer
            log.warning("Kafka connection closed: %s: %s", client, reason)
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        """Close without waiting: the socket has taken every reply."""
        self._end()
        if self._transport is not None:
            self._transport.close()

    def _end(self) -> None:
        self._replies.is_over = True
        self._deadlines.close()
