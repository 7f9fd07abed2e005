"""Encoding of messages of frames: the hot path.

protobuf would copy a payload of 1 MiB twice per hop. A message with only the ``frames`` field is its tag, its length
and the payload, so this module joins and slices it. protobuf handles every other message, and every unusual encoding of
this one. The bytes written here are those that protobuf writes.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from seaweedmq.model.messages.frames import Frames

_FRAMES_FIELD: Final = 2
"""Field number of ``frames`` in PublishRequest, SubscribeReply and ReplicateRequest."""
_FRAMES_TAG: Final = _FRAMES_FIELD << 3 | 2
_LENGTH_BYTES_MAX: Final = 5


def pack_frames(chunks: Sequence[Frames]) -> memoryview:
    """Join frames, or parts of frames, into the ``data`` of a message that needs no further copy.

    The view's buffer holds the tag and length in front of the view. Use it wherever a join is needed anyway: a copy of
    1 MiB into fresh memory costs as much as sending it.
    """
    prefix = _prefix(sum(map(len, chunks)))
    return memoryview(b"".join((prefix, *chunks)))[len(prefix) :]


def _prefix(remaining: int) -> bytes:
    """Return the tag and length of ``frames``."""
    prefix = bytearray((_FRAMES_TAG,))
    while remaining > 0x7F:
        prefix.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    prefix.append(remaining)
    return bytes(prefix)


def write_frames(data: Frames) -> bytes:
    """Encode a message whose only field is ``frames``, which has the same number in every message."""
    prefix = _prefix(len(data))
    whole = data.obj if isinstance(data, memoryview) else None
    if (
        isinstance(whole, bytes)
        and len(whole) == len(prefix) + len(data)
        and whole.startswith(prefix)
        # The lengths alone do not show where in the buffer the view begins.
        and _arrow().py_buffer(data).address == _arrow().py_buffer(whole).address + len(prefix)
    ):
        return whole
    return b"".join((prefix, data))


@cache
def _arrow() -> Any:
    import pyarrow  # lazy: a client that only administers needs no Arrow, which takes long to load

    return pyarrow


def read_frames(message: Frames) -> memoryview | None:
    """Return the payload if the message is exactly one ``frames`` field, otherwise None."""
    if not message or message[0] != _FRAMES_TAG:
        return None
    length = 0
    for position, byte in enumerate(message[1 : 1 + _LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            start = position + 2
            return memoryview(message)[start:] if start + length == len(message) else None
    return None
