"""Converters between frozen values of ``model`` and protobuf messages, derived from the fields of both.

A field of a value stands for the field of the message with the same name, or with its alias:

| type in the value | in the message |
|---|---|
| number, string, bytes, bool | the same |
| type with a registered converter | the result of the converter |
| dataclass | message, converted likewise; without a field of that name, its fields are among those of the message |
| ``tuple[T, ...]``, ``Mapping`` | repeated field, map |
| ``T | None`` | optional field, or enum with the number 0 for None |

An absent field is read as the default of the value's field, and so is a zero in a field that cannot be absent. A value
or a message with a field that the other lacks fails the import.
"""

import dataclasses
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

V = TypeVar("V")
W = TypeVar("W")
M = TypeVar("M", bound=Message)

ALIASES: Final[Mapping[str, str]] = {
    "changed": "topics",
    "histogram": "histogram_records_per_s",
    "ids": "segments",
    "name": "topic",
    "specs": "topics",
    "topic_uid": "uid",
}
"""Field of a value -> field of the message, where the message has none of the same name."""


@dataclass(frozen=True, slots=True)
class Converter(Generic[V, W]):
    """A pair of functions between values ``V`` and their form ``W`` in messages."""

    write: Callable[[V], W]
    read: Callable[..., V]


_registered: dict[Any, Converter[Any, Any]] = {}


def register(kind: Any, converter: Converter[Any, Any]) -> None:
    """Use a converter for all fields of a type."""
    _registered[kind] = converter


def converter_of(
    kind: type[V], message: type[M], *, without: Collection[str] = (), given: Collection[str] = ()
) -> Converter[V, M]:
    """Return the registered converter of a dataclass, or derive and register it.

    The message lacks the fields ``without``, read as their defaults, and ``given``, further arguments of ``read``.
    """
    if kind not in _registered:
        source = _Source(message)
        read = source.value(kind, "v", {*without, *given}, [f"{name}={name}" for name in given])
        register(kind, source.compiled(read, given))
    return _registered[kind]


def result_converter(kind: Any, message: type[M]) -> Converter[Any, M]:
    """Return the converter of a call's result: None, a value with a message, or the only field of the message."""
    if kind is types.NoneType:
        return Converter(lambda _: message(), lambda _: None)
    if kind in _registered or dataclasses.is_dataclass(kind):
        return converter_of(kind, message)
    source = _Source(message)
    return source.compiled(source.field(kind, None, next(iter(source.unused)), "v"))


class _Source:
    """The source text of a converter and the objects that it names.

    The text is compiled, as ``dataclass`` compiles ``__init__``: the result is the function that a person would write.
    """

    def __init__(self, message: type[Message]) -> None:
        self._message = message
        self._objects: dict[str, Any] = {"message": message}
        self._arguments: list[str] = []
        self.unused = set(message.DESCRIPTOR.fields_by_name)

    def compiled(self, read: str, given: Collection[str] = ()) -> Converter[Any, Any]:
        """Return the converter, with the expression that reads a value from ``m``."""
        if self.unused:
            raise TypeError(f"{self._message.DESCRIPTOR.full_name} has fields without a value: {sorted(self.unused)}")
        write = f"message({', '.join(self._arguments)})"
        return Converter(
            eval(f"lambda v: {write}", self._objects), eval(f"lambda {', '.join(('m', *given))}: {read}", self._objects)
        )

    def value(self, kind: Any, path: str, without: Collection[str] = (), arguments: Collection[str] = ()) -> str:
        """Return the expression that reads a dataclass from the message."""
        hints = get_type_hints(kind)
        arguments = list(arguments)
        for field in dataclasses.fields(kind):
            if field.name in without:
                continue
            target = next((name for name in (field.name, ALIASES.get(field.name)) if name in self.unused), None)
            at = f"{path}.{field.name}"
            if target is not None:
                read = self.field(hints[field.name], field.default, target, at)
            elif dataclasses.is_dataclass(hints[field.name]):
                read = self.value(hints[field.name], at)
            else:
                raise TypeError(f"{self._message.DESCRIPTOR.full_name} has no field for {kind.__name__}.{field.name}")
            arguments.append(f"{field.name}={read}")
        return f"{self._name(kind)}({', '.join(arguments)})"

    def field(self, hint: Any, default: object, target: str, path: str) -> str:
        """Return the expression that reads one field of the message, and keep the one that writes it."""
        field = self._message.DESCRIPTOR.fields_by_name[target]
        self.unused.remove(target)
        is_optional = get_origin(hint) in (Union, types.UnionType)
        if is_optional:
            (hint,) = (kind for kind in get_args(hint) if kind is not types.NoneType)
        convert = _converter(hint, field.message_type)
        write, read = path, f"m.{target}"
        if convert is not None:
            write, read = f"{self._name(convert.write)}({path})", f"{self._name(convert.read)}({read})"
        elif get_origin(hint) is tuple:
            item = _converter(get_args(hint)[0], field.message_type)
            if item is None:
                read = f"tuple({read})"
            else:
                write, read = f"map({self._name(item.write)}, {path})", f"tuple(map({self._name(item.read)}, {read}))"
        elif get_origin(hint) is not None:
            read = f"dict({read})"
        is_present = f"m.HasField({target!r})" if field.has_presence else f"m.{target}"
        if is_optional:
            read = f"{read} if {is_present} else None"
            write = f"None if {path} is None else {write}" if convert is not None else write
        elif default is not dataclasses.MISSING and default:
            read = f"{read} if {is_present} else {self._name(default)}"
        elif convert is not None and default == ():
            write = f"{write} if {path} else None"
        self._arguments.append(f"{target}={write}")
        return read

    def _name(self, thing: object) -> str:
        name = f"_{len(self._objects)}"
        self._objects[name] = thing
        return name


def _converter(hint: Any, message: Any) -> Converter[Any, Any] | None:
    """Return the converter of a type in a field, perhaps of a message; None for values that stay as they are."""
    if message is not None and isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return converter_of(hint, GetMessageClass(message))
    return _registered.get(hint)
