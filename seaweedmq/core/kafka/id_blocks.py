"""Ids for Kafka producers: brokers reserve blocks from a shared counter and assign ids one by one.

An id is assigned once, to one producer. The rest of a block is never assigned when its broker ends.
"""

from collections.abc import Collection

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.producer import KAFKA_PRODUCERS

BLOCK_IDS = 1_000


class IdBlock:
    """The ids that one broker may assign."""

    def __init__(self) -> None:
        self._left = iter(range(0))

    def take(self) -> int | None:
        """Return the next id; None if a new block is needed."""
        return next(self._left, None)

    def refill(self, block: range) -> None:
        """Continue with a new block from the counter."""
        self._left = iter(block)


def next_block(counter: int | None, claimed: Collection[int] = ()) -> range:
    """Return the block to reserve, to whose end the counter must then be set, or raise ResourceExhausted.

    ``counter`` is the first id that it has not reserved, None if it was never used. It may have been set back, so the
    blocks that claims in the storage reserve, named by their first ids, are skipped.
    """
    first = KAFKA_PRODUCERS.start if counter is None else counter
    if claimed:
        first = max(first, max(claimed) + BLOCK_IDS)
    if first + BLOCK_IDS > KAFKA_PRODUCERS.stop:
        raise ResourceExhausted(
            f"all {len(KAFKA_PRODUCERS):,} ids for Kafka producers are used up: create a new cluster"
        )
    return range(first, first + BLOCK_IDS)
