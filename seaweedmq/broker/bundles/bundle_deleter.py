"""Deletion of the bundles below the floor of a sequence, one request at a time."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from seaweedmq.errors import StorageFailed
from seaweedmq.runtime.retrying import retrying, when
from seaweedmq.storage.bundles.entries import SequenceEntries

DELETE_MAX: Final = 1_000
"""Bundles in one deletion."""


class BundleDeleter:
    """The deletions of one sequence, in ascending order. A failed one is retried until the bundler is over."""

    def __init__(
        self,
        entries: SequenceEntries,
        *,
        pause_s: Callable[[int], float],
        is_over: Callable[[], bool],
        begin: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        """Create the deleter; ``begin`` runs a request as a task, and ``pause_s`` is that of ``retrying``."""
        self._entries = entries
        self._pause_s = pause_s
        self._is_over = is_over
        self._begin = begin
        self._deleted_below = 0
        self._deletable_below = 0

    def add(self, numbers: range) -> None:
        """Delete these bundles, which follow those of the previous call."""
        is_idle = self._deleted_below == self._deletable_below
        self._deletable_below = max(self._deletable_below, numbers.stop)
        if is_idle and self._deleted_below < self._deletable_below:
            self._begin(self._run(), "delete bundles")

    async def _run(self) -> None:
        trying = retrying(self._pause_s, on=StorageFailed, stop=when(self._is_over))
        while self._deleted_below < self._deletable_below:
            numbers = range(self._deleted_below, min(self._deletable_below, self._deleted_below + DELETE_MAX))
            try:
                await trying(self._entries.delete, numbers)
            except StorageFailed:
                return  # the bundler is over, and the leader deletes what is left
            self._deleted_below = numbers.stop
