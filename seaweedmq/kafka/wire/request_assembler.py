"""Requests out of the bytes of a connection, however they are cut."""

import struct
from collections.abc import Iterator
from typing import Protocol

from seaweedmq.kafka.wire.decoding import Malformed
from seaweedmq.kafka.wire.foreign_protocols import describe_foreign
from seaweedmq.kafka.wire.frames import HEAD_BYTES_MIN, LENGTH_BYTES

DIRECT_BYTES_MIN = 64 * 1024
"""A request that lacks more than this is received straight into its own memory, once all of it is admitted."""
STEP_BYTES = 8 * 1024
"""Bytes of a request that are admitted before they have come ..."""
GROWTH = 4
"""... and then up to so many times as much as has come: a client holds memory for what it sends, not what it says."""
_LENGTH = struct.Struct(">i")


class Admission(Protocol):
    """Admits bytes of requests to memory. The caller keeps what is not admitted, and repeats the call later."""

    def begin(self, size: int, admitted: int) -> bool:
        """Whether a request of ``size`` bytes may begin, and so many of its bytes may be held."""

    def grow(self, admitted: int) -> bool:
        """Whether so many more of its bytes may be held."""


class RequestAssembler:
    """At most one request that is not whole, and what was received and is not admitted."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._length = b""
        self._body: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._admitted = 0
        """Bytes of the body that may be held. Once that is all of it, the body has its full length."""
        self.rest = b""
        """Received, and not taken: it is not admitted yet."""

    @property
    def is_half(self) -> bool:
        """Whether a request began and is not whole."""
        return self._body is not None or bool(self._length)

    @property
    def lacking_bytes(self) -> int:
        """How much of the request that began is not there."""
        return 0 if self._body is None else self._size - self._filled

    def direct(self) -> memoryview | None:
        """Where to receive what the request lacks, if it is much. :meth:`received_direct` tells how much came."""
        # A body that still grows is never exposed: event loops keep the view, and what is viewed cannot be resized.
        if self._body is None or self._admitted < self._size or self.lacking_bytes < DIRECT_BYTES_MIN:
            return None
        return memoryview(self._body)[self._filled :]

    def received_direct(self, size: int) -> memoryview | None:
        """The request, if it is whole now."""
        self._filled += size
        return self._whole()

    def received(self, data: memoryview, admission: Admission) -> Iterator[memoryview]:
        """The requests that are whole now, each in memory of its own.

        Everything from the first byte on that is not admitted is left in ``rest``: call this again, with nothing, when
        it may be.

        Raises:
            Malformed: it is not a request that begins here.
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
                raise Malformed(describe_foreign(length, size, self._bytes_max))
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
            whole = bytearray(self._size)
            whole[: self._filled] = self._body or b""
            self._body = whole

    def _put(self, data: memoryview) -> None:
        assert self._body is not None
        if self._admitted == self._size:
            self._body[self._filled : self._filled + len(data)] = data
        else:
            self._body += data
        self._filled += len(data)

    def _whole(self) -> memoryview | None:
        if self._body is None or self._filled < self._size:
            return None
        body, self._body = self._body, None
        return memoryview(body)
