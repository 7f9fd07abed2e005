"""Requests of one API in one version: good ones, and each with one field changed."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seaweedmq.kafka.wire.messages import API, REQUESTS, UUID
from seaweedmq.kafka.wire.versions import PRODUCE_LOWEST
from tests.kafka.requests.good import Fields, Place, good

SHOWN_CHARACTERS = 24
STRINGS: tuple[Any, ...] = ("", "no-such", "a/b", "x" * 300)
BYTES: tuple[Any, ...] = (b"", b"\0\0junk", bytes(100))
VALUES: Mapping[str, tuple[Any, ...]] = {
    "int8": (-128, -1, 0, 1, 2, 127), "int16": (-(1 << 15), -2, -1, 0, 1, (1 << 15) - 1),
    "int32": (-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1), "int64": (-(1 << 63), -2, -1, 0, 1, (1 << 63) - 1),
    "bool": (False, True), "uuid": (UUID(int=0), UUID(int=4711)), "string": STRINGS, "bytes": BYTES, "records": BYTES,
}  # fmt: skip
"""Other values of a field, by its type."""
OWN_NAMES = frozenset({"name", "topic", "topic_name", "group_id", "group", "groups", "key", "resource_name"})
"""Fields whose other names get the place's prefix: the broker may create what they name."""
NOT_SENT = ((API.PRODUCE, "acks", 0),)
"""Values that have no answer."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request. ``title`` names the changed field and its value, or is "good"."""

    title: str
    fields: Fields


def cases(api: API, version: int, place: Place) -> Iterator[Case]:
    """Yield all requests. ``place`` counts them, so that each may have names of its own."""
    for number in range(len(good(place)[api])):
        label = f" ({number + 1})" if number else ""
        changes = list(_changes(api, version, _good(api, version, place, number)))
        for path, value in changes:
            place.number += 1
            fields = copy.deepcopy(_good(api, version, place, number))
            shown = _set(fields, path, value, place)
            yield Case(f"{'.'.join(map(str, path))}={shown}{label}", fields)
        place.number += 1
        yield Case(f"good{label}", _good(api, version, place, number))  # last: it may take away what there is


def _good(api: API, version: int, place: Place, number: int) -> Fields:
    return _pruned(REQUESTS[api].fields, version, good(place)[api][number])


def _pruned(known: Mapping[str, Any], version: int, given: Mapping[str, Any]) -> Fields:
    made: Fields = {}
    for name, value in given.items():
        field = known[name]
        if not field.for_version_q(version):
            continue
        if value is not None and field.is_struct_array():
            made[name] = [_pruned(field.fields, version, one) for one in value]
        elif value is not None and field.is_struct():
            made[name] = _pruned(field.fields, version, value)
        else:
            made[name] = value
    return made


def _changes(api: API, version: int, good: Fields) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if api is API.PRODUCE and version < PRODUCE_LOWEST:
        return  # nothing of it is read
    for path, value in _of_fields(REQUESTS[api].fields, version, good, ()):
        if (api, path[-1], value) not in NOT_SENT:
            yield path, value


def _of_fields(
    known: Mapping[str, Any], version: int, good: Fields, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, value in good.items():
        field, here = known[name], (*path, name)
        if value is not None and field.nullable_for_version_q(version):
            yield here, None
        if field.is_struct_array():
            yield from _of_list(value, here)
            if value:
                yield from _of_fields(field.fields, version, value[0], (*here, 0))
        elif field.is_struct():
            if value is not None:
                yield from _of_fields(field.fields, version, value, here)
        elif field.is_array():
            yield from _of_list(value, here)
            if value:
                kind = field.array_of.type_str
                yield from (((*here, 0), other) for other in VALUES[kind] if other != value[0])
        else:
            yield from ((here, other) for other in VALUES[field.type_str] if other != value)


def _of_list(value: list[Any] | None, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if value:
        yield path, []
        yield path, [*value, value[0]]


def _set(fields: Fields, path: tuple[str | int, ...], value: Any, place: Place) -> str:
    """Set a field, and return the value as the title shows it."""
    part: Any = fields
    for step in path[:-1]:
        part = part[step]
    last = path[-1]
    if isinstance(value, list):
        part[last] = [*part[last], copy.deepcopy(part[last][0])] if value else []
        return "twice" if value else "[]"
    names = {step for step in path if isinstance(step, str)}
    is_own = isinstance(value, str) and value and names & OWN_NAMES
    part[last] = f"{place.own}{value}" if is_own else value
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{len(value)} characters"
    return f"{len(value)} zeros" if isinstance(value, bytes) and len(value) > SHOWN_CHARACTERS else repr(value)
