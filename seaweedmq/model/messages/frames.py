"""Frames in messages: one message of a stream carries several frames, or a piece of a large one.

``rpc`` sends the values of this folder over the network; the simulation passes them as they are. A frame too large for
a message of its stream is sent as ``FrameHead`` and then its payload in pieces. The receiver thus reserves memory
before it reads the payload.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.config import KIB

PROTOCOL_VERSION = 3
"""Protocol version of clients and brokers; a broker rejects another one. It is raised when one of the two would
misunderstand the other."""


SMALL_MESSAGE_BYTES = 64 * KIB
"""Bytes of frames in one message that every stream may carry at any time. More needs reserved memory."""


LARGE_MESSAGE_BYTES = 1536 * KIB
"""Bytes of frames in one message to a broker; a frame of the publishers' target of 1 MiB always fits."""


PIECE_BYTES = 1024 * KIB
"""Limit on the bytes of a large frame's payload in one message."""


SENT_PIECE_BYTES = 256 * KIB
"""Payload bytes in one message of a large frame, as this version sends it. Python and gRPC each copy a message in one
step and block the event loop: a message of ``PIECE_BYTES`` takes up to 2 ms in new memory."""


Frames: TypeAlias = bytes | memoryview
"""One or more whole frames, back to back."""


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The header of a frame whose payload follows at once, in pieces, each alone in a message of frames."""

    header: bytes
