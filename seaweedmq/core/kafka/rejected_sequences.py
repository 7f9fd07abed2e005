"""Rejected frames of Kafka producers, whose clients have several frames in flight, in order.

A producer that is new to a partition may begin at any sequence. Its first frame may be rejected, because its broker is
not ready to lead the partition. The frames behind it must then not be its beginning, or the first could never be
appended. Nor may they get the error for out of order: librdkafka would begin a new epoch, and repeat frames that are
stored and not yet acknowledged.

A client repeats a rejected frame within moments, or drops it. A frame that is not repeated is forgotten; otherwise
everything behind it would be rejected endlessly.
"""

from collections import OrderedDict
from collections.abc import Hashable

from seaweedmq.model.producer import unwrapped

REJECTED_MAX = 100_000
"""Remembered rejections. Only recent ones matter: a client soon repeats a rejected frame."""
REJECTED_S = 60.0
"""Longest time in which a client repeats a rejected frame. librdkafka and Java's client wait at most a second between
attempts, and frames in flight behind it arrive within their request timeouts of 30 s."""


class RejectedSequences:
    """The first rejected frame by connection, partition and producer, until it, or an earlier one, is repeated."""

    def __init__(self, refused_max: int = REJECTED_MAX) -> None:
        self._refused: OrderedDict[Hashable, tuple[int, int, float]] = OrderedDict()
        """Epoch, sequence and time of each rejection, the earliest first."""
        self._refused_max = refused_max

    def __len__(self) -> int:
        return len(self._refused)

    def is_behind(self, producer: Hashable, producer_epoch: int, first_sequence: int, now: float) -> bool:
        """Whether an earlier frame was rejected and not repeated, so that this one is not a beginning."""
        refused = self._refused.get(producer)
        if refused is None:
            return False
        epoch, sequence, at = refused
        if now < at + REJECTED_S and epoch == producer_epoch and unwrapped(first_sequence, sequence) > sequence:
            return True
        del self._refused[producer]
        return False

    def reject(self, producer: Hashable, producer_epoch: int, first_sequence: int, now: float) -> None:
        """Remember a rejected frame that is behind no other and will be repeated; at the limit the earliest goes."""
        self._refused[producer] = producer_epoch, first_sequence, now
        if len(self._refused) > self._refused_max:
            self._refused.popitem(last=False)

    def forget(self, producer: Hashable) -> None:
        """Forget a rejection: the producer is known to be further, so another leader has stored the frame."""
        self._refused.pop(producer, None)
