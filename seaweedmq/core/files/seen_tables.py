"""Steady evidence of how old the tables of a topic are at most. Pure.

A table is dated by the clock of the storage, which may have been behind when it was made: the table then looks old from
the first moment. A broker that listed the segment before and did not find the table yet knows better.
"""

from collections.abc import Mapping

from seaweedmq.model.config import US_PER_S

LISTINGS_MAX = 32
"""Listings that are remembered of each segment. Of more, every other one stays."""


class SeenTables:
    """Table ends that the listings of one topic have shown, by a steady clock in seconds."""

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[int, float]]] = {}
        """Segment -> (end offset of its last table, the last time when that was so), both rising."""

    def note(self, ends: Mapping[int, int], steady_s: float) -> None:
        """Take a listing: the end offset of each segment's last table, or its start offset if it has none."""
        for gone in self._seen.keys() - ends.keys():
            del self._seen[gone]
        for segment, end in ends.items():
            seen = self._seen.setdefault(segment, [])
            end = max(end, seen[-1][0]) if seen else end  # the last table may have been deleted
            if seen and seen[-1][0] == end:
                seen.pop()
            elif len(seen) == LISTINGS_MAX:
                del seen[::2]
            seen.append((end, steady_s))

    def absent(self, segment: int, steady_s: float) -> tuple[tuple[int, int], ...]:
        """Return ``(end offset, microseconds ago)``: tables that reach beyond the offset did not exist then."""
        return tuple((end, int((steady_s - at_s) * US_PER_S)) for end, at_s in self._seen.get(segment, ()))
