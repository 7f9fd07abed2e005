"""What a connection was refused of Kafka's producers. Their clients have several frames under way, in order.

A producer that a partition does not know may begin anywhere. So if its first frame is refused, because its broker is
not ready to lead a partition yet, the second one must not be taken, or the first could never be stored any more. Nor
does it matter for long: what was under way behind the first comes with the next few requests. Then the client knows,
and what it sends has its reasons: it may have sent the first to another broker, and have come back.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from seaweedmq.errors import Unavailable

REFUSED_MAX = 1_000
IN_FLIGHT_MAX: Final = 5
"""Requests of an idempotent producer on a connection that have no reply yet, that of a refused frame among them."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    request: int


class RefusedSequences:
    """Of one connection, by partition and producer: the first frame that was refused, until it comes again or nothing
    can be under way behind it any more."""

    def __init__(self, refused_max: int = REFUSED_MAX) -> None:
        self._refused: OrderedDict[Hashable, _Refused] = OrderedDict()
        """The longest refused first."""
        self._refused_max = refused_max
        self._requests = 0

    def __len__(self) -> int:
        return len(self._refused)

    def next_request(self) -> None:
        """Frames come with one more request."""
        self._requests += 1
        while self._refused and self._requests - next(iter(self._refused.values())).request >= IN_FLIGHT_MAX:
            self._refused.popitem(last=False)

    def enter(self, who: Hashable, producer_epoch: int, first_sequence: int) -> None:
        """A frame comes.

        Raises:
            Unavailable: one that comes before it was refused.
        """
        refused = self._refused.get(who)
        if refused is None:
            return
        if refused.epoch == producer_epoch and refused.sequence != first_sequence:
            raise Unavailable(
                f"sequence {refused.sequence} was refused before {first_sequence} came behind it: send that again first"
            )
        del self._refused[who]

    def refuse(self, who: Hashable, producer_epoch: int, first_sequence: int) -> None:
        """A frame that had entered was refused. Beyond the limit the longest refused is forgotten."""
        self._refused[who] = _Refused(producer_epoch, first_sequence, self._requests)
        self._refused.move_to_end(who)
        if len(self._refused) > self._refused_max:
            self._refused.popitem(last=False)
