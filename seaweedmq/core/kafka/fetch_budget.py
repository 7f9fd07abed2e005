"""Division of the bytes of one Fetch reply among its partitions (KIP-74)."""


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
