"""Delivery failures of a publisher since its last flush.

A flush reports the first of all of them, a close the first that no future has reported.
"""

import threading
from typing import Protocol

from seaweedmq.errors import SeaweedMQError

KEPT_MAX = 1_000
"""Limit of unreported batches and tables that are stored. Above it a close fails even if all futures reported."""
KEPT_ROWS_MAX = 1_000_000
"""Limit of their rows, each of which takes some bytes."""


class Failing(Protocol):
    """A batch or table that has its outcome."""

    @property
    def count(self) -> int:
        """The number of stored outcomes."""

    @property
    def is_reported(self) -> bool:
        """Whether the futures of all failed rows have reported it."""

    def first_error(self) -> SeaweedMQError | None:
        """Return the error of the first failed row, if any."""

    def unreported_error(self) -> SeaweedMQError | None:
        """Return the error of the first failed row whose future has not reported it, if any."""


class UnreportedErrors:
    """The failures since the last flush. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: SeaweedMQError | None = None
        self._failed: list[Failing] = []
        self._beyond: SeaweedMQError | None = None
        """The error of the first failed work above the limits."""

    def add(self, work: Failing) -> None:
        """Record the failure of work that has its outcome, if it failed."""
        error = work.first_error()
        if error is None:
            return
        with self._lock:
            self._first = self._first or error
            self._failed = [each for each in self._failed if not each.is_reported]
            if self._beyond is not None:
                return
            rows = work.count + sum(each.count for each in self._failed)
            if len(self._failed) >= KEPT_MAX or rows > KEPT_ROWS_MAX:
                self._beyond = error
            else:
                self._failed.append(work)

    def take(self) -> SeaweedMQError | None:
        """Return the first failure, if any, and drop all."""
        with self._lock:
            first, self._first = self._first, None
            self._failed, self._beyond = [], None
            return first

    def first_unreported(self) -> SeaweedMQError | None:
        """Return the first failure that no future has reported, if any."""
        with self._lock:
            errors = (work.unreported_error() for work in self._failed)
            return next((error for error in errors if error is not None), self._beyond)
