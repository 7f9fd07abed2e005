"""Topic settings by name, as Kafka tools set them, and their effective values. Pure.

A topic keeps and shows any name and value. :func:`settings_of` reads the effective ones, which are checked before they
are kept. A setting with its own field in a topic is set there and never by name. Names and units are Kafka's, or begin
with ``seaweedmq``.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeAlias

from seaweedmq.errors import InvalidArgument

Configs: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, sorted by name, each name once."""

CONFIGS_MAX = 100
CONFIG_NAME_LENGTH_MAX = 249
CONFIG_VALUE_LENGTH_MAX = 4_096
CONFIGS_LENGTH_MAX = 16_384
"""Characters of all names and values of a topic. Each replacement of a segment rewrites the topic's record."""
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)

OWN_FIELDS: Mapping[str, str] = {
    "retention.ms": "retention_s (--retention)",
    "retention.bytes": "retention_bytes (--retention-bytes)",
    "seaweedmq.durability": "durability (--durability)",
    "seaweedmq.scaling": "scaling (--scaling)",
}
"""Name that is never kept by name -> the field and CLI option that set it."""

AUTO_COMPACT = "seaweedmq.auto.compact"
LOCAL_RETENTION_AS_USUAL, LOCAL_RETENTION_UNLIMITED = -2, -1
ROLL_BYTES_MIN = 64 * 1024
"""Lowest effective ``segment.bytes``: the preamble of a log file may be as large."""


