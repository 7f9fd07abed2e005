"""Rates of one segment, from what happened since the last look."""

from seaweedmq.model.ring import HISTOGRAM_BUCKETS

MEMORY_S = 5.0
"""Older traffic counts less: each look keeps the share of the old rate that this time constant leaves."""


class Meter:
    """Counts on the hot path, averages when looked at."""

    __slots__ = ("_bytes", "_histogram", "_records", "_since", "bytes_per_s", "records_per_s")

    def __init__(self) -> None:
        self.bytes_per_s = 0.0
        self.records_per_s = 0.0
        self._bytes = 0
        self._records = 0
        self._since: float | None = None
        self._histogram = [0] * HISTOGRAM_BUCKETS

    def add(self, now: float, size_bytes: int, records: int, histogram: tuple[int, ...]) -> None:
        """Count a frame."""
        if self._since is None:
            self._since = now
        self._bytes += size_bytes
        self._records += records
        self._histogram = [a + b for a, b in zip(self._histogram, histogram, strict=True)]

    def look(self, now: float) -> tuple[int, ...]:
        """Bring the rates up to date; return the histogram since the last look."""
        since = self._since if self._since is not None else now
        elapsed = now - since
        histogram = tuple(self._histogram)
        if elapsed > 0:
            keep = max(0.0, 1 - elapsed / MEMORY_S)
            self.bytes_per_s = keep * self.bytes_per_s + (1 - keep) * self._bytes / elapsed
            self.records_per_s = keep * self.records_per_s + (1 - keep) * self._records / elapsed
            if self.bytes_per_s < 1:
                self.bytes_per_s = self.records_per_s = 0.0
            self._bytes = self._records = 0
            self._histogram = [0] * HISTOGRAM_BUCKETS
        self._since = now
        return histogram
