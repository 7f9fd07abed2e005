"""Figures of one broker for metrics and views: frozen values, so that no reader changes or keeps a live part."""

from collections.abc import Callable
from dataclasses import dataclass

from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.segment.owned import OwnedSegments
from seaweedmq.core.segment.segment_lifecycle import SegmentStage
from seaweedmq.model.segment import ReplicaKey, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFigures:
    """An open segment at its primary. Each offset is the first one that has not reached the stage."""

    segment: Segment
    stage: SegmentStage
    flushed: int
    committed: int
    written: int
    replicated: int
    end: int
    cached_bytes: int
    trouble: str
    """Reason why the segment takes no records; "" if it takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFigures:
    """A segment at a follower. The offsets are those of ``SegmentFigures``."""

    key: ReplicaKey
    epoch: int
    flushed: int
    committed: int
    end: int
    held_bytes: int
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFigures:
    """A memory budget."""

    purpose: str
    used_bytes: int
    peak_bytes: int
    limit_bytes: int
    waiting: int
    """Callers that wait for memory."""


class Inspection:
    """The figures of one broker as of the moment of each call."""

    def __init__(
        self,
        *,
        owned: OwnedSegments,
        memory: BrokerMemory,
        incarnation: Callable[[], Incarnation | None],
        loop_holds: Callable[[], int],
    ) -> None:
        self._owned = owned
        self._memory = memory
        self._incarnation = incarnation
        self._loop_holds = loop_holds

    @property
    def leads(self) -> bool:
        """Whether this broker surely leads now."""
        incarnation = self._incarnation()
        return incarnation is not None and incarnation.leader.leading

    @property
    def loop_holds(self) -> int:
        """Number of times that the event loop was held since the start; the log has the stack of each."""
        return self._loop_holds()

    def segments(self) -> tuple[SegmentFigures, ...]:
        """Return the open segments whose primary is this broker."""
        return tuple(
            SegmentFigures(
                segment=owned.segment,
                stage=owned.stage,
                flushed=owned.log.flushed,
                committed=owned.log.committed,
                written=owned.log.written,
                replicated=owned.log.replicated,
                end=owned.log.end,
                cached_bytes=owned.log.cached_bytes,
                trouble=str(owned.rejection or owned.failure or ""),
            )
            for owned in self._owned.segments.values()
        )

    def replicas(self) -> tuple[ReplicaFigures, ...]:
        """Return the segments that this broker follows; none before it has joined."""
        incarnation = self._incarnation()
        replicas = {} if incarnation is None else incarnation.followers.replicas
        return tuple(
            ReplicaFigures(
                key=key,
                epoch=replica.epoch,
                flushed=replica.flushed,
                committed=replica.committed,
                end=replica.end,
                held_bytes=replica.held_bytes,
                is_fenced=replica.fenced,
            )
            for key, replica in replicas.items()
        )

    def budgets(self) -> tuple[BudgetFigures, ...]:
        """Return the memory budgets."""
        return tuple(
            BudgetFigures(
                purpose=budget.purpose,
                used_bytes=budget.used,
                peak_bytes=budget.peak,
                limit_bytes=budget.limit,
                waiting=budget.waiting,
            )
            for budget in self._memory.budgets
        )