class TimestampType(StrEnum):
    """The source of a record's timestamp."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The effective values of settings by name. None: the broker's own setting applies."""

    roll_age_s: float | None = None
    """``segment.ms``: age at which a log file is sealed."""
    roll_bytes: int | None = None
    """``segment.bytes``: size at which a log file is sealed, at most the broker's own limit."""
    log_kept_s: float | None = None
    """``local.retention.ms``: time that log files stay once they are in tables. Infinity: as long as the tables. None:
    unset, or -2."""
    message_bytes_max: int | None = None
    """``max.message.bytes``: size of one Kafka record batch."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """``message.timestamp.type`` of Kafka record batches."""
    ahead_max_ms: int = 3_600_000
    """``message.timestamp.after.max.ms``: limit on a Kafka record's timestamp after the broker's clock."""
    behind_max_ms: int = (1 << 63) - 1
    """``message.timestamp.before.max.ms``: limit on a Kafka record's timestamp before the broker's clock."""
    compacts: bool = False
    """Whether ``cleanup.policy`` has compact: every Kafka record needs a key."""
    expires: bool = True
    """Whether ``cleanup.policy`` has delete: retention removes records."""
    auto_compact: bool = False
    """``seaweedmq.auto.compact``: whether brokers merge small tables in the background."""
    insync_replicas_min: int = 1
    """``min.insync.replicas``: a segment with fewer replicas rejects Kafka batches with acks=all."""


def configs_of(values: Mapping[str, str]) -> Configs:
    """Return settings in the order in which a topic keeps them."""
    return tuple(sorted(values.items()))


def check_configs(configs: Configs, replicas: int) -> None:
    """Check the settings of a topic with ``replicas`` replicas.

    Raises InvalidArgument if a name, a value, their number, their total length or their order breaks a rule.
    """
    if len(configs) > CONFIGS_MAX:
        raise InvalidArgument(f"{len(configs)} settings by name: a topic has at most {CONFIGS_MAX}")
    for name, value in configs:
        _check_form(name, value)
        if name in OWN_FIELDS:
            raise InvalidArgument(f"{name} is not set by name: set {OWN_FIELDS[name]} instead")
        if name in _PARSERS:
            _PARSERS[name](value)
    names = [name for name, _ in configs]
    if names != sorted(set(names)):
        raise InvalidArgument("settings by name are out of order or not unique: name each once, sorted")
    length = sum(len(name) + len(value) for name, value in configs)
    if length > CONFIGS_LENGTH_MAX:
        raise InvalidArgument(
            f"settings by name have {length} characters in total: a topic has at most {CONFIGS_LENGTH_MAX}"
        )
    wanted = settings_of(configs).insync_replicas_min
    if wanted > replicas:
        raise InvalidArgument(
            f"min.insync.replicas of {wanted} exceeds {replicas} replica{'s' if replicas > 1 else ''}, so nothing "
            "could be produced: give at most as many"
        )


@lru_cache(maxsize=1_024)
def settings_of(configs: Configs) -> TopicSettings:
    """Return the effective values; one that this version cannot read, checked by another version, has no effect."""
    acting: dict[str, Any] = {}
    for name, value in configs:
        if name in _PARSERS:
            try:
                acting |= _PARSERS[name](value)
            except InvalidArgument:
                continue
    return TopicSettings(**acting)


def _check_form(name: str, value: str) -> None:
    if len(name) > CONFIG_NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"setting name {name[:40]!r} is not allowed: use 1 to {CONFIG_NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ -"
        )
    if len(value) > CONFIG_VALUE_LENGTH_MAX or not value.isprintable():
        raise InvalidArgument(
            f"value {value[:40]!r} of {name} has {len(value)} characters: use up to {CONFIG_VALUE_LENGTH_MAX} "
            "printable characters"
        )


def _integer(name: str, low: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        text = value.strip()
        if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII) or not low <= int(text) < 1 << 63:
            raise InvalidArgument(f"{name} is {value[:40]!r}: give a whole number from {low} on")
        return int(text)

    return read


def _field(field: str, read: Callable[[str], object]) -> Callable[[str], dict[str, object]]:
    return lambda value: {field: read(value)}


def _log_kept_s(value: str) -> float | None:
    kept_ms = _integer("local.retention.ms", LOCAL_RETENTION_AS_USUAL)(value)
    if kept_ms == LOCAL_RETENTION_AS_USUAL:
        return None
    return math.inf if kept_ms == LOCAL_RETENTION_UNLIMITED else kept_ms / 1_000


def _boolean(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise InvalidArgument(f"{name} is {value[:40]!r}: give true or false")
    return value.strip().lower() == "true"


def _timestamp_type(value: str) -> TimestampType:
    try:
        return TimestampType(value)
    except ValueError:
        allowed = " or ".join(TimestampType)
        raise InvalidArgument(f"message.timestamp.type is {value[:40]!r}: give {allowed}") from None


def _cleanup(value: str) -> dict[str, object]:
    policies = {policy.strip() for policy in value.split(",") if policy.strip()}
    if not policies <= {"compact", "delete"}:
        raise InvalidArgument(f"cleanup.policy is {value[:40]!r}: give delete, compact, both or nothing")
    return {"compacts": "compact" in policies, "expires": "delete" in policies}


_PARSERS: Mapping[str, Callable[[str], dict[str, object]]] = {
    "segment.ms": _field("roll_age_s", lambda value: _integer("segment.ms", 1)(value) / 1_000),
    "segment.bytes": _field("roll_bytes", lambda value: max(ROLL_BYTES_MIN, _integer("segment.bytes", 1)(value))),
    "local.retention.ms": _field("log_kept_s", _log_kept_s),
    "max.message.bytes": _field("message_bytes_max", _integer("max.message.bytes", 0)),
    "message.timestamp.after.max.ms": _field("ahead_max_ms", _integer("message.timestamp.after.max.ms", 0)),
    "message.timestamp.before.max.ms": _field("behind_max_ms", _integer("message.timestamp.before.max.ms", 0)),
    "message.timestamp.type": _field("timestamp_type", _timestamp_type),
    "cleanup.policy": _cleanup,
    AUTO_COMPACT: _field("auto_compact", lambda value: _boolean(AUTO_COMPACT, value)),
    "min.insync.replicas": _field("insync_replicas_min", _integer("min.insync.replicas", 1)),
}
"""Setting name -> parser of its value into fields of ``TopicSettings``; it raises InvalidArgument."""
