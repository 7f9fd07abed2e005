"""The rule that decides when frames of an open segment become committed while the storage is an object store.

It is the sibling of ``commit_rule``, which is for directories. What is **flushed** is in a bundle below which all
bundles are done, or in a log object that such a bundle refers to: no fence can exclude it. So flushed frames are
committed with or without a lease.

A topic that requires ``replicated`` commits earlier, when all replicas hold a frame in memory. Then a frame could be
lost only if the segment ended before one of them has put it into a bundle. So memory is enough only while

* the lease surely lives for ``LEASE_MARGIN`` of its TTL more: in that time the primary and the followers, which hold
  the same frames, put them into bundles. A leader fences a replica only after its lease has ended;
* the oldest frame that is not flushed is younger than ``UNFLUSHED_S_MAX``: a slow store bounds what memory alone holds.

This assumes that a PUT takes less than that margin when all leases end at once.
"""

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from seaweedmq.core.segment.commit_rule import RaiseHighWatermark, RetrySoon

LEASE_MARGIN: Final = 0.4
"""Share of the lease's TTL for which it must surely live."""
UNFLUSHED_S_MAX: Final = 5.0
"""Age in seconds of the oldest frame that is not flushed from which on memory is not enough."""


class LogEnds(Protocol):
    """The ends of a segment's log that the rule reads."""

    @property
    def committed(self) -> int:
        """The high watermark."""

    @property
    def flushed(self) -> int:
        """Offset below which bundles or log objects hold all frames."""

    @property
    def replicated(self) -> int:
        """Offset below which every follower holds all frames."""

    @property
    def end(self) -> int:
        """Next offset to assign."""


@dataclass(frozen=True, slots=True)
class BundleSoon:
    """An action: put what is not flushed into a bundle at once, without waiting for more."""


MemoryAction: TypeAlias = RaiseHighWatermark | BundleSoon | RetrySoon


def must_bundle(*, lease_left_s: float, ttl_s: float) -> bool:
    """Whether a replica, primary or follower, puts everything that it holds into bundles at once.

    A follower drops a run that it has not put yet once the primary has flushed it.
    """
    return lease_left_s < LEASE_MARGIN * ttl_s


def memory_is_enough(*, lease_left_s: float, ttl_s: float, unflushed_s: float) -> bool:
    """Whether a frame that all replicas hold may be committed before it is flushed.

    Args:
        lease_left_s: Time for which this broker's lease surely lives: from its last renewal as it was sent, by the
            clock of this machine. Read after the replicas have confirmed the frame.
        ttl_s: TTL of the lease.
        unflushed_s: Age of the oldest frame that is not flushed; 0 if there is none.
    """
    return not must_bundle(lease_left_s=lease_left_s, ttl_s=ttl_s) and unflushed_s < UNFLUSHED_S_MAX


def memory_rule(
    log: LogEnds,
    *,
    needs_flush: bool,
    lease_left_s: float,
    ttl_s: float,
    unflushed_s: float,
) -> list[MemoryAction]:
    """Return the actions to perform after progress of the log, or of its time.

    ``needs_flush``: the topic requires ``stored``, or one machine alone holds the frames. The other arguments are those
    of :func:`memory_is_enough`.
    """
    actions: list[MemoryAction] = []
    enough = memory_is_enough(lease_left_s=lease_left_s, ttl_s=ttl_s, unflushed_s=unflushed_s)
    committable = log.flushed if needs_flush or not enough else max(log.flushed, log.replicated)
    if committable > log.committed:
        actions.append(RaiseHighWatermark(committable))
    if needs_flush or log.end == log.flushed:
        return actions
    if must_bundle(lease_left_s=lease_left_s, ttl_s=ttl_s):
        actions.append(BundleSoon())
    # No event reports that the margin of the lease begins or ends, or that a frame is old.
    actions.append(RetrySoon())
    return actions
