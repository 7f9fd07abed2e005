"""Steady-clock evidence of the maximum age of a topic's tables.

A table is dated by the clock of the storage, which may have been behind: the table then looks old from the start. A
broker that listed the segment earlier without the table has better evidence. A broker that has just taken the topic
over has none, and waits until the doubt has passed (``core.clock_doubt``).
"""

from collections.abc import Mapping

from seaweedmq.model.config import US_PER_S

LISTINGS_MAX = 32
"""Listings remembered per segment. Beyond it, every other one is dropped."""
NOTHING = -1
"""Last table end of a segment that did not exist."""


class SeenTables:
    """The table ends that the listings of one topic have shown, by a steady clock in seconds."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        """Steady time of the first listing."""
        self._last_s = 0.0
        """Steady time of the last listing."""
        self._seen: dict[int, list[tuple[int, float]]] = {}
        """Segment -> (end offset of its last table, last time of a listing that showed it), both rising."""

    def watched_s(self, steady_s: float) -> float:
        """Return the seconds for which the topic has been listed; 0 before the first listing."""
        return 0.0 if self._since_s is None else steady_s - self._since_s

    def note(self, ends: Mapping[int, int], steady_s: float) -> None:
        """Record a listing: the end offset of each segment's last table, or its start offset if it has none."""
        for gone in self._seen.keys() - ends.keys():
            del self._seen[gone]
        for segment, end in ends.items():
            seen = self._seen.setdefault(segment, self._evidence_before())
            end = max(end, seen[-1][0]) if seen else end  # the last table may have been deleted
            if seen and seen[-1][0] == end:
                seen.pop()
            elif len(seen) == LISTINGS_MAX:
                del seen[::2]
            seen.append((end, steady_s))
        self._since_s = steady_s if self._since_s is None else self._since_s
        self._last_s = steady_s

    def absent(self, segment: int, steady_s: float) -> tuple[tuple[int, int], ...]:
        """Return ``(end offset, microseconds ago)``: tables that reach beyond the offset did not exist then."""
        seen = self._seen.get(segment) or self._evidence_before()
        return tuple((end, int((steady_s - at_s) * US_PER_S)) for end, at_s in seen)

    def _evidence_before(self) -> list[tuple[int, float]]:
        """Return the evidence about a segment that the last listing lacked: it had no tables then."""
        return [] if self._since_s is None else [(NOTHING, self._last_s)]
