"""What users give ``send``, made sure of at once: the error names the argument, and the caller is on the stack."""

from collections.abc import Mapping
from typing import TypeAlias

from seaweedmq.errors import InvalidArgument

Headers: TypeAlias = Mapping[str, bytes]


def as_bytes(what: str, value: object) -> bytes:
    """Raises InvalidArgument: it is none."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"the {what} is {type(value).__name__}, it must be bytes: encode it, for text with .encode()")


def as_headers(headers: Headers | None) -> tuple[dict[str, bytes] | None, int]:
    """A copy, and how many bytes it takes in a frame. Raises InvalidArgument."""
    if headers is None:
        return None, 0
    if not isinstance(headers, Mapping):
        raise InvalidArgument(f"headers are {type(headers).__name__}, they must map str to bytes")
    size = 0
    checked: dict[str, bytes] = {}
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidArgument(f"header name {name!r:.100} is {type(name).__name__}, it must be str")
        checked[name] = as_bytes(f"header {name!r:.100}", value)
        try:
            size += len(name.encode()) + len(checked[name]) + 8
        except UnicodeEncodeError:
            raise InvalidArgument(f"header name {name!r:.100} is not valid Unicode: UTF-8 can not encode it") from None
    return checked, size
