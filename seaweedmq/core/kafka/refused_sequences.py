"""What a connection was refused of Kafka's producers. Their clients have several frames under way, in order.

A producer that a partition does not know may begin anywhere. So if its first frame is refused, because its broker is
not ready to lead a partition yet, the second one must not be taken, or the first could never be stored any more.
"""

from collections import OrderedDict
from collections.abc import Hashable

from seaweedmq.errors import OutOfOrderSequence

REFUSED_MAX = 1_000


class RefusedSequences:
    """Of one connection, by partition and producer: the first frame that was refused, until it comes again."""

    def __init__(self, refused_max: int = REFUSED_MAX) -> None:
        self._refused: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        """Epoch and sequence, the longest refused first."""
        self._refused_max = refused_max

    def __len__(self) -> int:
        return len(self._refused)

    def enter(self, who: Hashable, producer_epoch: int, first_sequence: int) -> None:
        """A frame comes.

        Raises:
            OutOfOrderSequence: one that comes before it was refused.
        """
        refused = self._refused.get(who)
        if refused is None:
            return
        epoch, sequence = refused
        if epoch == producer_epoch and sequence != first_sequence:
            raise OutOfOrderSequence(
                f"sequence {sequence} was refused before this one, {first_sequence}, came: send that again first"
            )
        del self._refused[who]

    def refuse(self, who: Hashable, producer_epoch: int, first_sequence: int) -> None:
        """A frame that had entered was refused. Beyond the limit the longest refused is forgotten."""
        self._refused[who] = producer_epoch, first_sequence
        if len(self._refused) > self._refused_max:
            self._refused.popitem(last=False)
