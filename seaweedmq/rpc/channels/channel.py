"""One conversation, as either side has it: what came and waits to be taken, and what may be sent."""

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
"""What a sender may always have sent of which the receiver has taken nothing; the last message may exceed it."""
CREDIT_STEP_BYTES: Final = WINDOW_BYTES // 2
"""Credit is given in steps: small messages need none of their own."""
ENVELOPE_BYTES: Final = LARGE_MESSAGE_BYTES
"""Of messages in one envelope, if there is more than one."""


class SharedWindow:
    """What a sender may have sent on all channels together, beyond the window of each."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.freed = Signal()

    @property
    def is_left(self) -> bool:
        """Whether a channel beyond its window may send another message."""
        return self.used_bytes < self.size_bytes

    def grow(self, size_bytes: int) -> None:
        """There is as much more."""
        self.size_bytes += size_bytes
        self.freed.fire()


class ChannelWindow:
    """How far a sender may go on one channel."""

    def __init__(self, ahead: SharedWindow) -> None:
        self._ahead = ahead
        self._untaken = 0
        self.opened = Signal()

    @property
    def is_open(self) -> bool:
        """Whether another message may be sent."""
        return self._untaken < WINDOW_BYTES or self._ahead.is_left

    async def wait(self, other: Signal) -> None:
        """Until it may have opened, or ``other`` fires."""
        await self.opened.wait(other, self._ahead.freed)

    def sent(self, size_bytes: int) -> None:
        """A message was."""
        self._set(self._untaken + size_bytes)

    def taken(self, size_bytes: int) -> None:
        """The receiver gave credit."""
        self._set(max(0, self._untaken - size_bytes))
        self.opened.fire()

    def close(self) -> None:
        """The channel is over."""
        self._set(0)

    def _set(self, untaken: int) -> None:
        before, after = max(0, self._untaken - WINDOW_BYTES), max(0, untaken - WINDOW_BYTES)
        self._untaken = untaken
        self._ahead.used_bytes += after - before
        if after < before:
            self._ahead.freed.fire()


class Sender(Protocol):
    """Whoever has to know that a message of his is on its way."""

    def left(self) -> None:
        """It is in an envelope: the next one may follow."""


class Outgoing:
    """Sections on their way to the other side: while one envelope is written, they gather for the next."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Section, Sender | None]] = deque()
        self._some = asyncio.Event()

    def put(self, section: Section, sender: Sender | None = None) -> None:
        """Send it with the next envelope. A channel has one message here at a time, so that all get their turn."""
        self._waiting.append((section, sender))
        self._some.set()

    async def envelopes(self) -> AsyncGenerator[bytes, None]:
        """Without end."""
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
    """One channel. One task sends on it, one receives."""

    def __init__(
        self,
        number: int,
        outgoing: Outgoing,
        *,
        window: ChannelWindow | None = None,
        queue_bytes_max: int | None = None,
    ) -> None:
        """
        Args:
            window: bounds what is sent; on the client's side.
            queue_bytes_max: bounds what came and was not taken; on the broker's side, which gives credit.
        """
        self.number = number
        self.is_over = False
        """Nothing is said any more, by either side."""
        self._outgoing = outgoing
        self._window = window
        self._queue_bytes_max = queue_bytes_max
        self._queue: deque[Frames] = deque()
        self._queued_bytes = 0
        self._credit = 0
        self._ended = False
        """The other side says nothing more."""
        self._error: BaseException | None = None
        self._arrived = Signal()
        self._sending = False
        self._left = Signal()

    # --- this side says -----------------------------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        """Once the one before has left, and the window is open; nothing happens when the channel is over."""
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
        """See ``Sender``."""
        self._sending = False
        self._left.fire()

    def end(self) -> None:
        """Say nothing more, and listen on."""
        if not self.is_over:
            self._outgoing.put(End(self.number))

    def finish(self, code: str = "", text: str = "") -> None:
        """End it for both sides. Again is no error."""
        if not self.is_over:
            self._outgoing.put(Status(self.number, code, text))
            self._close()

    # --- the other side says ------------------------------------------------------------------------------------------

    def on_message(self, data: Frames) -> None:
        """Raises ProtocolViolation: the sender does not wait for credit."""
        self._queue.append(data)
        self._queued_bytes += len(data)
        if self._queue_bytes_max is not None and self._queued_bytes > self._queue_bytes_max:
            raise ProtocolViolation(
                f"{self._queued_bytes} bytes wait on a channel that takes {self._queue_bytes_max}: send no more than "
                "there is credit for"
            )
        self._arrived.fire()

    def on_end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._arrived.fire()

    def on_status(self, error: SeaweedMQError | None) -> None:
        """It is over. What came before can still be received."""
        self._error = self._error or error
        self._ended = True
        self._close()

    def on_credit(self, size_bytes: int) -> None:
        """The other side has taken so much."""
        if self._window is not None:
            self._window.taken(size_bytes)

    def fail(self, error: BaseException) -> None:
        """As ``on_status``, for a reason on this side; what came before does not matter any more."""
        self._queue.clear()
        self._error = self._error or error
        self._ended = True
        self._close()

    # --- what came ----------------------------------------------------------------------------------------------------

    async def receive(self) -> Frames | None:
        """The next message; None: nothing more comes. Raises what the channel ended with."""
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
