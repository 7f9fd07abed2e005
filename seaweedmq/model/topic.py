"""Topics: their names, their settings and their record in etcd."""

import re
from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.errors import InvalidArgument, NotFound
from seaweedmq.model.id_ranges import NO_IDS, IdRanges
from seaweedmq.model.ring import RING_SLOTS_MAX, KeyRange
from seaweedmq.model.topic_settings import Configs, TopicSettings, settings_of

NAME_LENGTH_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
TOPIC_NAME_LENGTH_MAX = 249
"""Kafka's limit on a topic name; the name of a folder may be a little longer."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
"""Kafka's topic names, without those of hidden folders."""
_WHY = "(names become folders and etcd keys, so that every file system and tool can read them)"


def check_name(what: str, name: str) -> str:
    """Return ``name`` if it is a legal name of a namespace or group, as ``what`` calls it in the error.

    Raises InvalidArgument if it is empty or too long, or has a character that is not allowed.
    """
    rule = f"use 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and begin with a letter or digit {_WHY}"
    return _checked(what, name, _NAME, NAME_LENGTH_MAX, rule)


def _check_topic_name(name: str) -> str:
    rule = f"use 1 to {TOPIC_NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ - and do not begin with a dot {_WHY}"
    return _checked("topic name", name, _TOPIC_NAME, TOPIC_NAME_LENGTH_MAX, rule)


def _checked(what: str, name: str, allowed: re.Pattern[str], length_max: int, rule: str) -> str:
    if len(name) > length_max:
        raise InvalidArgument(f"{what} {name[:24]!r}... has {len(name)} characters: {rule}")
    if not allowed.fullmatch(name):
        raise InvalidArgument(f"{what} {name!r} is not allowed: {rule}")
    return name


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's name with its namespace: ``namespace/name``."""

    namespace: str
    name: str

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        _check_topic_name(self.name)

    @classmethod
    def parse(cls, text: str) -> "TopicName":
        """Parse ``namespace/name``, or raise InvalidArgument if the text is not two legal names with one slash."""
        namespace, slash, name = text.partition("/")
        if not slash or "/" in name:
            raise InvalidArgument(f"topic {text[:200]!r} is not NAMESPACE/NAME: write it like shop/orders")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def topic_recreated(name: TopicName) -> NotFound:
    """Return the error for a caller that knows an earlier topic of this name."""
    return NotFound(f"topic {name} was deleted, and created again: open a new publisher or subscriber")


class Durability(StrEnum):
    """The condition on which a record is acknowledged."""

    REPLICATED = "replicated"
    """Every replica holds the record, which, on file storage, is written; the flush follows within
    ``flush_interval_s``."""
    STORED = "stored"
    """The record is flushed."""


class Scaling(StrEnum):
    """Whether the cluster may split and merge the topic's segments by load."""

    AUTO = "auto"
    FIXED = "fixed"


PARTITIONS_MAX = 4_096
"""Partitions of one topic. Each is a segment."""
TOPICS_AT_ONCE_MAX = 250
"""Topics of one call that creates topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A user's request for a new topic."""

    name: TopicName
    segments: int = 1
    partitions: int | None = None
    """Number of partitions, see ``Topic.partitions``. ``segments`` then has no effect."""
    replicas: int = 1
    durability: Durability | None = None
    """Durability. None: ``stored`` with one replica, ``replicated`` with more."""
    scaling: Scaling | None = None
    """Scaling. None: ``fixed`` with partitions, ``auto`` without."""
    schema: bytes | None = None
    """Arrow schema as an IPC schema message; None for a plain topic."""
    retention_s: float | None = None
    retention_bytes: int | None = None
    target_bytes_per_s: float | None = None
    """Target rate of one segment; None: the cluster's ``segment_target_bytes_per_s``."""
    target_records_per_s: float | None = None
    configs: Configs = ()
    """Settings by name, see ``Topic.configs``."""

    @property
    def first_segments(self) -> int:
        """The number of segments at creation."""
        return self.partitions or self.segments


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """Changes of ``topic alter``: None leaves a setting as it is; 0 removes a retention limit or a target."""

    partitions: int | None = None
    """New number of partitions; it can only grow."""
    durability: Durability | None = None
    scaling: Scaling | None = None
    retention_s: float | None = None
    retention_bytes: int | None = None
    target_bytes_per_s: float | None = None
    target_records_per_s: float | None = None
    configs: Configs | None = None
    """Complete new settings by name: a name that is missing is unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A deleted topic whose files may still exist."""

    name: TopicName
    uid: int
    primaries: tuple[str, ...] = ()
    """Broker ids of the primaries of its open segments, which may acknowledge records until they learn of the deletion.
    Also those of the coordinators of Kafka groups, which may commit offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowWatermarks:
    """The manual record deletions of a topic, as etcd records them beside the topic."""

    name: TopicName
    uid: int
    offsets: tuple[int, ...]
    """Low watermark of each partition, see ``Topic.low_watermarks``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as recorded in etcd."""

    name: TopicName
    uid: int
    """Random 63 bits; distinguishes a topic from an earlier one of the same name. Every log file holds it."""
    replicas: int
    durability: Durability
    scaling: Scaling
    schema: bytes | None
    retention_s: float | None
    retention_bytes: int | None
    next_segment: int
    """Id of the next segment; ids are never reused."""
    created_us: int
    """Wall clock, microseconds since 1970 UTC."""
    target_bytes_per_s: float | None = None
    """Target rate of one segment; None: the cluster's ``segment_target_bytes_per_s``."""
    target_records_per_s: float | None = None
    segments_min: int = 1
    """Number of segments at which merging by load stops: the number at creation."""
    adopting: bytes | None = None
    """Schema that a plain topic adopts if it is empty. Until that is decided, brokers append no plain frame."""
    pruned: IdRanges = NO_IDS
    """Pruned segments: sealed long ago and without records. Files of them are not read, and no record of them may be
    acknowledged. Clients do not receive the set: an id below ``next_segment`` without a description is pruned."""
    partitions: int | None = None
    """Number of partitions that publishers choose from, as in Kafka. The ring has one slot for each, and each is a
    segment. None: keys spread over a ring of ``RING_SLOTS_MAX`` slots. It can only grow."""
    configs: Configs = ()
    """Settings by name without a field of their own. A topic keeps any name; ``settings`` has the effective values."""
    low_watermarks: tuple[int, ...] = ()
    """Offset of each partition below which records were deleted manually; missing partitions at the end have 0. Etcd
    keeps them apart, see ``LowWatermarks``."""

    @property
    def ring(self) -> KeyRange:
        """All slots of the topic, which its open segments divide."""
        return KeyRange(0, self.partitions or RING_SLOTS_MAX)

    @property
    def has_retention(self) -> bool:
        """Whether records are removed by age, by size or manually."""
        return self.expires or bool(self.low_watermarks)

    @property
    def expires(self) -> bool:
        """Whether retention removes records by age or by size."""
        return (self.retention_s is not None or self.retention_bytes is not None) and self.settings.expires

    def low_watermark(self, slots: KeyRange) -> int:
        """Return the offset, maybe beyond its end, below which a segment's records were deleted manually."""
        marks = self.low_watermarks
        return min(marks[slots.lo : slots.hi]) if slots.hi <= len(marks) else 0

    @property
    def settings(self) -> TopicSettings:
        """The effective values of ``configs``."""
        return settings_of(self.configs)

    @property
    def schema_version(self) -> int:
        """The schema version: 0 for a plain topic, 1 once it has a schema."""
        return 0 if self.schema is None else 1
