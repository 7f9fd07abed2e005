"""Sealing a segment: whom to ask, in which order, and which log counts. The leader's shell asks and comes back.

Why it is safe: a record is acknowledged only when every replica holds it. So the log of any replica has all
acknowledged records, and a single replica that refuses the old epoch stops all further acknowledgements.

Steps, each falling back to the next:
1. the primary, while its lease lives: it stops, writes out and fsyncs;
2. the followers whose leases live: all are fenced, the longest log among those that answered is written out;
3. the files, once the leases of all replicas have ended: nobody acknowledges any more, and what was acknowledged
   is in the files.
With somebody alive who does not answer, neither 2 nor 3 holds, and the leader tries again.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from seaweedmq.model.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class SealCandidates:
    """Which replicas can be asked. Broker ids."""

    primary: str | None
    followers: tuple[str, ...]
    files: bool
    """Whether the files may be believed at once, because no replica is left."""


def seal_candidates(segment: Segment, live: Container[str]) -> SealCandidates:
    """What can be done about an open segment while the leases of ``live`` hold."""
    alive = [r for r in segment.replicas if r in live]
    return SealCandidates(
        primary=segment.primary if segment.primary in live else None,
        followers=tuple(r for r in segment.replicas[1:] if r in live),
        files=not alive,
    )


def longest_first(ends: Mapping[str, int | None]) -> Sequence[tuple[str, int | None]]:
    """Fenced followers in the order to write out from: the longest log first, those without a log last.

    Every one of them holds all acknowledged records; the longest spares publishers the most repeats.
    """
    return sorted(ends.items(), key=lambda item: (-1 if item[1] is None else item[1], item[0]), reverse=True)
