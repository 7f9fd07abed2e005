"""Topics: their names, and what a user chose for them."""

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
"""Kafka's bound; a folder's name may be a little longer."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
"""Those of Kafka, but for hidden folders."""
_WHY = "(names become folders and etcd keys, so that every file system and tool can read them)"


def check_name(what: str, name: str) -> str:
    """Return ``name`` if it may name a namespace or group; ``what`` goes into the error.

    Raises:
        InvalidArgument: the name is empty, too long, or has a character that is not allowed.
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
    """``namespace/name``."""

    namespace: str
    name: str

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        _check_topic_name(self.name)

    @classmethod
    def parse(cls, text: str) -> "TopicName":
        """Read ``namespace/name``.

        Raises:
            InvalidArgument: not two legal names with one slash between.
        """
        namespace, slash, name = text.partition("/")
        if not slash or "/" in name:
            raise InvalidArgument(f"topic {text[:200]!r} is not NAMESPACE/NAME: write it like shop/orders")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def topic_recreated(name: TopicName) -> NotFound:
    """What is told whoever knows an earlier topic of this name."""
    return NotFound(f"topic {name} was deleted, and created again: open a new publisher or subscriber")


class Durability(StrEnum):
    """When a record counts as kept."""

    REPLICATED = "replicated"
    """Every replica holds it and, on file storage, it is in the file; fsync follows within the flush interval."""
    STORED = "stored"
    """It is fsynced."""


class Scaling(StrEnum):
    """Whether the cluster may split and merge the topic's segments by itself."""

    AUTO = "auto"
    FIXED = "fixed"


PARTITIONS_MAX = 4_096
"""Of one topic. Each is a segment."""
TOPICS_AT_ONCE_MAX = 250
"""Of one call that creates topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """What a user asks for when creating a topic."""

    name: TopicName
    segments: int = 1
    partitions: int | None = None
    """See ``Topic.partitions``. Then ``segments`` means nothing."""
    replicas: int = 1
    durability: Durability | None = None
    """None: ``stored`` with one replica, ``replicated`` with more."""
    scaling: Scaling | None = None
    """None: ``fixed`` with partitions, ``auto`` without."""
    schema: bytes | None = None
    """Arrow schema as an IPC schema message; None for a plain topic."""
    retention_s: float | None = None
    retention_bytes: int | None = None
    target_bytes_per_s: float | None = None
    """What one segment should carry; None: the cluster's ``segment_target_bytes_per_s``."""
    target_records_per_s: float | None = None
    configs: Configs = ()
    """See ``Topic.configs``."""

    @property
    def first_segments(self) -> int:
        """How many it begins with."""
        return self.partitions or self.segments


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """What ``topic alter`` changes. None leaves a setting as it is; 0 removes a retention limit or an own target."""

    partitions: int | None = None
    """As many as there are to be: they only grow."""
    durability: Durability | None = None
    scaling: Scaling | None = None
    retention_s: float | None = None
    retention_bytes: int | None = None
    target_bytes_per_s: float | None = None
    target_records_per_s: float | None = None
    configs: Configs | None = None
    """All of them as they are to be: what is left out is set no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A topic that was deleted, and whose files may still be there."""

    name: TopicName
    uid: int
    primaries: tuple[str, ...] = ()
    """Broker ids of the primaries of its open segments, which may acknowledge records until they learn of the deletion,
    and of the coordinators of Kafka's groups, which may commit offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowWatermarks:
    """What of a topic was deleted by hand, as recorded in etcd beside the topic."""

    name: TopicName
    uid: int
    offsets: tuple[int, ...]
    """See ``Topic.low_watermarks``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as recorded in etcd."""

    name: TopicName
    uid: int
    """Random 63 bits; tells a topic from an earlier one of the same name. Written into every log file."""
    replicas: int
    durability: Durability
    scaling: Scaling
    schema: bytes | None
    retention_s: float | None
    retention_bytes: int | None
    next_segment: int
    """Id the next segment will get; ids are never used twice."""
    created_us: int
    """Wall clock, microseconds since 1970 UTC."""
    target_bytes_per_s: float | None = None
    """What one segment should carry; None: the cluster's ``segment_target_bytes_per_s``."""
    target_records_per_s: float | None = None
    segments_min: int = 1
    """Merging by load stops here: as many as were asked for at the creation."""
    adopting: bytes | None = None
    """The schema that a plain topic gets if it is empty. No plain frame is appended until that is decided."""
    pruned: IdRanges = NO_IDS
    """Segments that are forgotten, since they were sealed long ago and hold nothing any more. What turns up of them is
    not read, and nobody may acknowledge anything there. Clients are not told: an id that is neither described nor to
    come is one of these."""
    partitions: int | None = None
    """How many partitions publishers choose from, as those of Kafka do: the ring has a slot for each, and each is a
    segment. None: keys are spread over a ring of ``RING_SLOTS_MAX`` slots. Only grows."""
    configs: Configs = ()
    """What was set by name and has no field of its own. Any name is kept; see ``settings`` for what acts."""
    low_watermarks: tuple[int, ...] = ()
    """By partition, the offset below which records were deleted by hand; 0 of those that are left out at the end. Kept
    apart, see ``LowWatermarks``."""

    @property
    def ring(self) -> KeyRange:
        """All of its slots, which its open segments share out among them."""
        return KeyRange(0, self.partitions or RING_SLOTS_MAX)

    @property
    def has_retention(self) -> bool:
        """Whether records are removed: by age, by size, or by hand."""
        return self.expires or bool(self.low_watermarks)

    @property
    def expires(self) -> bool:
        """Whether retention removes records by age or by size."""
        return (self.retention_s is not None or self.retention_bytes is not None) and self.settings.expires

    def low_watermark(self, slots: KeyRange) -> int:
        """Whatever lies below in a segment of these slots was deleted by hand. May be above the segment's end."""
        marks = self.low_watermarks
        return min(marks[slots.lo : slots.hi]) if slots.hi <= len(marks) else 0

    @property
    def settings(self) -> TopicSettings:
        """What acts of ``configs``."""
        return settings_of(self.configs)

    @property
    def schema_version(self) -> int:
        """0 for a plain topic, 1 once it has a schema."""
        return 0 if self.schema is None else 1
