"""Common format of the values in etcd: compact JSON objects with a version, read and checked field by field."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar, cast

from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import ProducerSequence
from seaweedmq.model.topic import PARTITIONS_MAX, TopicName
from seaweedmq.model.topic_settings import Configs, configs_of

METADATA_VERSION = 1
UINT_MAX = 2**64 - 1
UINT_DIGITS = len(str(UINT_MAX))

_Choice = TypeVar("_Choice", bound=StrEnum)


def to_json(fields: Mapping[str, object]) -> bytes:
    """Return compact JSON in ASCII."""
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii")


class JsonFields:
    """A JSON object whose fields are checked when they are read; methods raise Corrupt for unreadable fields."""

    def __init__(self, what: str, data: bytes) -> None:
        try:
            values: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt(
                f"{what} metadata of {len(data)} bytes is not JSON ({error}): {bytes(data[:40])!r}"
            ) from error
        self._take(what, values)

    @classmethod
    def of(cls, what: str, values: object) -> "JsonFields":
        """Return the fields of JSON that is already parsed; raises Corrupt, Unsupported."""
        fields = cls.__new__(cls)
        fields._take(what, values)  # noqa: SLF001 - its own
        return fields

    def _take(self, what: str, values: object) -> None:
        self._what = what
        if not isinstance(values, dict):
            raise Corrupt(f"{what} metadata is {type(values).__name__}, not a JSON object: {repr(values)[:40]}")
        self._values = cast("dict[str, object]", values)
        version = self.uint("v", low=1)
        if version != METADATA_VERSION:
            raise Unsupported(
                f"{what} metadata has version {version}, this build reads {METADATA_VERSION}: upgrade this broker"
            )

    def corrupt(self, field: str, rule: str) -> Corrupt:
        """Return the error for an unreadable field; ``rule`` is a sentence about valid values."""
        shown = repr(self._values.get(field, "missing"))[:80]
        return Corrupt(f"{self._what} metadata has an unreadable {field!r} ({shown}): {rule}")

    def uint(self, field: str, low: int = 0) -> int:
        """Return an integer from ``low`` to 2**64 - 1."""
        return self.as_uint(field, self._values.get(field), low)

    def optional_uint(self, field: str) -> int | None:
        """Return an integer from 0; None if absent."""
        value = self._values.get(field)
        return None if value is None else self.as_uint(field, value)

    def uints(self, field: str) -> tuple[int, ...]:
        """Return a list of integers from 0."""
        return tuple(self.as_uint(field, item) for item in self.items(field))

    def optional_uints(self, field: str) -> tuple[int, ...]:
        """Return a list of integers from 0; empty if absent."""
        return self.uints(field) if field in self._values else ()

    def optional_number(self, field: str) -> float | None:
        """Return a finite number from 0; None if absent."""
        value = self._values.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.corrupt(field, "it is a number from 0")
        try:
            return float(value)
        except OverflowError as error:
            raise self.corrupt(field, "it is a number that fits a float") from error

    def text(self, field: str) -> str:
        """Return a string of one or more printable characters."""
        return self.as_text(field, self._values.get(field))

    def optional_text(self, field: str) -> str:
        """Return a string; "" if absent, since older brokers do not write it."""
        return self.text(field) if field in self._values else ""

    def flag(self, field: str) -> bool:
        """Return a boolean; False if absent, since older brokers do not write it."""
        return self._values.get(field) is True

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(self.as_text(field, item) for item in self.items(field))

    def optional_texts(self, field: str) -> tuple[str, ...]:
        """Return a list of strings; empty if absent, since older brokers do not write it."""
        return self.texts(field) if field in self._values else ()

    def optional_bytes(self, field: str) -> bytes | None:
        """Return the bytes of base64; None if absent."""
        value = self._values.get(field)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.corrupt(field, "it is base64")
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise self.corrupt(field, "it is base64") from error

    def choice(self, field: str, kind: type[_Choice]) -> _Choice:
        """Return a member of an enumeration by its value."""
        try:
            return kind(self.text(field))
        except ValueError as error:
            raise self.corrupt(field, f"it is one of {', '.join(kind)}") from error

    def topic_name(self, field: str) -> TopicName:
        """Return a topic's name."""
        try:
            return TopicName.parse(self.text(field))
        except InvalidArgument as error:
            raise self.corrupt(field, str(error)) from error

    def key_range(self, field: str) -> KeyRange:
        """Return a range of slots from ``[lo, hi)``."""
        edges = self.uints(field)
        try:
            lo, hi = edges
            return KeyRange(lo, hi)
        except (ValueError, InvalidArgument) as error:
            raise self.corrupt(field, "it is [lo, hi) on the ring") from error

    def partitions(self, field: str) -> int | None:
        """Return a number of partitions; None if absent."""
        if field not in self._values:
            return None
        partitions = self.uint(field, low=1)
        if partitions > PARTITIONS_MAX:
            raise self.corrupt(field, f"a topic has at most {PARTITIONS_MAX}")
        return partitions

    def configs(self, field: str) -> Configs:
        """Return settings by name; empty if absent."""
        if field not in self._values:
            return ()
        found: dict[str, str] = {}
        for name, value in self.entries(field).items():
            if not name or not isinstance(value, str):
                raise self.corrupt(field, "it is an object whose values are strings")
            found[name] = value
        return configs_of(found)

    def id_ranges(self, field: str) -> IdRanges:
        """Return ranges of ids; empty if absent, since older brokers do not write them."""
        ranges = []
        for item in self.items(field) if field in self._values else ():
            match item:
                case [lo, hi]:
                    ranges.append((self.as_uint(field, lo), self.as_uint(field, hi)))
                case _:
                    raise self.corrupt(field, "each is [lo, hi)")
        try:
            return IdRanges(tuple(ranges))
        except InvalidArgument as error:
            raise self.corrupt(field, "they are ranges of ids, in order and apart") from error

    def sequences(self, field: str) -> tuple[ProducerSequence, ...]:
        """Return producers' sequences; empty if absent, since documents leave them out."""
        if field not in self._values:
            return ()
        found = []
        for item in self.items(field):
            if not isinstance(item, list) or len(item) != 3:
                raise self.corrupt(field, "each is [producer_id, producer_epoch, next_sequence]")
            producer_id, producer_epoch, next_sequence = (self.as_uint(field, part) for part in item)
            found.append(
                ProducerSequence(producer_id=producer_id, producer_epoch=producer_epoch, next_sequence=next_sequence)
            )
        return tuple(found)

    def entries(self, field: str) -> Mapping[str, object]:
        """Return an object."""
        value = self._values.get(field)
        if not isinstance(value, dict):
            raise self.corrupt(field, "it is an object")
        return value

    def numbered(self, field: str) -> dict[int, object]:
        """Return an object with numeric names, which JSON writes as strings."""
        found = {}
        for name, value in self.entries(field).items():
            if not (name.isascii() and name.isdigit() and len(name) <= UINT_DIGITS):
                raise self.corrupt(field, "its names are numbers")
            found[int(name)] = value
        return found

    def items(self, field: str) -> Sequence[object]:
        """Return a list."""
        value = self._values.get(field)
        if not isinstance(value, list):
            raise self.corrupt(field, "it is a list")
        return value

    def as_uint(self, field: str, value: object, low: int = 0) -> int:
        """Return ``value`` if it is an integer from ``low`` to 2**64 - 1."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= UINT_MAX:
            raise self.corrupt(field, f"it is an integer from {low} to {UINT_MAX}")
        return value

    def as_text(self, field: str, value: object) -> str:
        """Return ``value`` if it is a string of one or more printable characters."""
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self.corrupt(field, "it is a string of one or more printable characters")
        return value
