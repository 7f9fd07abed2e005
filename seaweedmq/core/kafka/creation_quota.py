"""A quota of auto-created topics for each client: a token bucket that refills over a minute.

A client that requests thousands of names, by mistake or on purpose, would otherwise fill the cluster with their
segments. No room would be left for other topics.
"""

from collections import OrderedDict
from typing import Final

MINUTE_S: Final = 60.0
CLIENTS_MAX: Final = 10_000
"""Clients whose quota is remembered; beyond it, the least recently used one is dropped."""


class CreationQuota:
    """The quotas of all clients of one broker."""

    def __init__(self, per_minute_max: int, clients_max: int = CLIENTS_MAX) -> None:
        """Create full quotas. ``per_minute_max`` is the number of topics per client in a minute, and at once."""
        self._per_minute_max = per_minute_max
        self._clients_max = clients_max
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Topics left to each client, and the time of that count; the least recently used client first."""

    def take(self, client: str, wanted: int, now: float) -> int:
        """Take up to ``wanted`` topics from a client's quota; return the number that may be created."""
        left, since = self._left.pop(client, (float(self._per_minute_max), now))
        left = min(float(self._per_minute_max), left + (now - since) * self._per_minute_max / MINUTE_S)
        granted = min(wanted, int(left))
        self._left[client] = left - granted, now
        self._forget()
        return granted

    def give_back(self, client: str, topics: int) -> None:
        """Return topics to a client's quota that were taken and not created."""
        left, since = self._left.get(client, (float(self._per_minute_max), 0.0))
        self._left[client] = min(float(self._per_minute_max), left + topics), since
        self._forget()

    def _forget(self) -> None:
        if len(self._left) > self._clients_max:
            self._left.popitem(last=False)
