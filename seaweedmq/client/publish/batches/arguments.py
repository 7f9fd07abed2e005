"""Checks of the arguments of ``send``, made at once: errors name the argument, with the caller on the stack."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from seaweedmq.errors import InvalidArgument

Headers: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""Header names and values. Pairs, such as ``Message.header_pairs``, may repeat a name."""

HeaderPairs: TypeAlias = list[tuple[str, bytes | None]]
"""Header names and values in order."""


def as_bytes(what: str, value: object) -> bytes:
    """Return ``value`` as bytes; InvalidArgument if it is not bytes, bytearray or memoryview."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"the {what} is {type(value).__name__}, it must be bytes: encode it, for text with .encode()")


def as_headers(headers: Headers | None) -> tuple[HeaderPairs | None, int]:
    """Copy headers, and return the copy and its size in a frame, in bytes; InvalidArgument for a wrong type or name."""
    if headers is None:
        return None, 0
    size = 0
    checked: HeaderPairs = []
    for name, value in _pairs(headers):
        if not isinstance(name, str):
            raise InvalidArgument(f"header name {name!r:.100} is {type(name).__name__}, it must be str: convert it")
        content = None if value is None else as_bytes(f"header {name!r:.100}", value)
        checked.append((name, content))
        try:
            size += len(name.encode()) + len(content or b"") + 8
        except UnicodeEncodeError:
            raise InvalidArgument(f"header name {name!r:.100} is not valid Unicode: UTF-8 cannot encode it") from None
    return checked, size


def _pairs(headers: object) -> Iterable[tuple[object, object]]:
    """Return the pairs of headers, which are a mapping or pairs."""
    if isinstance(headers, Mapping):
        return headers.items()
    if isinstance(headers, Iterable) and not isinstance(headers, str | bytes):
        pairs = list(headers)
        if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            return pairs
    raise InvalidArgument(f"headers are {type(headers).__name__}, they must map str to bytes, or be pairs of these")
