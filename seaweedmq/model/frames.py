"""Frames on their way: one message of a stream carries several, or a piece of a large one.

``rpc`` puts the values of this folder on the wire; the simulation passes them as they are. A frame too large for a
message of its stream travels as ``FrameHead`` and then its payload in pieces, so that the receiver makes room before it
takes the payload in.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.config import KIB

PROTOCOL_VERSION = 3
"""Of clients and brokers; another one is refused. Raised when one of the two would misunderstand the other."""


SMALL_MESSAGE_BYTES = 64 * KIB
"""Frames of one message that every stream may carry at any time; more needs memory that is set aside for it."""


LARGE_MESSAGE_BYTES = 1536 * KIB
"""Most frames of one message to a broker; one frame of the 1 MiB that publishers aim for always fits."""


PIECE_BYTES = 1024 * KIB
"""Most of a large frame's payload in one message."""


SENT_PIECE_BYTES = 256 * KIB
"""Payload bytes of one message of a large frame, as this version sends it. Python and gRPC each copy a message in one
step, for which the event loop waits: a message of ``PIECE_BYTES`` takes up to 2 ms where the memory is new."""


Frames: TypeAlias = bytes | memoryview
"""One or more frames back to back, whole."""


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The header of a frame whose payload follows in pieces, alone in messages of frames, before anything else."""

    header: bytes
