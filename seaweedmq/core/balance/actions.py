"""What the balancer wants done, as values. The leader does it, in the order given."""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.topic import TopicName


@dataclass(frozen=True, slots=True)
class Split:
    """Seal a segment and open two successors, ``[lo, at)`` and ``[at, hi)``."""

    topic: TopicName
    segment: int
    at: int
    """First slot of the upper successor; ``lo < at < hi``."""
    placement: tuple[tuple[str, ...], tuple[str, ...]]
    """Replicas of the lower and of the upper successor, the primary first."""
    reason: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Seal two neighbours and open one successor over both ranges."""

    topic: TopicName
    segments: tuple[int, int]
    """Ids; the lower range first."""
    placement: tuple[str, ...]
    """Replicas of the successor, the primary first."""
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """Seal a segment and open one successor over the same range on ``replicas``."""

    topic: TopicName
    segment: int
    replicas: tuple[str, ...]
    """The primary first."""
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is done, though something should be: the reason is for people."""

    topic: TopicName
    segment: int
    reason: str


Action: TypeAlias = Split | Merge | Move | Hold
