"""Ids for producers that ask for one (InitProducerId): from a counter in etcd, a block at a time."""

import asyncio
import random

from seaweedmq.codec.kafka_producers import id_counter_from_json, id_counter_to_json
from seaweedmq.codec.keys import KAFKA_PRODUCER_IDS
from seaweedmq.core.kafka.id_blocks import IdBlock, next_block
from seaweedmq.errors import Conflict
from seaweedmq.ports import Compare, MetaStore, Put
from seaweedmq.runtime.retrying import after_s, backoff, retrying

RETRY_FIRST_S, RETRY_MOST_S = 0.02, 0.5
BLOCK_TIMEOUT_S = 5.0


class ProducerIds:
    """What this broker gives. No two producers of a cluster ever get the same id."""

    def __init__(self, meta: MetaStore, rng: random.Random) -> None:
        self._meta = meta
        self._rng = rng
        self._block = IdBlock()
        self._refilling = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody has.

        Raises:
            Unavailable: etcd is out of reach, or other brokers took every block for a while.
            ResourceExhausted: all are given.
            Corrupt, Unsupported: the counter can not be read.
        """
        while (given := self._block.take()) is None:
            async with self._refilling:
                if (given := self._block.take()) is not None:
                    return given
                attempts = retrying(
                    backoff(self._rng, RETRY_FIRST_S, RETRY_MOST_S), on=Conflict, stop=after_s(BLOCK_TIMEOUT_S)
                )
                self._block.refill(await attempts(self._take_block))
        return given

    async def _take_block(self) -> range:
        """If it is not clear whether it was written, the block is nobody's."""
        entry = await self._meta.get(KAFKA_PRODUCER_IDS)
        block = next_block(None if entry is None else id_counter_from_json(entry.value))
        unchanged = Compare(KAFKA_PRODUCER_IDS, mod_revision=0 if entry is None else entry.mod_revision)
        if await self._meta.transact([unchanged], [Put(KAFKA_PRODUCER_IDS, id_counter_to_json(block.stop))]) is None:
            raise Conflict("another broker took a block of producer ids at the same time: take the next one")
        return block
