"""Decoder of untrusted requests, whose allocations and loops are bounded by the bytes received.

The layouts and the objects are those of kafka-python's schemas. Its own decoder trusts the counts and lengths that it
reads, accepts truncated data as complete, and copies records.

A request with many elements takes long, so it is decoded in steps: each ``yield`` lets the caller pause. A request with
few elements, the common case, is decoded without that cost.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID  # noqa: TID251 - the type, not a source of randomness

from seaweedmq.kafka.wire.message_cursor import ELEMENTS_A_STEP, ELEMENTS_MAX, Malformed, MessageCursor, TooManyElements
from seaweedmq.model.config import INT32_MAX

ELEMENTS_SHORT = 100
"""Maximum elements of a message that is decoded at once."""
TAGS_MAX = 1_000
"""Maximum number of tagged fields of one object."""
STRING_BYTES_MAX = 32_767
"""The maximum length in the older of the two forms; Apache Kafka applies it to both."""

_FORMATS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "bool": "?"}
_SIZES = {"uuid": 16}
_NO_UUID = UUID(int=0)


T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A generator of steps that returns a T."""
_Read: TypeAlias = Callable[[MessageCursor], Any]


class _Reader(NamedTuple):
    """A reader of one value: ``read`` at once, and ``steps`` where it has arrays, which may be long."""

    read: _Read
    steps: Callable[[MessageCursor], Steps[Any]] | None = None


