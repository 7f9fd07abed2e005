"""How much load, and for how long."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Group:
    """Consumers that share the topic."""

    name: str
    members: int
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One load. The first phase lasts ``seconds``; a tier that climbs adds clients and rate until something gives."""

    name: str
    seconds: float
    """Of a phase."""
    producers: int
    records_per_s: float
    """Of all producers together."""
    linger_ms: float = 5.0
    """Of the producers. Few records cost by the request: the shorter they are gathered, the more requests."""
    groups: tuple[Group, ...]
    partitions: int
    churn_s: float | None = None
    """Every so often a member of a group leaves and another joins."""
    steps_max: int = 1
    climb: float = 1.0
    """The rate of a step over that of the one before; a producer is added each time."""
    retention_share: float | None = None
    """Of the duration: how long records are kept, so that files come and go."""


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
                records_per_s=500.0,  # with the linger well below what two slow cores carry: what grows is no backlog
                linger_ms=200.0,
                groups=_TWO,
                partitions=12,
                churn_s=60.0,
                retention_share=0.05,
            ),
        )
    }
)
