"""Requests out of the bytes of a connection, however they are cut."""

import struct
from collections.abc import Callable, Iterator

from seaweedmq.kafka.wire.decoding import Malformed
from seaweedmq.kafka.wire.frames import HEAD_BYTES_MIN, LENGTH_BYTES
from seaweedmq.kafka.wire.strangers import stranger

DIRECT_BYTES_MIN = 64 * 1024
"""A request that lacks more than this is received straight into its own memory, so that it is copied nowhere."""
_LENGTH = struct.Struct(">i")


class Assembly:
    """At most one request that is not whole, and what was received behind one that may not begin yet."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._length = b""
        self._body: bytearray | None = None
        self._filled = 0
        self.rest = b""
        """Received, and not taken: the next request may not begin yet."""

    @property
    def is_half(self) -> bool:
        """Whether a request began and is not whole."""
        return self._body is not None or bool(self._length)

    @property
    def lacking_bytes(self) -> int:
        """How much of the request that began is not there."""
        return 0 if self._body is None else len(self._body) - self._filled

    def direct(self) -> memoryview | None:
        """Where to receive what the request lacks, if it is much. :meth:`received_direct` tells how much came."""
        if self._body is None or self.lacking_bytes < DIRECT_BYTES_MIN:
            return None
        return memoryview(self._body)[self._filled :]

    def received_direct(self, size: int) -> memoryview | None:
        """The request, if it is whole now."""
        self._filled += size
        return self._whole()

    def received(self, data: memoryview, may_begin: Callable[[int], bool]) -> Iterator[memoryview]:
        """The requests that are whole now, each in memory of its own.

        Before a request is taken, ``may_begin`` is asked with its size. If it may not, everything from it on is left in
        ``rest``: give that again, when it may.

        Raises:
            Malformed: it is not a request that begins here.
        """
        if self.rest:
            data = memoryview(self.rest + data)
            self.rest = b""
        position = 0
        while position < len(data):
            if self._body is not None:
                taken = min(len(data) - position, self.lacking_bytes)
                self._body[self._filled : self._filled + taken] = data[position : position + taken]
                self._filled += taken
                position += taken
                whole = self._whole()
                if whole is not None:
                    yield whole
                continue
            begins = position
            position += LENGTH_BYTES - len(self._length)
            length = self._length + data[begins:position]
            if len(length) < LENGTH_BYTES:
                self._length = length
                return
            self._length = b""
            (size,) = _LENGTH.unpack(length)
            if not HEAD_BYTES_MIN <= size <= self._bytes_max:
                raise Malformed(stranger(length, size, self._bytes_max))
            if not may_begin(size):
                self.rest = length + data[position:]
                return
            if len(data) - position >= size:
                position += size
                yield memoryview(bytes(data[position - size : position]))
            else:
                self._body = bytearray(size)
                self._filled = 0

    def _whole(self) -> memoryview | None:
        if self._body is None or self._filled < len(self._body):
            return None
        body, self._body = self._body, None
        return memoryview(body)
