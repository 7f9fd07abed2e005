"""Encoder of replies with many elements in steps, which uses kafka-python's encoders of single elements.

kafka-python's encoder of a whole message is fast, some microseconds per element, but cannot pause.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from seaweedmq.kafka.wire.fields import count

ELEMENTS_A_STEP: Final = 10
"""Elements that are encoded in one step: each takes 5 to 20 us."""
LARGE_ELEMENTS: Final = 500
"""Number of elements from which a reply is encoded in steps."""


def is_large(reply: Any) -> bool:
    """Whether a message has at least ``LARGE_ELEMENTS`` elements, so that it must be encoded in steps."""
    return _counted(reply, 0) >= LARGE_ELEMENTS


def encoding(reply: Any, version: int) -> Iterator[bytes]:
    """Yield the bytes of a message in parts, each of which takes well below a millisecond."""
    return _struct(reply._struct, reply, version, reply.flexible_version_q(version))  # noqa: SLF001


def _counted(value: Any, counted: int) -> int:
    kind: Any = type(value)
    for name, has_more in arrays_of(kind):
        elements = getattr(value, name, None) or ()
        counted += len(elements)
        if has_more:
            for element in elements:
                if counted >= LARGE_ELEMENTS:
                    break
                counted = _counted(element, counted)
        if counted >= LARGE_ELEMENTS:
            break
    return counted


@cache
def arrays_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Return the arrays of a class of messages: their names, and whether their elements have arrays."""
    arrays = (field for field in kind.fields.values() if field.is_array() or field.is_struct_array())
    return tuple((field.name, field.is_struct_array() and _has_arrays(field)) for field in arrays)


def _has_arrays(field: Any) -> bool:
    return any(inner.is_array() or inner.is_struct_array() for inner in field.fields.values())


def _struct(made: Any, value: Any, version: int, flexible: bool) -> Iterator[bytes]:
    form = {"version": version, "compact": flexible, "tagged": flexible}
    for field in made.untagged_fields(version):
        found = getattr(value, field.name)
        if not (field.is_array() or field.is_struct_array()) or not found:
            yield field.encode(found, **form)
            continue
        yield count(len(found), flexible)
        inner = field.array_of
        if field.is_struct_array() and _has_arrays(field):
            for one in found:
                yield from _joined(_struct(inner, one, version, flexible), one)
        else:
            for first in range(0, len(found), ELEMENTS_A_STEP):
                yield b"".join([inner.encode(one, **form) for one in found[first : first + ELEMENTS_A_STEP]])
    if flexible:
        yield made.tagged_fields(version).encode(value, version=version)


def _joined(parts: Iterator[bytes], value: Any) -> Iterator[bytes]:
    """Yield the parts of an element, joined if it is small."""
    if _counted(value, 0) < ELEMENTS_A_STEP:
        yield b"".join(parts)
    else:
        yield from parts
