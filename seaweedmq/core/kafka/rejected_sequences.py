"""What connections were refused of Kafka's producers, whose clients have several frames under way, in order.

A producer that a partition does not know may begin anywhere. So if its first frame is refused, because its broker is
not ready to lead a partition yet, those behind it must not be where it begins, or the first could never be stored any
more. Nor may they be told that they are out of order: librdkafka would begin a new epoch, and store again what it has
stored and was not told of.

A client sends such a frame again within moments, or gives it up. One that does not come again is forgotten, or
everything behind it would be refused without an end.
"""

from collections import OrderedDict
from collections.abc import Hashable

from seaweedmq.model.producer import unwrapped

REJECTED_MAX = 100_000
"""What counts are those of the last moments: a client soon sends again what was refused."""
REJECTED_S = 60.0
"""Time within which a client sends a refused frame again: librdkafka and Java's client wait a second at most between
two attempts, and what was on its way behind the frame arrives within their request timeouts of 30 s."""


class RejectedSequences:
    """By connection, partition and producer: the first frame that was refused, until it, or one before it, comes
    again."""

    def __init__(self, refused_max: int = REJECTED_MAX) -> None:
        self._refused: OrderedDict[Hashable, tuple[int, int, float]] = OrderedDict()
        """Epoch, sequence and time, the longest refused first."""
        self._refused_max = refused_max

    def __len__(self) -> int:
        return len(self._refused)

    def is_behind(self, who: Hashable, producer_epoch: int, first_sequence: int, now: float) -> bool:
        """A frame comes: whether one before it was refused and did not come again. Then it is no beginning."""
        refused = self._refused.get(who)
        if refused is None:
            return False
        epoch, sequence, at = refused
        if now < at + REJECTED_S and epoch == producer_epoch and unwrapped(first_sequence, sequence) > sequence:
            return True
        del self._refused[who]
        return False

    def refuse(self, who: Hashable, producer_epoch: int, first_sequence: int, now: float) -> None:
        """A frame that is behind none was refused, and its client will send it again. Beyond the limit the longest
        refused is forgotten."""
        self._refused[who] = producer_epoch, first_sequence, now
        if len(self._refused) > self._refused_max:
            self._refused.popitem(last=False)

    def forget(self, who: Hashable) -> None:
        """What was refused here was stored elsewhere meanwhile, for its producer is known to have got further."""
        self._refused.pop(who, None)
