"""How the bytes of one Fetch reply are shared out among its partitions (KIP-74)."""


class FetchBudget:
    """What is left of a reply's bytes. Partitions come in order, each gets what it may of the rest.

    The first batch of a reply is given whole, however large: else a consumer with low limits would never get past it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = max(0, bytes_max)
        self.taken = 0
        """Bytes given so far."""

    def of(self, partition_bytes_max: int) -> int:
        """Bytes that the next partition may give; 0 or less: nothing, but for a first batch."""
        return min(self._left, max(0, partition_bytes_max))

    def fits(self, batch_bytes: int, partition_left: int) -> bool:
        """Whether a batch may be given, where its partition may still give ``partition_left``."""
        return not self.taken or batch_bytes <= min(partition_left, self._left)

    def took(self, batch_bytes: int) -> None:
        """A batch was given."""
        self.taken += batch_bytes
        self._left = max(0, self._left - batch_bytes)
