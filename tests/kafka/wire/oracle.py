"""Messages encoded and decoded by kio, another implementation of Kafka's schemas, as an oracle."""

import dataclasses
import datetime
import enum
import importlib
import io
import random
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import kio.static.primitive as primitive
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from seaweedmq.kafka.wire.messages import API
from seaweedmq.kafka.wire.versions import ADVERTISED

NOT_IN_KIO = {
    (API.PRODUCE, 0): "removed in Kafka 4; answered UNSUPPORTED_VERSION",
    (API.PRODUCE, 1): "removed in Kafka 4; answered UNSUPPORTED_VERSION",
    (API.PRODUCE, 2): "removed in Kafka 4; answered UNSUPPORTED_VERSION",
    (API.CREATE_TOPICS, 0): "removed in Kafka 4; golden bytes instead",
    (API.CREATE_TOPICS, 1): "removed in Kafka 4; golden bytes instead",
    (API.DELETE_TOPICS, 0): "removed in Kafka 4; golden bytes instead",
}
FOLDERS = {API.LIST_CONFIG_RESOURCES: "list_config_resources"}
RANGES = {
    primitive.i8: (-(2**7), 2**7 - 1), primitive.i16: (-(2**15), 2**15 - 1), primitive.i32: (-(2**31), 2**31 - 1),
    primitive.i64: (-(2**63), 2**63 - 1), primitive.u16: (0, 2**16 - 1),
}  # fmt: skip


def all_versions() -> Iterator[tuple[API, int]]:
    """Yield every advertised API in every version that kio also knows."""
    for api, versions in ADVERTISED.items():
        for version in range(versions.lowest, versions.highest + 1):
            if (api, version) not in NOT_IN_KIO:
                yield api, version


def entity_type(api: API, version: int, kind: str) -> Any:
    """Return kio's class of a request or response."""
    module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{kind}")
    words = "".join(word.capitalize() for word in api.name.split("_"))
    return getattr(module, words + kind.capitalize())


def encode(entity: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


def decode(api: API, version: int, kind: str, data: bytes) -> Any:
    found, size = entity_reader(entity_type(api, version, kind))(data, 0)
    assert size == len(data), f"{len(data) - size} bytes follow"
    return found


def make(of: Any, rng: random.Random) -> Any:
    """Return an entity with random content: nulls, empty and longer arrays, tagged fields set and not."""
    hints = typing.get_type_hints(of)
    values = {field.name: _value(hints[field.name], field, rng) for field in dataclasses.fields(of)}
    return of(**values)


def _value(hint: Any, field: Any, rng: random.Random) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [one for one in typing.get_args(hint) if one is not type(None)]
        is_tagged = "tag" in field.metadata
        if is_tagged and rng.random() < 0.5:
            return field.default if field.default is not dataclasses.MISSING else None
        nullable = type(None) in typing.get_args(hint)
        return None if nullable and rng.random() < 0.3 else _value(inner[0], field, rng)
    if origin is tuple:
        return tuple(_value(typing.get_args(hint)[0], field, rng) for _ in range(rng.choice((0, 1, 1, 2, 3))))
    if dataclasses.is_dataclass(hint):
        return make(hint, rng)
    return _primitive(hint, field, rng)


def _primitive(hint: Any, field: Any, rng: random.Random) -> Any:
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    for one, (low, high) in RANGES.items():
        if hint is one or (isinstance(hint, type) and issubclass(hint, one)):
            return rng.choice((one(low), one(high), one(rng.randint(low, high)), one(rng.randint(0, 100))))
    if hint is bool:
        return rng.random() < 0.5
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return rng.choice(list(ErrorCode))
    if isinstance(hint, type) and issubclass(hint, str):
        return rng.choice(("", "orders", "Größe", "x" * 200))
    if isinstance(hint, type) and issubclass(hint, bytes):
        return rng.choice((b"", b"\0", rng.randbytes(300)))
    if hint is uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128) | 1)
    if hint is float or field.metadata.get("kafka_type") == "float64":
        return primitive.f64(rng.random())
    match field.metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=rng.randint(0, 2**31 - 1))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(rng.randint(0, 2**31), tz=datetime.UTC)
        case other:
            raise AssertionError(f"{field.name}: {hint} {other}")
