"""Steady evidence of how old the tables of a topic are at most. Pure.

A table is dated by the clock of the storage, which may have been behind when it was made: the table then looks old from
the first moment. A broker that listed the segment before and did not find the table yet knows better. One that has just
taken the topic over knows nothing, and waits for the doubt to pass (``core.clock_doubt``).
"""

from collections.abc import Mapping

from seaweedmq.model.config import US_PER_S

LISTINGS_MAX = 32
"""Listings that are remembered of each segment. Of more, every other one stays."""
NOTHING = -1
"""End of the last table of a segment that did not exist."""


class SeenTables:
    """Table ends that the listings of one topic have shown, by a steady clock in seconds."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        """Steady time of the first listing."""
        self._last_s = 0.0
        """Steady time of the last listing."""
        self._seen: dict[int, list[tuple[int, float]]] = {}
        """Segment -> (end offset of its last table, the last time when that was so), both rising."""

    def watched_s(self, steady_s: float) -> float:
        """Return for how long the topic has been listed, seconds; 0 before the first listing."""
        return 0.0 if self._since_s is None else steady_s - self._since_s

    def note(self, ends: Mapping[int, int], steady_s: float) -> None:
        """Take a listing: the end offset of each segment's last table, or its start offset if it has none."""
        for gone in self._seen.keys() - ends.keys():
            del self._seen[gone]
        for segment, end in ends.items():
            seen = self._seen.setdefault(segment, self._before_it_was_there())
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
        seen = self._seen.get(segment) or self._before_it_was_there()
        return tuple((end, int((steady_s - at_s) * US_PER_S)) for end, at_s in seen)

    def _before_it_was_there(self) -> list[tuple[int, float]]:
        """Return the evidence about a segment that the last listing did not have: it had no tables then."""
        return [] if self._since_s is None else [(NOTHING, self._last_s)]
