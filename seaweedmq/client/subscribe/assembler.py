"""Assembly of large frames, which a broker sends as a head and parts of the payload.

One assembler serves one subscribe stream. A frame whose stream ends in the middle is received again from its beginning.
"""

from seaweedmq.codec.frame import HEADER_BYTES, decode_header
from seaweedmq.errors import ProtocolViolation
from seaweedmq.model.messages.frames import FrameHead
from seaweedmq.model.messages.subscribe import (
    SubscribeEnd,
    SubscribeFrames,
    SubscribeReady,
    SubscribeReply,
    SubscribeSkipped,
)
from seaweedmq.runtime.buffers import allocate_buffer


class FrameAssembler:
    """An assembler of the replies of one stream."""

    def __init__(self) -> None:
        self._frame: memoryview | None = None
        """The frame that is being received; None between frames."""
        self._received_bytes = 0
        """The bytes of it that have arrived, header included."""

    def add(self, reply: SubscribeReply) -> SubscribeReady | SubscribeFrames | SubscribeSkipped | SubscribeEnd | None:
        """Return the reply, or the frame that it completes; None while parts of a frame are missing.

        Corrupt, Truncated or Unsupported is raised for a damaged head of a frame, and ProtocolViolation if it
        is not followed by the payload of its frame.
        """
        if isinstance(reply, FrameHead):
            self._begin(reply)
            return None
        if self._frame is None:
            return reply
        if not isinstance(reply, SubscribeFrames):
            raise ProtocolViolation(f"{type(reply).__name__} came where the payload of a frame is due: {_REMEDY}")
        end = self._received_bytes + len(reply.data)
        if end > len(self._frame):
            raise ProtocolViolation(
                f"a message ends {end - len(self._frame)} bytes beyond the payload of its frame: {_REMEDY}"
            )
        self._frame[self._received_bytes : end] = reply.data
        self._received_bytes = end
        if end < len(self._frame):
            return None
        frame, self._frame = self._frame, None
        return SubscribeFrames(frame)

    def _begin(self, head: FrameHead) -> None:
        if self._frame is not None:
            raise ProtocolViolation(f"the head of a frame came where the payload of another one is due: {_REMEDY}")
        frame = allocate_buffer(decode_header(head.header).frame_bytes)
        frame[:HEADER_BYTES] = head.header
        self._frame, self._received_bytes = frame, HEADER_BYTES


_REMEDY = "upgrade the older of client and broker"
