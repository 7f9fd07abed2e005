"""Tiers: the load and its duration."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Group:
    """Number of consumers that share the topic."""

    name: str
    members: int
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One load. The first phase lasts ``seconds``; a climbing tier adds clients and rate until a limit is exceeded."""

    name: str
    seconds: float
    """Duration of a phase."""
    producers: int
    records_per_s: float
    """Rate of all producers together."""
    linger_ms: float = 5.0
    """Linger of the producers. At low rates the cost is per request: the shorter the linger, the more requests."""
    groups: tuple[Group, ...]
    partitions: int
    churn_s: float | None = None
    """Interval at which a member of a group leaves and another joins."""
    steps_max: int = 1
    climb: float = 1.0
    """Factor of the rate from step to step; a producer is added each time."""
    retention_share: float | None = None
    """Retention as a share of the duration, so that files come and go."""


_TWO = (Group("billing", 2, "cooperative-sticky"), Group("audit", 1, "range"))
_THREE = (Group("billing", 3, "cooperative-sticky"), Group("shipping", 2, "range"), Group("audit", 1, "range"))
TIERS: Mapping[str, Tier] = MappingProxyType(
    {
        tier.name: tier
        for tier in (
            Tier(
                name="quick",
                seconds=15.0,
                producers=2,
                records_per_s=1_000.0,
                groups=_TWO,
                partitions=6,
                churn_s=6.0,
            ),
            Tier(
                name="standard",
                seconds=300.0,
                producers=3,
                records_per_s=3_000.0,
                groups=_THREE,
                partitions=12,
                churn_s=30.0,
            ),
            Tier(
                name="stress",
                seconds=20.0,
                producers=2,
                records_per_s=2_000.0,
                groups=_TWO,
                partitions=12,
                steps_max=15,
                climb=1.4,
            ),
            Tier(
                name="endurance",
                seconds=3_600.0,
                producers=2,
                records_per_s=500.0,  # with the linger well below the limit of two slow cores: growth is not backlog
                linger_ms=200.0,
                groups=_TWO,
                partitions=12,
                churn_s=60.0,
                retention_share=0.05,
            ),
        )
    }
)
