"""Intake of frames from a stream: small messages at once, larger frames once their memory is reserved.

gRPC delivers whole messages, so their size is agreed beforehand. It is ``SMALL_MESSAGE_BYTES`` for every stream, and
``LARGE_MESSAGE_BYTES`` for a stream that could reserve memory when it began. A larger frame is announced by its header;
its payload is received once the frame is admitted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from xxhash import xxh3_64

from seaweedmq.broker.memory.broker_memory import COPIES, STANDING_PART
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.codec.frame import HEADER_BYTES, Frame, FrameHeader, decode_header
from seaweedmq.errors import Corrupt, DeadlineExceeded, ProtocolViolation
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, PIECE_BYTES, SMALL_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.runtime.buffers import allocate_buffer

PIECE_TIMEOUT_S = 10.0
"""Longest silence in seconds within an announced frame. Beyond it the stream ends: others wait for the memory."""
Q = TypeVar("Q")


class Intake:
    """The intake of one stream. Close it when the stream ends."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._standing = COPIES * LARGE_MESSAGE_BYTES
        if budget.used + self._standing > budget.limit // STANDING_PART or not budget.take_now(self._standing):
            self._standing = 0

    @property
    def message_bytes_max(self) -> int:
        """The most bytes of frames in one message."""
        return LARGE_MESSAGE_BYTES if self._standing else SMALL_MESSAGE_BYTES

    def close(self) -> None:
        """Return the memory reserved for the stream."""
        standing, self._standing = self._standing, 0
        self._budget.give(standing)

    def check(self, frames: Frames) -> None:
        """Raise ProtocolViolation for a message that should have been announced."""
        if len(frames) > self.message_bytes_max:
            raise ProtocolViolation(
                f"message with {len(frames)} bytes of frames is above the stream's limit of {self.message_bytes_max}: "
                "send larger frames as head and pieces"
            )

    def header(self, head: FrameHead) -> FrameHeader:
        """Return the header of the announced frame. Raises ProtocolViolation, or as ``decode_header``."""
        if len(head.header) != HEADER_BYTES:
            raise ProtocolViolation(f"frame head has {len(head.header)} bytes: send {HEADER_BYTES}")
        return decode_header(head.header)

    async def frame(
        self, head: FrameHead, requests: AsyncIterator[Q], frames_of: Callable[[Q | None], Frames | None]
    ) -> Frame:
        """Receive an announced frame, whose memory the caller has taken, from the messages that follow.

        ``frames_of`` returns the frames of a message; None if it is of another kind. Raises ProtocolViolation if the
        payload does not follow, DeadlineExceeded if nothing follows for ``PIECE_TIMEOUT_S``, and Corrupt if it does not
        match the header.
        """
        header = self.header(head)
        length, at = header.payload_length, 0
        checksum = xxh3_64()
        payload: memoryview | None = None
        while at < length:
            expected = min(PIECE_BYTES, length - at)
            async with self._budget.holding(COPIES * expected):
                piece = await self._piece(requests, frames_of)
                if not min(SMALL_MESSAGE_BYTES, expected) <= len(piece) <= expected:
                    raise ProtocolViolation(
                        f"payload piece of {len(piece)} bytes where {expected} of a frame are due: send the payload in "
                        f"pieces of {SMALL_MESSAGE_BYTES} to {PIECE_BYTES} bytes"
                    )
                checksum.update(piece)  # per part: one checksum over the whole frame would block the event loop
                at += len(piece)
                if len(piece) == length:
                    return _verified(head, header, checksum.intdigest(), memoryview(piece))
                if payload is None:
                    payload = allocate_buffer(length)
                payload[at - len(piece) : at] = piece
        return _verified(head, header, checksum.intdigest(), memoryview(b"") if payload is None else payload)

    async def _piece(self, requests: AsyncIterator[Q], frames_of: Callable[[Q | None], Frames | None]) -> Frames:
        try:
            async with asyncio.timeout(PIECE_TIMEOUT_S):
                request = await anext(requests, None)
        except TimeoutError:
            raise DeadlineExceeded(
                f"announced frame had no payload for {PIECE_TIMEOUT_S:g} s: send the payload right after the head"
            ) from None
        piece = frames_of(request)
        if piece is None:
            raise ProtocolViolation("frame head is not followed by its payload: send the payload first")
        return piece


def _verified(head: FrameHead, header: FrameHeader, checksum: int, payload: memoryview) -> Frame:
    if checksum != header.payload_checksum:
        raise Corrupt(
            f"payload checksum is {checksum:016x}, not {header.payload_checksum:016x}: the payload was damaged, retry"
        )
    return Frame(header, memoryview(head.header), payload)
