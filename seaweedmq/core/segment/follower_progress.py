"""Progress of one follower over all segments that a primary replicates to it, and when the primary gives it up.

A broker that has thousands of segments to begin at once answers for one after another. A primary that judged each of
them by itself would give up the last ones, and their replacement would be more work for the same broker.
"""

import math
from typing import Final

PATIENCE: Final = 5
"""Timeouts for which a follower may hold nothing of one segment while it progresses in others."""


class FollowerProgress:
    """The last sign of progress of a follower, in any segment."""

    def __init__(self) -> None:
        self.answered_s = -math.inf
        """Time of its last answer, by the event loop's clock."""

    def is_given_up(self, timeout_began_s: float, waited_s: float, timeout_s: float) -> bool:
        """Whether the follower is given up in a segment of which it has held nothing more.

        Args:
            timeout_began_s: begin of the timeout that ends now, by the event loop's clock.
            waited_s: time since the follower held something more of the segment.
            timeout_s: longest time without any progress.
        """
        # Half a timeout less: the timer that ends the last one may come a moment early.
        return self.answered_s <= timeout_began_s or waited_s > (PATIENCE - 0.5) * timeout_s
