"""Ids for Kafka's producers: a counter that all brokers share gives blocks of them, a broker gives those one by one.

An id is given once, to one producer. What is left of a block when its broker ends is never given.
"""

from collections.abc import Collection

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.producer import KAFKA_PRODUCERS

BLOCK_IDS = 1_000


class IdBlock:
    """The ids that one broker may give."""

    def __init__(self) -> None:
        self._left = iter(range(0))

    def take(self) -> int | None:
        """The next id; None if a new block is needed."""
        return next(self._left, None)

    def refill(self, block: range) -> None:
        """Go on with a block that the counter gave."""
        self._left = iter(block)


def next_block(counter: int | None, claimed: Collection[int] = ()) -> range:
    """Return the block to take from the counter, which is to stand at the end of the block afterwards.

    Args:
        counter: the first id that was not given by it; None: it was never used.
        claimed: first ids of the blocks that the storage shows to be taken. The counter may have been set back.

    Raises:
        ResourceExhausted: there is nothing left.
    """
    first = KAFKA_PRODUCERS.start if counter is None else counter
    if claimed:
        first = max(first, max(claimed) + BLOCK_IDS)
    if first + BLOCK_IDS > KAFKA_PRODUCERS.stop:
        raise ResourceExhausted(
            f"all {len(KAFKA_PRODUCERS):,} ids for Kafka's producers were given: only a new cluster has others"
        )
    return range(first, first + BLOCK_IDS)
