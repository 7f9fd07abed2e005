"""Progress of one follower over all segments that a primary replicates to it, and the rule for giving it up.

A broker that starts to follow thousands of segments at once answers for one after another. A primary that judged each
segment separately would give up the last ones, and their replacement would add work for the same broker.
"""

import math
from typing import Final

PATIENCE: Final = 5
"""Number of timeouts for which a follower may add nothing in one segment while it progresses in others."""


class FollowerProgress:
    """The most recent progress of a follower, in any segment."""

    def __init__(self) -> None:
        self.answered_s = -math.inf
        """Time of the follower's latest answer, by the event loop's clock."""

    def is_abandoned(self, timeout_began_s: float, waited_s: float, timeout_s: float) -> bool:
        """Whether the primary gives the follower up in a segment where it has made no progress.

        The timeout, the longest time without any progress, began at ``timeout_began_s`` of the event loop's clock and
        ends now; ``waited_s`` is the time since the follower last added frames of the segment.
        """
        # Half a timeout less: the timer of the last timeout may fire a moment early.
        return self.answered_s <= timeout_began_s or waited_s > (PATIENCE - 0.5) * timeout_s