_UNPACKED = _Reader(lambda cursor: None)
"""The placeholder reader of consecutive numbers, which are unpacked together."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def decode_few(message: Any, version: int, data: memoryview) -> tuple[Any, int] | None:
    """Decode a message with few elements at once; return None if it has many. See :func:`decoding`."""
    cursor = MessageCursor(data, ELEMENTS_SHORT)
    cursor.is_short = True
    try:
        found = _message(message, version).read(cursor)
    except TooManyElements:
        return None
    found._header = None  # noqa: SLF001 - as in `decoding`
    return found, ELEMENTS_SHORT - cursor.elements_left


def decoding(message: Any, version: int, data: memoryview, elements_max: int = ELEMENTS_MAX) -> Steps[tuple[Any, int]]:
    """Decode a message of a kafka-python class in steps, and count its elements; ``records`` are views, not copies.

    As in Apache Kafka, bytes behind the message are ignored, which kafka-go and librdkafka send, and invalid UTF-8 is
    read as replacement characters. Raises Malformed if the bytes are not such a message, or if it has too many
    elements.
    """
    cursor = MessageCursor(data, elements_max)
    found = yield from _all_of(_message(message, version), cursor)
    found._header = None  # noqa: SLF001 - set by its constructor, read by its encoder
    return found, elements_max - cursor.elements_left


def _all_of(reader: _Reader, cursor: MessageCursor) -> Steps[Any]:
    if reader.steps is None:
        return reader.read(cursor)
    return (yield from reader.steps(cursor))


def text_of(data: memoryview) -> str:
    """Decode UTF-8 as Java does, with replacement characters."""
    return str(data, "utf-8", "replace")


def skip_tags(data: memoryview, position: int) -> int:
    """Return the end of the tagged fields that begin at ``position``, or raise Malformed if they are truncated."""
    cursor = MessageCursor(data)
    cursor.position = position
    _tags({})(cursor, None)
    return cursor.position


@cache
def _message(message: Any, version: int) -> _Reader:
    return _struct(message, list(message.fields.values()), version, message.flexible_version_q(version))


def _struct(made: Any, fields: Sequence[Any], version: int, flexible: bool) -> _Reader:
    """Return a reader of one object, which unpacks consecutive numbers together."""
    here = [field for field in fields if field.for_version_q(version)]
    parts: list[tuple[tuple[str, ...], struct.Struct | None, _Reader]] = []
    run: list[Any] = []

    def end_run() -> None:
        if run:
            form = struct.Struct(">" + "".join(_FORMATS[field.type_str] for field in run))
            parts.append((tuple(field.name for field in run), form, _UNPACKED))
            run.clear()

    tagged = dict[int, tuple[str, _Reader]]()
    for field in here:
        if field.tagged_field_q(version):
            tagged[field.tag] = (field.name, _field(field, version, flexible))
        elif _is_number(field):
            run.append(field)
        else:
            end_run()
            parts.append(((field.name,), None, _field(field, version, flexible)))
    end_run()
    tags = _tags(tagged) if flexible else None
    new = object.__new__

    def read(cursor: MessageCursor) -> Any:
        found = new(made)
        found._version = version  # noqa: SLF001 - as kafka-python's own decoder does
        found.tags = found.unknown_tags = None
        for names, form, (one, _) in parts:
            if form is not None:
                for name, value in zip(names, cursor.unpack(form), strict=True):
                    setattr(found, name, value)
            else:
                setattr(found, names[0], one(cursor))
        if tags is not None:
            tags(cursor, found)
        return found

    def steps(cursor: MessageCursor) -> Steps[Any]:
        found = new(made)
        found._version = version  # noqa: SLF001
        found.tags = found.unknown_tags = None
        for names, form, (one, in_steps) in parts:
            if form is not None:
                for name, value in zip(names, cursor.unpack(form), strict=True):
                    setattr(found, name, value)
            elif in_steps is not None:
                setattr(found, names[0], (yield from in_steps(cursor)))
            else:
                setattr(found, names[0], one(cursor))
        if tags is not None:
            tags(cursor, found)
        return found

    has_arrays = any(part.steps is not None for _, _, part in parts)
    return _Reader(read, steps if has_arrays else None)


def _is_number(field: Any) -> bool:
    return not field.is_array() and not field.is_struct_array() and not field.is_struct() and field.type_str in _FORMATS


def _field(field: Any, version: int, flexible: bool) -> _Reader:
    nullable = field.nullable_for_version_q(version)
    if field.is_struct_array():
        inner = field.array_of
        item = _struct(field.data_class, list(inner.fields.values()), version, flexible)
        return _array(field.name, item, _least(inner, version, flexible), nullable, flexible)
    if field.is_array():
        inner = field.array_of
        item = _Reader(_simple(inner, False, flexible))
        return _array(field.name, item, _least(inner, version, flexible), nullable, flexible)
    if field.is_struct():
        one = _struct(field.data_class, list(field.fields.values()), version, flexible)
        return _nullable_struct(one) if nullable and not field.tagged_field_q(version) else one
    return _Reader(_simple(field, nullable, flexible))


def _nullable_struct(one: _Reader) -> _Reader:
    def read(cursor: MessageCursor) -> Any:
        (present,) = cursor.unpack(_INT8)
        return None if present < 0 else one.read(cursor)

    def steps(cursor: MessageCursor) -> Steps[Any]:
        (present,) = cursor.unpack(_INT8)
        return None if present < 0 else (yield from _all_of(one, cursor))

    return _Reader(read, steps)


_INT8 = struct.Struct(">b")


def _array(name: str, item: _Reader, least: int, nullable: bool, flexible: bool) -> _Reader:
    read_item, item_steps = item

    def length(cursor: MessageCursor) -> int:
        """Return the length of an array; -1: null."""
        count = cursor.varint() - 1 if flexible else cursor.unpack(_INT32)[0]
        if count < 0:
            if count == -1 and nullable:
                return -1
            raise Malformed(f"{name} has {count} elements, below 0")
        if count * least > cursor.end - cursor.position:
            raise Malformed(f"{name} has {count:,} elements in {cursor.end - cursor.position:,} bytes")
        cursor.count(count)
        return int(count)

    def read(cursor: MessageCursor) -> list[Any] | None:
        count = length(cursor)
        return None if count < 0 else [read_item(cursor) for _ in range(count)]

    def steps(cursor: MessageCursor) -> Steps[list[Any] | None]:
        count = length(cursor)
        if count < 0:
            return None
        found: list[Any] = []
        if item_steps is None:
            while len(found) < count:
                more = min(ELEMENTS_A_STEP, count - len(found))
                found += [read_item(cursor) for _ in range(more)]
                if cursor.is_due(more):
                    yield
        else:
            for _ in range(count):
                found.append((yield from item_steps(cursor)))
                if cursor.is_due(1):
                    yield
        return found

    return _Reader(read, steps)


def _simple(field: Any, nullable: bool, flexible: bool) -> _Read:
    kind = field.type_str.removeprefix("[]")
    if kind in _FORMATS:
        form = struct.Struct(">" + _FORMATS[kind])
        return lambda cursor: cursor.unpack(form)[0]
    if kind == "uuid":
        return _uuid
    name = field.name
    length, bytes_max = (_INT16, STRING_BYTES_MAX) if kind == "string" else (_INT32, INT32_MAX)

    def read(cursor: MessageCursor) -> memoryview | None:
        size = cursor.varint() - 1 if flexible else cursor.unpack(length)[0]
        if size < 0:
            if size == -1 and nullable:
                return None
            raise Malformed(f"{name} has length {size}, below 0")
        if size > bytes_max:
            raise Malformed(f"{name} has {size:,} bytes, above {bytes_max:,}")
        return cursor.take(size)

    match kind:
        case "string":
            return lambda cursor: None if (found := read(cursor)) is None else text_of(found)
        case "bytes":
            return lambda cursor: None if (found := read(cursor)) is None else bytes(found)
        case "records":
            return read
        case _:
            raise AssertionError(f"field {name} of a request has type {kind}")


def _uuid(cursor: MessageCursor) -> UUID | None:
    found = UUID(bytes=bytes(cursor.take(16)))
    return None if found == _NO_UUID else found


def _tags(known: dict[int, tuple[str, _Reader]]) -> Callable[[MessageCursor, Any], None]:
    def read(cursor: MessageCursor, found: Any) -> None:
        count = cursor.varint()
        if 2 * count > cursor.end - cursor.position:
            raise Malformed(f"{count:,} tagged fields in {cursor.end - cursor.position:,} bytes")
        if count > TAGS_MAX:
            raise Malformed(f"{count:,} tagged fields of one object, above {TAGS_MAX:,}")
        cursor.count(count)
        for _ in range(count):
            tag = cursor.varint()
            size = cursor.varint()
            start = cursor.position
            if tag not in known:
                cursor.take(size)
                continue
            name, one = known[tag]
            setattr(found, name, one.read(cursor))
            if cursor.position != start + size:
                raise Malformed(f"tagged field {name} takes {cursor.position - start} bytes, not {size}")

    return read


def _least(field: Any, version: int, flexible: bool) -> int:
    """Return the minimum bytes of one element."""
    if field.is_struct():
        here = [one for one in field.fields.values() if one.for_version_q(version) and not one.tagged_field_q(version)]
        return sum(_least(one, version, flexible) for one in here) + (1 if flexible else 0)
    if field.is_struct_array() or field.is_array():
        return 1 if flexible else 4
    kind = field.type_str
    if kind in _FORMATS:
        return struct.calcsize(">" + _FORMATS[kind])
    if kind in _SIZES:
        return _SIZES[kind]
    if flexible:
        return 1
    return 2 if kind == "string" else 4
