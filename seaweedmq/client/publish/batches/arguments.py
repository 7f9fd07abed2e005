"""What users give ``send``, made sure of at once: the error names the argument, and the caller is on the stack."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from seaweedmq.errors import InvalidArgument

Headers: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""Names and values; as pairs, such as ``Message.header_pairs``, a name may be repeated."""

HeaderPairs: TypeAlias = list[tuple[str, bytes | None]]


def as_bytes(what: str, value: object) -> bytes:
    """Raises InvalidArgument: it is none."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"the {what} is {type(value).__name__}, it must be bytes: encode it, for text with .encode()")


def as_headers(headers: Headers | None) -> tuple[HeaderPairs | None, int]:
    """A copy, and how many bytes it takes in a frame. Raises InvalidArgument."""
    if headers is None:
        return None, 0
    size = 0
    checked: HeaderPairs = []
    for name, value in _pairs(headers):
        if not isinstance(name, str):
            raise InvalidArgument(f"header name {name!r:.100} is {type(name).__name__}, it must be str")
        content = None if value is None else as_bytes(f"header {name!r:.100}", value)
        checked.append((name, content))
        try:
            size += len(name.encode()) + len(content or b"") + 8
        except UnicodeEncodeError:
            raise InvalidArgument(f"header name {name!r:.100} is not valid Unicode: UTF-8 can not encode it") from None
    return checked, size


def _pairs(headers: object) -> Iterable[tuple[object, object]]:
    """Raises InvalidArgument: they are neither a mapping nor pairs."""
    if isinstance(headers, Mapping):
        return headers.items()
    if isinstance(headers, Iterable) and not isinstance(headers, str | bytes):
        pairs = list(headers)
        if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            return pairs
    raise InvalidArgument(f"headers are {type(headers).__name__}, they must map str to bytes, or be pairs of these")
