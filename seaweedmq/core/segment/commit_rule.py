"""The rule that decides when durable frames of an open segment become committed.

A segment ends in one of three ways: its primary seals it, the leader fences a follower, or the leader recovers it from
its files after the leases of all its replicas have ended. The primary notices a fenced follower, since it writes
nothing that a follower does not hold. Only a recovery from files is invisible to the primary, and it begins only after
the primary's lease has ended. So while the lease surely lives, the primary commits what is durable.

Without a valid lease, a segment with followers keeps committing. The leader writes a fence before it trusts the files,
and the primary checks for that fence. Frames that were flushed before a check that found no fence may be committed at
any later time: a fence written after the check is followed by a read that sees those frames. The frames must be
flushed, not only written, with any durability, for two reasons. File systems shared by several machines guarantee
visibility to others only after an fsync. And followers may have lost their leases as well and dropped what they hold:
then the file is the only copy, and the primary's machine may fail next.

A segment without followers stops committing: only the lease separates it from its successor on a mount that does not
show the writes of others at once. A segment that lost a follower stops as well: no new frame is held by all replicas,
and no leader is available to replace the segment.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.core.segment.segment_log import SegmentLog


@dataclass(frozen=True, slots=True)
class RaiseHighWatermark:
    """An action: make everything below ``offset`` visible and acknowledge it."""

    offset: int


@dataclass(frozen=True, slots=True)
class RequestFsync:
    """An action: fsync what is written soon."""


@dataclass(frozen=True, slots=True)
class CheckFence:
    """An action: check for a fence, so that everything below ``flushed`` can be committed."""

    flushed: int


@dataclass(frozen=True, slots=True)
class ReportLeaseDoubt:
    """An action: report to publishers that nothing can be committed without the lease."""


@dataclass(frozen=True, slots=True)
class RetrySoon:
    """An action: re-evaluate the rule soon, since no event reports a recovered lease."""


CommitAction: TypeAlias = RaiseHighWatermark | RequestFsync | CheckFence | ReportLeaseDoubt | RetrySoon


def commit_rule(
    log: SegmentLog, *, lease_alive: bool, stuck: bool, follower_lost: bool, is_checking: bool
) -> list[CommitAction]:
    """Return the actions to perform after progress of the log.

    ``lease_alive`` is read after the durable step: a broker that was frozen between the two must not acknowledge what
    its successor may lack. ``stuck``: the segment cannot commit without the lease. ``follower_lost``: frames wait for
    the segment's replacement. ``is_checking``: a fence check is running.
    """
    actions: list[CommitAction] = []
    if lease_alive:
        if log.committable > log.committed:
            actions.append(RaiseHighWatermark(log.committable))
        if follower_lost:
            actions.append(RetrySoon())
        return actions
    if stuck:
        if follower_lost or log.committable > log.committed:
            actions.append(ReportLeaseDoubt())
    elif log.flushed > log.committed:
        if not is_checking:
            actions.append(CheckFence(log.flushed))
    elif log.written > log.committed:
        actions.append(RequestFsync())
    if follower_lost or log.written > log.committed:
        actions.append(RetrySoon())
    return actions
