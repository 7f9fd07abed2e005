"""The bytes of one Fetch reply: when they suffice to end the wait, and how its partitions share them (KIP-74).

A long poll ends by the rule of Apache Kafka's ``DelayedFetch``: compare sizes, without reading. A partition counts the
bytes between the consumer's offset and the high watermark, at most its share of the reply. Counting whole batches that
fit instead would wait out every poll that requests as much as fits.
"""

from typing import Generic, TypeVar

Key = TypeVar("Key")


class FetchWait(Generic[Key]):
    """The bytes that a Fetch could return by now, compared with the bytes that it waits for."""

    def __init__(self, bytes_min: int, reply_bytes_max: int) -> None:
        """Create the wait for a reply of ``bytes_min``, which the client requests, but at most ``reply_bytes_max``."""
        self._wanted = min(bytes_min, reply_bytes_max)
        self._readable: dict[Key, int] = {}
        self._total = 0

    @property
    def is_enough(self) -> bool:
        """Whether the reply is large enough to send."""
        return self._total >= self._wanted

    def count(self, partition: Key, readable_bytes: int) -> None:
        """Replace the bytes counted for a partition."""
        self._total += readable_bytes - self._readable.get(partition, 0)
        self._readable[partition] = readable_bytes


class FetchBudget:
    """The remaining bytes of a reply.

    Partitions come in order; each gets its share of the rest. The first batch of a reply always fits. Otherwise a
    consumer with low limits would never get past it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = max(0, bytes_max)
        self.taken = 0
        """Bytes of the batches so far."""

    def of(self, partition_bytes_max: int) -> int:
        """Return the bytes that the next partition may add; 0 or less: only a first batch."""
        return min(self._left, max(0, partition_bytes_max))

    def fits(self, batch_bytes: int, partition_left: int) -> bool:
        """Whether a batch fits if its partition may add ``partition_left`` bytes."""
        return not self.taken or batch_bytes <= min(partition_left, self._left)

    def took(self, batch_bytes: int) -> None:
        """Subtract a batch."""
        self.taken += batch_bytes
        self._left = max(0, self._left - batch_bytes)
