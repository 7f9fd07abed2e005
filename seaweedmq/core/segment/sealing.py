"""Sealing of a segment: which replicas to query, in which order, and which log counts.

Safety: a record is acknowledged only when every replica holds it. So the log of any replica has all acknowledged
records, and a single replica that rejects the old epoch stops all further acknowledgements.

Steps of the leader, each falling back to the next:

1. The primary, while its lease lives: it stops, writes out and flushes.
2. The followers whose leases live: all are fenced, and the longest log among those that answered is written out.
3. The files, once the leases of all replicas have ended: no replica acknowledges any longer, and everything
acknowledged
   is in the files.

While a live replica does not answer, neither 2 nor 3 is possible, and the leader retries.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from seaweedmq.model.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class SealCandidates:
    """The replicas that can be queried, as broker ids."""

    primary: str | None
    followers: tuple[str, ...]
    files: bool
    """Whether the files can be trusted at once, because no replica is left."""


def seal_candidates(segment: Segment, live: Container[str]) -> SealCandidates:
    """Return the ways to seal an open segment while the leases of the ``live`` brokers hold."""
    alive = [r for r in segment.replicas if r in live]
    return SealCandidates(
        primary=segment.primary if segment.primary in live else None,
        followers=tuple(r for r in segment.replicas[1:] if r in live),
        files=not alive,
    )


def longest_first(ends: Mapping[str, int | None]) -> Sequence[tuple[str, int | None]]:
    """Order fenced followers for the write-out: the longest log first, which spares publishers most repeats; None last.

    Each log holds all acknowledged records.
    """
    return sorted(ends.items(), key=lambda item: (-1 if item[1] is None else item[1], item[0]), reverse=True)
