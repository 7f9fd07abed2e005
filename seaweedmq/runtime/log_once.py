"""Failures of something that is tried again and again, logged once each."""

import logging

REMEMBERED_MAX = 1_000


class Complaints:
    """Remembers what was logged, so that a retry does not log it again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known: set[str] = set()

    def add(self, what: str, error: Exception) -> None:
        """Log that ``what`` failed and goes on being tried."""
        complaint = f"{what}: {error}"
        if complaint in self._known:
            return
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known.add(complaint)
        self._log.error("%s (trying on)", complaint)
