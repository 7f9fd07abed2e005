"""A quota of auto-created topics for each client: a token bucket that refills over a minute.

A client that asks about thousands of names, by a mistake or on purpose, would else fill the cluster with their
segments, and leave none for the topics of others.
"""

from collections import OrderedDict
from typing import Final

MINUTE_S: Final = 60.0
CLIENTS_MAX: Final = 10_000
"""Clients whose quota is remembered; beyond, the least recently used is dropped."""


class CreationQuota:
    """The quotas of all clients of one broker."""

    def __init__(self, per_minute_max: int, clients_max: int = CLIENTS_MAX) -> None:
        """``per_minute_max``: topics that may be created for one client in a minute, and at once."""
        self._per_minute_max = per_minute_max
        self._clients_max = clients_max
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Topics left to each client, and the time of that count; the least recently used client first."""

    def take(self, client: str, wanted: int, now: float) -> int:
        """Take up to so many topics of a client's quota at this time; return how many may be created."""
        left, since = self._left.pop(client, (float(self._per_minute_max), now))
        left = min(float(self._per_minute_max), left + (now - since) * self._per_minute_max / MINUTE_S)
        granted = min(wanted, int(left))
        self._left[client] = left - granted, now
        self._forget()
        return granted

    def give_back(self, client: str, topics: int) -> None:
        """Give back so many topics that were taken of a client's quota, and were not created."""
        left, since = self._left.get(client, (float(self._per_minute_max), 0.0))
        self._left[client] = min(float(self._per_minute_max), left + topics), since
        self._forget()

    def _forget(self) -> None:
        if len(self._left) > self._clients_max:
            self._left.popitem(last=False)
