"""Traffic rates of one segment, as decaying averages."""

import math

from seaweedmq.model.ring import HISTOGRAM_BUCKETS

NOTHING_BYTES_PER_S = 1.0
"""Long-term rate in bytes per second below which all averages become 0, which they never reach by decay alone."""


class Meter:
    """A meter that only counts on the hot path and computes averages in ``look``.

    The averages decay with two time constants. They cover only the time since the segment was opened, so those of a
    young segment do not rise slowly from 0.
    """

    __slots__ = (
        "_bytes",
        "_histogram",
        "_long_s",
        "_opened",
        "_records",
        "_short_s",
        "_since",
        "bytes_per_s",
        "histogram",
        "long_bytes_per_s",
        "long_records_per_s",
        "records_per_s",
    )

    def __init__(self, now: float, short_s: float, long_s: float) -> None:
        """Start counting.

        Args:
            now: The time at which the segment was opened, on any monotonic clock, in seconds.
            short_s: The short time constant, in seconds.
            long_s: The long time constant, in seconds.
        """
        self._short_s = short_s
        self._long_s = long_s
        self._opened = self._since = now
        self._bytes = 0
        self._records = 0
        self._histogram = [0] * HISTOGRAM_BUCKETS
        self.bytes_per_s = 0.0
        self.records_per_s = 0.0
        self.long_bytes_per_s = 0.0
        self.long_records_per_s = 0.0
        self.histogram: tuple[float, ...] = (0.0,) * HISTOGRAM_BUCKETS
        """Records per second in each sixteenth of the slot range, with the short time constant."""

    def add(self, size_bytes: int, records: int, histogram: tuple[int, ...]) -> None:
        """Count a frame; ``histogram`` has its records by sixteenth of the slot range."""
        self._bytes += size_bytes
        self._records += records
        if any(histogram):  # those of Kafka clients are not counted
            self._histogram = [a + b for a, b in zip(self._histogram, histogram, strict=True)]

    def look(self, now: float) -> None:
        """Update the averages. Traffic counts as constant between two calls."""
        elapsed = now - self._since
        if elapsed <= 0:
            return
        short, long = self._weight(now, self._short_s), self._weight(now, self._long_s)
        byte_rate, record_rate = self._bytes / elapsed, self._records / elapsed
        self.bytes_per_s += short * (byte_rate - self.bytes_per_s)
        self.records_per_s += short * (record_rate - self.records_per_s)
        self.long_bytes_per_s += long * (byte_rate - self.long_bytes_per_s)
        self.long_records_per_s += long * (record_rate - self.long_records_per_s)
        self.histogram = tuple(
            average + short * (count / elapsed - average)
            for average, count in zip(self.histogram, self._histogram, strict=True)
        )
        self._bytes = self._records = 0
        self._histogram = [0] * HISTOGRAM_BUCKETS
        self._since = now
        if self.long_bytes_per_s < NOTHING_BYTES_PER_S:
            self._forget()

    def _weight(self, now: float, constant_s: float) -> float:
        """Return the weight of the time since the last update, relative to all time since the opening.

        With a decay of exp(-t / constant), an interval weighs the integral of that. Both integrals run back from now.
        """
        return math.expm1((self._since - now) / constant_s) / math.expm1((self._opened - now) / constant_s)

    def _forget(self) -> None:
        self.bytes_per_s = self.records_per_s = self.long_bytes_per_s = self.long_records_per_s = 0.0
        self.histogram = (0.0,) * HISTOGRAM_BUCKETS
