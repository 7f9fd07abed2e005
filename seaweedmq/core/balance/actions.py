"""The balancer's decisions as values, which the leader performs in the order given."""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.topic import TopicName


@dataclass(frozen=True, slots=True)
class Split:
    """A decision to seal a segment and open two successors, ``[lo, at)`` and ``[at, hi)``."""

    topic: TopicName
    segment: int
    at: int
    """First slot of the upper successor; ``lo < at < hi``."""
    placement: tuple[tuple[str, ...], tuple[str, ...]]
    """Replicas of the lower and of the upper successor, the primary first."""
    reason: str


@dataclass(frozen=True, slots=True)
class Merge:
    """A decision to seal two adjacent segments and open one successor over both ranges."""

    topic: TopicName
    segments: tuple[int, int]
    """Ids of the two segments; the lower range first."""
    placement: tuple[str, ...]
    """Replicas of the successor, the primary first."""
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """A decision to seal a segment and open one successor over the same range on ``replicas``."""

    topic: TopicName
    segment: int
    replicas: tuple[str, ...]
    """Replicas of the successor, the primary first."""
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A record that nothing is done although a change is due, with the reason for people."""

    topic: TopicName
    segment: int
    reason: str


Action: TypeAlias = Split | Merge | Move | Hold
