"""Comparison of two brokers' answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

ABSENT = "<absent>"
SHOWN_CHARACTERS = 400
KEYS = ("name", "topic", "api_key", "partition_index", "partition", "index", "base_offset")
"""Fields that identify elements of arrays, the first one that is unique."""
WORDS = frozenset({"error_message", "batch_index_error_message"})
"""Fields with a text of the broker's own."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs between two answers."""

    scene: str
    note: str
    path: str
    """Names and numbers from the answer to the field, separated by dots."""
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        kafka, ours = (str(value)[:SHOWN_CHARACTERS] for value in (self.kafka, self.ours))
        return f"{self.scene}: {self.note}: {self.path}: Kafka {kafka}, SeaweedMQ {ours}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for intended differences.

    ``scene`` "*" means all. ``where``: note and path, separated by a colon, with * as wildcard."""

    scene: str
    where: str
    why: str

    def allows(self, difference: Difference) -> bool:
        """Whether the rule covers the difference."""
        place = f"{difference.note}: {difference.path}"
        return self.scene in {"*", difference.scene} and fnmatchcase(place, self.where)


def differences(scene: str, kafka: dict[str, Any], ours: dict[str, Any]) -> Iterator[Difference]:
    for note in kafka | ours:
        for path, one, other in _differences(kafka.get(note, ABSENT), ours.get(note, ABSENT), ()):
            yield Difference(scene, note, ".".join(path), one, other)


def _differences(kafka: Any, ours: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if kafka == ours:
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in kafka | ours:
            if key not in WORDS:
                yield from _differences(kafka.get(key, ABSENT), ours.get(key, ABSENT), (*path, key))
    elif (one := _by_key(kafka)) is not None and (other := _by_key(ours)) is not None:
        yield from _differences(one, other, path)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for number, pair in enumerate(zip(kafka, ours, strict=True)):
            yield from _differences(*pair, (*path, str(number)))
    else:
        yield path, kafka, ours


def _by_key(values: Any) -> dict[str, Any] | None:
    """Return elements by their identifying field; None if they have none."""
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        return None
    for key in KEYS:
        names = [str(one[key]) for one in values if key in one]
        if len(set(names)) == len(values):
            return dict(zip(names, values, strict=True))
    return None
