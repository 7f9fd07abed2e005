"""What a broker takes in of a stream of frames: small messages as they come, more once there is memory for it.

gRPC hands out whole messages, so what a message may have is agreed beforehand: ``SMALL_MESSAGE_BYTES`` for every
stream, ``LARGE_MESSAGE_BYTES`` for those that memory could be set aside for when they began. A larger frame announces
itself by its header, and its payload is taken in once the frame is admitted.
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
"""An announced frame holds memory that others wait for: a sender that is silent in the middle of it is ended."""
Q = TypeVar("Q")


class Intake:
    """One stream's part. Close it when the stream ends."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._standing = COPIES * LARGE_MESSAGE_BYTES
        if budget.used + self._standing > budget.limit // STANDING_PART or not budget.take_now(self._standing):
            self._standing = 0

    @property
    def message_bytes_max(self) -> int:
        """Most frames of one message."""
        return LARGE_MESSAGE_BYTES if self._standing else SMALL_MESSAGE_BYTES

    def close(self) -> None:
        """Give back what was set aside."""
        standing, self._standing = self._standing, 0
        self._budget.give(standing)

    def check(self, frames: Frames) -> None:
        """Raise ProtocolViolation for a message that should have been announced."""
        if len(frames) > self.message_bytes_max:
            raise ProtocolViolation(
                f"a message with {len(frames)} bytes of frames came on a stream that takes {self.message_bytes_max}: "
                "send larger frames as head and pieces"
            )

    def header(self, head: FrameHead) -> FrameHeader:
        """Of the frame that is announced. Raises ProtocolViolation, or as ``decode_header``."""
        if len(head.header) != HEADER_BYTES:
            raise ProtocolViolation(f"a frame's head has {HEADER_BYTES} bytes, not {len(head.header)}")
        return decode_header(head.header)

    async def frame(
        self, head: FrameHead, requests: AsyncIterator[Q], frames_of: Callable[[Q | None], Frames | None]
    ) -> Frame:
        """The announced frame, whose memory the caller has taken, from the messages that follow.

        Args:
            head: what announced it.
            requests: where its pieces come from.
            frames_of: the frames of a message; None if it is of another kind.

        Raises:
            ProtocolViolation: what follows is not its payload.
            DeadlineExceeded: nothing followed for too long.
            Corrupt: the payload is not what the header says.
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
                        f"a piece of {len(piece)} bytes came where {expected} of a frame are due: send its payload in "
                        f"pieces of {SMALL_MESSAGE_BYTES} to {PIECE_BYTES} bytes"
                    )
                checksum.update(piece)  # of each piece, and not of all in the end: the event loop waits for it
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
                f"nothing of an announced frame came for {PIECE_TIMEOUT_S:g} s: send a frame's payload right after its "
                "head"
            ) from None
        piece = frames_of(request)
        if piece is None:
            raise ProtocolViolation("a frame's head was not followed by its payload: send that before anything else")
        return piece


def _verified(head: FrameHead, header: FrameHeader, checksum: int, payload: memoryview) -> Frame:
    if checksum != header.payload_checksum:
        raise Corrupt(
            f"payload checksum {checksum:016x} instead of {header.payload_checksum:016x}; the payload was damaged, "
            "send it again"
        )
    return Frame(header, memoryview(head.header), payload)
