"""How many bytes of requests may be in the process at a time, over all connections."""

from collections import OrderedDict
from collections.abc import Callable


class InFlightBytes:
    """A budget that requests are read in by. Who has to wait is told, in the order of asking.

    A request that is larger than the whole budget is let in alone.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()

    @property
    def taken_bytes(self) -> int:
        """What was taken and not given back: as much as all requests that are read or answered, and 0 without any."""
        return self._taken

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Whether ``size`` bytes were taken; if not they are later, and ``granted`` is called then, once."""
        if not self._waiting and self._fits(size):
            self._taken += size
            return True
        self._waiting[granted] = size
        return False

    def give(self, size: int) -> None:
        """``size`` bytes that were taken are free again."""
        self._taken -= size
        assert self._taken >= 0, f"{-self._taken} bytes were given back twice"
        while self._waiting:
            granted, wanted = next(iter(self._waiting.items()))
            if not self._fits(wanted):
                return
            del self._waiting[granted]
            self._taken += wanted
            granted()

    def forget(self, granted: Callable[[], None]) -> None:
        """Who waited does not any more."""
        if self._waiting.pop(granted, None) is not None:
            self.give(0)  # those behind may fit

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._bytes_max
