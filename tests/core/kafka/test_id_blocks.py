"""A counter and the ids that it issues."""

import pytest

from seaweedmq.core.kafka.id_blocks import BLOCK_IDS, IdBlock, next_block
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.producer import KAFKA_PRODUCERS


def test_blocks_follow_each_other_from_the_first_id_to_the_last_each_given_once() -> None:
    first = next_block(None)
    assert (first.start, len(first)) == (KAFKA_PRODUCERS.start, BLOCK_IDS)
    assert next_block(first.stop).start == first.stop
    assert next_block(KAFKA_PRODUCERS.stop - BLOCK_IDS).stop == KAFKA_PRODUCERS.stop
    with pytest.raises(ResourceExhausted, match="are used up: create a new cluster"):
        next_block(KAFKA_PRODUCERS.stop - BLOCK_IDS + 1)
    block = IdBlock()
    assert block.take() is None
    block.refill(range(5_000, 5_003))
    assert [block.take() for _ in range(5)] == [5_000, 5_001, 5_002, None, None]
