"""Channel of a stream, for both sides: the queue of received messages and the window of sent ones."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, Protocol

from seaweedmq.errors import ProtocolViolation, SeaweedMQError, fresh
from seaweedmq.model.config import KIB
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, Frames
from seaweedmq.rpc.channels.wire import Credit, End, Message, Section, Status, write_envelope
from seaweedmq.runtime.signal import Signal

WINDOW_BYTES: Final = 64 * KIB
"""Bytes that a sender may always have sent and the receiver has not taken; the last message may exceed them."""
CREDIT_STEP_BYTES: Final = WINDOW_BYTES // 2
"""Smallest credit in bytes, so that small messages do not need one each."""
ENVELOPE_BYTES: Final = LARGE_MESSAGE_BYTES
"""Limit of the message bytes in an envelope of more than one message."""


class SharedWindow:
    """A window of bytes that a sender may have sent on all channels together, beyond the window of each."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.freed = Signal()

    @property
    def is_left(self) -> bool:
        """Whether a channel beyond its window may send another message."""
        return self.used_bytes < self.size_bytes

    def grow(self, size_bytes: int) -> None:
        """Enlarge the window by some bytes."""
        self.size_bytes += size_bytes
        self.freed.fire()


class ChannelWindow:
    """A window of bytes that a sender may have sent on one channel."""

    def __init__(self, ahead: SharedWindow) -> None:
        self._ahead = ahead
        self._untaken = 0
        self.opened = Signal()

    @property
    def is_open(self) -> bool:
        """Whether another message may be sent."""
        return self._untaken < WINDOW_BYTES or self._ahead.is_left

    async def wait(self, other: Signal) -> None:
        """Wait until the window may have opened, or ``other`` fires."""
        await self.opened.wait(other, self._ahead.freed)

    def sent(self, size_bytes: int) -> None:
        """Count a sent message."""
        self._set(self._untaken + size_bytes)

    def taken(self, size_bytes: int) -> None:
        """Add the receiver's credit."""
        self._set(max(0, self._untaken - size_bytes))
        self.opened.fire()

    def close(self) -> None:
        """Return all bytes to the shared window: the channel is over."""
        self._set(0)

    def _set(self, untaken: int) -> None:
        before, after = max(0, self._untaken - WINDOW_BYTES), max(0, untaken - WINDOW_BYTES)
        self._untaken = untaken
        self._ahead.used_bytes += after - before
        if after < before:
            self._ahead.freed.fire()


class Sender(Protocol):
    """A listener notified once its message is in an envelope."""

    def left(self) -> None:
        """Permit the next message: the last one is in an envelope."""


class Outgoing:
    """A queue of sections to send; sections added while one envelope is written form the next."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Section, Sender | None]] = deque()
        self._some = asyncio.Event()

    def put(self, section: Section, sender: Sender | None = None) -> None:
        """Add a section to the next envelope; a channel has at most one message here, so that none starves others."""
        self._waiting.append((section, sender))
        self._some.set()

    async def envelopes(self) -> AsyncGenerator[bytes, None]:
        """Yield encoded envelopes endlessly."""
        while True:
            if not self._waiting:
                self._some.clear()
                await self._some.wait()
            yield write_envelope(self._take())

    def _take(self) -> list[Section]:
        taken: list[Section] = []
        size = 0
        while self._waiting:
            section, sender = self._waiting[0]
            if isinstance(section, Message):
                size += len(section.data)
                if taken and size > ENVELOPE_BYTES:
                    break
            self._waiting.popleft()
            taken.append(section)
            if sender is not None:
                sender.left()
        return taken


class Channel:
    """A channel with one sending and one receiving task."""

    def __init__(
        self,
        number: int,
        outgoing: Outgoing,
        *,
        window: ChannelWindow | None = None,
        queue_bytes_max: int | None = None,
    ) -> None:
        """Create an open channel: on the client's side with a window, on the broker's with a limit of untaken bytes."""
        self.number = number
        self.is_over = False
        """Whether the channel is over: neither side sends on it."""
        self._outgoing = outgoing
        self._window = window
        self._queue_bytes_max = queue_bytes_max
        self._queue: deque[Frames] = deque()
        self._queued_bytes = 0
        self._credit = 0
        self._ended = False
        """Whether the other side sends no further message."""
        self._error: BaseException | None = None
        self._arrived = Signal()
        self._sending = False
        self._left = Signal()

    async def send(self, data: bytes) -> None:
        """Queue a message once the previous one is in an envelope and the window is open; drop it if ``is_over``."""
        while not self.is_over and self._sending:
            await self._left.wait()
        window = self._window
        while not self.is_over and window is not None and not window.is_open:
            await window.wait(self._left)
        if self.is_over:
            return
        if window is not None:
            window.sent(len(data))
        self._sending = True
        self._outgoing.put(Message(self.number, data), self)

    def left(self) -> None:
        """Permit the next message: see ``Sender``."""
        self._sending = False
        self._left.fire()

    def end(self) -> None:
        """Announce that this side sends no further message; it still receives."""
        if not self.is_over:
            self._outgoing.put(End(self.number))

    def finish(self, code: str = "", text: str = "") -> None:
        """End the channel for both sides; a second call has no effect."""
        if not self.is_over:
            self._outgoing.put(Status(self.number, code, text))
            self._close()

    def on_message(self, data: Frames) -> None:
        """Queue a received message; ProtocolViolation if the sender exceeds its credit."""
        self._queue.append(data)
        self._queued_bytes += len(data)
        if self._queue_bytes_max is not None and self._queued_bytes > self._queue_bytes_max:
            raise ProtocolViolation(
                f"{self._queued_bytes} bytes queued on a channel, the limit is {self._queue_bytes_max}: send no more "
                "than the credit"
            )
        self._arrived.fire()

    def on_end(self) -> None:
        """Note that the other side sends no further message."""
        self._ended = True
        self._arrived.fire()

    def on_status(self, error: SeaweedMQError | None) -> None:
        """End the channel; messages received before stay in the queue."""
        self._error = self._error or error
        self._ended = True
        self._close()

    def on_credit(self, size_bytes: int) -> None:
        """Widen the window by the bytes that the other side has taken."""
        if self._window is not None:
            self._window.taken(size_bytes)

    def fail(self, error: BaseException) -> None:
        """End the channel for a reason on this side, and discard the queue."""
        self._queue.clear()
        self._error = self._error or error
        self._ended = True
        self._close()

    async def receive(self) -> Frames | None:
        """Wait for the next message and return it; None at the end. Raise the error that the channel ended with."""
        while not self._queue:
            if self._ended:
                if self._error is not None:
                    raise fresh(self._error) if isinstance(self._error, SeaweedMQError) else self._error
                return None
            await self._arrived.wait()
        data = self._queue.popleft()
        self._queued_bytes -= len(data)
        if self._queue_bytes_max is not None:
            self._give_credit(len(data))
        return data

    def _give_credit(self, size_bytes: int) -> None:
        self._credit += size_bytes
        if self._credit >= CREDIT_STEP_BYTES and not self.is_over:
            self._outgoing.put(Credit(self.number, self._credit))
            self._credit = 0

    def _close(self) -> None:
        self.is_over = True
        if self._window is not None:
            self._window.close()
        self._arrived.fire()
        self._left.fire()
