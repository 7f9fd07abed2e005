"""Sets of ids that mostly form ranges, as the bounds of the ranges."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from seaweedmq.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class IdRanges:
    """Ids in ``[lo, hi)`` of any range. Invariant: the ranges ascend, none is empty, and none touches the next."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        edges = [edge for lo_hi in self.ranges for edge in lo_hi]
        if any(a >= b for a, b in pairwise(edges)) or (edges and edges[0] < 0):
            raise InvalidArgument(
                f"{list(self.ranges)[:4]} are not ranges of ids: give each as [lo, hi), in order and apart"
            )

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda lo_hi: lo_hi[0])
        return at > 0 and number < self.ranges[at - 1][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def including(self, ids: Iterable[int]) -> "IdRanges":
        """Return the union with more ids."""
        joined: list[tuple[int, int]] = []
        for lo, hi in sorted([*self.ranges, *((number, number + 1) for number in ids)]):
            if joined and lo <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(hi, joined[-1][1])
            else:
                joined.append((lo, hi))
        return IdRanges(tuple(joined))


NO_IDS = IdRanges()
