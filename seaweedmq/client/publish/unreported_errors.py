"""What a publisher could not deliver since its last flush. A flush tells of all of it, a close of what nobody knows."""

import threading
from typing import Protocol

from seaweedmq.errors import SeaweedMQError

KEPT_MAX = 1_000
"""Pieces of work remembered that nobody was told of. Beyond it a close fails, whichever futures were asked."""
KEPT_ROWS_MAX = 1_000_000
"""The same of their rows: each takes some bytes."""


class Failing(Protocol):
    """A batch or table that has its outcome."""

    @property
    def count(self) -> int:
        """How many outcomes it remembers."""

    @property
    def is_told(self) -> bool:
        """Whether every future of what failed was asked."""

    def first_error(self) -> SeaweedMQError | None:
        """What it failed with, if it did."""

    def untold_error(self) -> SeaweedMQError | None:
        """The same, of what no future was asked for."""


class UnreportedErrors:
    """From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: SeaweedMQError | None = None
        self._failed: list[Failing] = []
        self._beyond: SeaweedMQError | None = None
        """Of the first work that was not remembered."""

    def add(self, work: Failing) -> None:
        """Work has its outcome."""
        error = work.first_error()
        if error is None:
            return
        with self._lock:
            self._first = self._first or error
            self._failed = [each for each in self._failed if not each.is_told]
            if self._beyond is not None:
                return
            rows = work.count + sum(each.count for each in self._failed)
            if len(self._failed) >= KEPT_MAX or rows > KEPT_ROWS_MAX:
                self._beyond = error
            else:
                self._failed.append(work)

    def take(self) -> SeaweedMQError | None:
        """The first failure; all are forgotten."""
        with self._lock:
            first, self._first = self._first, None
            self._failed, self._beyond = [], None
            return first

    def untold(self) -> SeaweedMQError | None:
        """The first failure that no future was asked for."""
        with self._lock:
            errors = (work.untold_error() for work in self._failed)
            return next((error for error in errors if error is not None), self._beyond)
