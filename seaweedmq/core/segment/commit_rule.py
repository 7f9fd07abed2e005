"""When what is durable becomes visible: while the lease lives, or while the shared storage shows no fence.

A segment is ended by its primary, by fencing a follower, which the primary notices because nothing is written that a
follower does not hold, or from its files, once the leases of all its replicas have ended. Only the last happens behind
the back of a primary, and only once its lease has ended. So while the lease surely lives, what is durable is committed.

Afterwards a segment with followers goes on: whoever is about to believe the files puts a fence there first, and the
primary looks for it. What it had fsynced before a look that found none may be committed, at any time later: a fence put
after the look is followed by a reading that sees those frames. Fsynced and not just written, whatever the durability,
for two reasons. File systems of several machines promise to show others only that. And followers may have lost their
leases as well and drop what they hold: then the file is all there is, and the primary's machine may be next.

A segment without followers stops: nothing but the lease would keep it apart from its successor on a mount that does not
show at once what others did. So does one that lost a follower: nothing new is held by all, and nobody is there to
replace it.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias


class Positions(Protocol):
    """How far each stage of keeping has come: see ``segment_log``. Offsets."""

    @property
    def written(self) -> int: ...
    @property
    def flushed(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def committable(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RaiseHighWatermark:
    """Everything below ``offset`` becomes visible and is acknowledged."""

    offset: int


@dataclass(frozen=True, slots=True)
class RequestFsync:
    """Have what is written fsynced soon."""


@dataclass(frozen=True, slots=True)
class CheckFence:
    """Look for the fence, for what is below ``flushed``."""

    flushed: int


@dataclass(frozen=True, slots=True)
class ReportLeaseDoubt:
    """Publishers are to hear that nothing can be committed without the lease."""


@dataclass(frozen=True, slots=True)
class RetrySoon:
    """Ask again soon, for the lease may be back: nothing else would tell."""


CommitAction: TypeAlias = RaiseHighWatermark | RequestFsync | CheckFence | ReportLeaseDoubt | RetrySoon


def commit_rule(
    log: Positions, *, lease_alive: bool, stuck: bool, follower_lost: bool, looking: bool
) -> list[CommitAction]:
    """What is to be done now that something has progressed.

    Args:
        lease_alive: seen after the durable step: a broker that was frozen between the two must not acknowledge what its
            successor may not have.
        stuck: it does not go on without the lease.
        follower_lost: what others wait for is that it is replaced.
        looking: a look is under way.
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
        if not looking:
            actions.append(CheckFence(log.flushed))
    elif log.written > log.committed:
        actions.append(RequestFsync())
    if follower_lost or log.written > log.committed:
        actions.append(RetrySoon())
    return actions
