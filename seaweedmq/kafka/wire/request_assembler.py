"""Assembly of requests from the bytes of a connection, however they are split."""

import struct
from collections.abc import Iterator
from typing import Protocol

from seaweedmq.kafka.wire.frames import HEAD_BYTES_MIN, LENGTH_BYTES
from seaweedmq.kafka.wire.message_cursor import Malformed
from seaweedmq.runtime.buffers import allocate_buffer

DIRECT_BYTES_MIN = 64 * 1024
"""Missing bytes from which a request is received directly into its own memory, once all of it is admitted."""
STEP_BYTES = 8 * 1024
"""Bytes of a request that are admitted before they have arrived."""
GROWTH = 4
"""Maximum ratio of admitted to received bytes above ``STEP_BYTES``.

So a client holds memory for bytes that it has sent, not for the length that it has announced.
"""
_LENGTH = struct.Struct(">i")
_OTHER_PROTOCOLS = (
    (b"GET ", "HTTP"),
    (b"HEAD", "HTTP"),
    (b"POST", "HTTP"),
    (b"PUT ", "HTTP"),
    (b"DELE", "HTTP"),
    (b"OPTI", "HTTP"),
    (b"PRI ", "HTTP/2, as gRPC does: use the port for SeaweedMQ's own clients"),
    (b"SSH-", "SSH"),
)
"""Protocols of other clients, by the first four bytes, where Kafka requests have their length."""


class Admission(Protocol):
    """The admission of request bytes to memory. A caller keeps data that is not admitted, and repeats the call."""

    def begin(self, size: int, admitted: int) -> bool:
        """Whether a request of ``size`` bytes may begin, and ``admitted`` bytes of it may be held."""

    def grow(self, admitted: int) -> bool:
        """Whether ``admitted`` more bytes of the request may be held."""


class RequestAssembler:
    """The assembler of one connection, with at most one incomplete request and data that is not admitted."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._length = b""
        self._body: bytearray | memoryview | None = None
        """Bytes of the incomplete request: those received, then all of it once all are admitted."""
        self._size = 0
        self._filled = 0
        self._admitted = 0
        """Bytes of the body that may be held. Once all are admitted, the body has its full length."""
        self.rest = b""
        """Received data that is not admitted yet."""

    @property
    def is_half(self) -> bool:
        """Whether a request has begun and is incomplete."""
        return self._body is not None or bool(self._length)

    @property
    def lacking_bytes(self) -> int:
        """The missing bytes of the incomplete request."""
        return 0 if self._body is None else self._size - self._filled

    def direct(self) -> memoryview | None:
        """Return the memory for the missing bytes of the request if they are many, else None.

        The caller reports received bytes with :meth:`received_direct`.
        """
        # A growing body is never exposed: event loops keep the view, and a bytearray with views cannot be resized.
        if self._body is None or self._admitted < self._size or self.lacking_bytes < DIRECT_BYTES_MIN:
            return None
        return memoryview(self._body)[self._filled :]

    def received_direct(self, size: int) -> memoryview | None:
        """Note ``size`` bytes in the memory of :meth:`direct`; return the request if it is complete."""
        self._filled += size
        return self._whole()

    def received(self, data: memoryview, admission: Admission) -> Iterator[memoryview]:
        """Yield the complete requests, each in its own memory.

        Data from the first byte that is not admitted stays in ``rest``: call this again with empty data to continue.

        Raises:
            Malformed: If the data does not begin with a request.
        """
        if self.rest:
            data = memoryview(self.rest + data)
            self.rest = b""
        position = 0
        while True:
            if self._body is not None:
                if self._filled == self._admitted and not self._grew(len(data) - position, admission):
                    self.rest = bytes(data[position:])
                    return
                if position == len(data):
                    return
                taken = min(len(data) - position, self._admitted - self._filled)
                self._put(data[position : position + taken])
                position += taken
                whole = self._whole()
                if whole is not None:
                    yield whole
                continue
            if position == len(data):
                return
            begins = position
            position += LENGTH_BYTES - len(self._length)
            length = self._length + data[begins:position]
            if len(length) < LENGTH_BYTES:
                self._length = length
                return
            self._length = b""
            (size,) = _LENGTH.unpack(length)
            if not HEAD_BYTES_MIN <= size <= self._bytes_max:
                raise Malformed(_reason_of(length, size, self._bytes_max))
            there = len(data) - position
            admitted = min(size, max(there, STEP_BYTES))
            if not admission.begin(size, admitted):
                self.rest = length + data[position:]
                return
            if there >= size:
                position += size
                yield memoryview(bytes(data[position - size : position]))
            else:
                self._body = bytearray()
                self._size, self._filled, self._admitted = size, 0, 0
                self._admit(admitted)

    def _grew(self, there: int, admission: Admission) -> bool:
        more = min(self.lacking_bytes, max(there, STEP_BYTES, (GROWTH - 1) * self._filled))
        if not admission.grow(more):
            return False
        self._admit(more)
        return True

    def _admit(self, more: int) -> None:
        self._admitted += more
        if self._admitted == self._size:
            whole = allocate_buffer(self._size)  # a bytearray would be cleared first
            whole[: self._filled] = self._body or b""
            self._body = whole

    def _put(self, data: memoryview) -> None:
        assert self._body is not None
        if isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def _whole(self) -> memoryview | None:
        if self._body is None or self._filled < self._size:
            return None
        body, self._body = self._body, None
        return memoryview(body)


def _reason_of(length: bytes, size: int, bytes_max: int) -> str:
    """Return the reason why a request with these first bytes, and so this size, is rejected."""
    for text, name in _OTHER_PROTOCOLS:
        if length == text:
            return f"the client speaks {name}"
    if length[0] == 0x16 and length[1] == 0x03:
        return "the client speaks TLS: set its security.protocol to PLAINTEXT"
    if size > bytes_max:
        return (
            f"a request of {size:,} bytes, above kafka_request_bytes_max = {bytes_max:,}: raise it on every broker, or "
            "lower the client's max.request.size"
        )
    return f"a request of {size:,} bytes, below the {HEAD_BYTES_MIN} of its header"
