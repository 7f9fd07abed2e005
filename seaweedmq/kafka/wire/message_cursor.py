"""Cursor over the bytes of one untrusted message, which checks each length and count before it is used."""

import struct
from typing import Any

from seaweedmq.errors import ProtocolViolation

ELEMENTS_MAX = 100_000
"""Default limit of the elements of all arrays and tagged fields of a request. Each element takes time, and most become
objects: some hundred bytes for as few as one received byte."""
ELEMENTS_A_STEP = 20
"""Elements of a long message that are decoded in one step: each takes up to about 10 us."""
VARINT_BYTES_MAX = 5


class Malformed(ProtocolViolation):
    """An error for bytes that are not a message of the API and version."""


class TooManyElements(Exception):
    """A signal that a message has too many elements to be decoded at once."""


class MessageCursor:
    """A position in the bytes of one message."""

    __slots__ = ("data", "elements_left", "elements_max", "end", "is_short", "position", "since")

    def __init__(self, data: memoryview, elements_max: int = ELEMENTS_MAX) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.elements_left = self.elements_max = elements_max
        self.since = 0
        """Elements decoded since the last step."""
        self.is_short = False
        """Whether too many elements raise ``TooManyElements`` instead of ``Malformed``."""

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes; raises Malformed, as all methods, if there are fewer."""
        start = self.position
        if size > self.end - start:
            raise Malformed(f"{size:,} bytes at {start} exceed the message of {self.end}")
        self.position = start + size
        return self.data[start : start + size]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the next values of a format."""
        start = self.position
        if form.size > self.end - start:
            raise Malformed(f"{form.size:,} bytes at {start} exceed the message of {self.end}")
        self.position = start + form.size
        return form.unpack_from(self.data, start)

    def count(self, elements: int) -> None:
        """Count elements that the message announces; raises Malformed or TooManyElements at the limit."""
        self.elements_left -= elements
        if self.elements_left < 0:
            if self.is_short:
                raise TooManyElements
            raise Malformed(f"more than {self.elements_max:,} elements in one request: send several requests")

    def is_due(self, elements: int) -> bool:
        """Count decoded elements; return whether a step ends."""
        self.since += elements
        if self.since < ELEMENTS_A_STEP:
            return False
        self.since = 0
        return True

    def varint(self) -> int:
        """Return the next number of variable length."""
        value = 0
        for i in range(VARINT_BYTES_MAX):
            if self.position >= self.end:
                raise Malformed(f"number is truncated at {self.end}")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value
        raise Malformed(f"number at {self.position} is longer than {VARINT_BYTES_MAX} bytes")
