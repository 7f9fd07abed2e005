"""Allocation of producer ids (InitProducerId), in blocks from a counter in etcd.

A restore of etcd sets the counter back, and the batches of a producer with another one's id would be taken for repeats.
So each block is also claimed in the storage, and a new block is never below a claimed one.
"""

import asyncio
import random

from seaweedmq.codec.state.kafka import id_counter_from_json, id_counter_to_json
from seaweedmq.codec.state.keys import KAFKA_PRODUCER_IDS
from seaweedmq.core.kafka.id_blocks import IdBlock, next_block
from seaweedmq.errors import AlreadyExists, Conflict, StorageFailed, Unavailable
from seaweedmq.model.claims import ClaimKind
from seaweedmq.ports import Compare, MetaStore, Put, SegmentStore
from seaweedmq.runtime.retrying import after_s, backoff, retrying

RETRY_S_FIRST, RETRY_S_MAX = 0.02, 0.5
BLOCK_TIMEOUT_S = 5.0
CLAIMS_KEPT = 8
"""Number of the highest claims that are kept. A claim below them took so long that an earlier claim of its block may
already be deleted."""


class ProducerIds:
    """The producer ids that this broker allocates. No two producers of a cluster ever get the same id."""

    def __init__(self, meta: MetaStore, store: SegmentStore, rng: random.Random) -> None:
        self._meta = meta
        self._store = store
        self._rng = rng
        self._block = IdBlock()
        self._refilling = asyncio.Lock()

    async def next(self) -> int:
        """Return an id that no producer has, or raise ResourceExhausted if all are used up.

        Raises Unavailable if etcd or the storage is unreachable, or other brokers took every block for
        ``BLOCK_TIMEOUT_S``, and Corrupt or Unsupported if the counter is unreadable or has a newer format.
        """
        while (given := self._block.take()) is None:
            async with self._refilling:
                if (given := self._block.take()) is not None:
                    return given
                attempts = retrying(
                    backoff(self._rng, RETRY_S_FIRST, RETRY_S_MAX), on=Conflict, stop=after_s(BLOCK_TIMEOUT_S)
                )
                try:
                    self._block.refill(await attempts(self._take_block))
                except StorageFailed as error:  # clients treat the code of a failed storage as final here
                    raise Unavailable(f"no producer id without the storage: {error}") from error
        return given

    async def _take_block(self) -> range:
        """Take a block from the counter and claim it; a block with an uncertain claim is never used."""
        entry = await self._meta.get(KAFKA_PRODUCER_IDS)
        claimed = await self._store.read_claims(ClaimKind.PRODUCER_IDS)
        block = next_block(None if entry is None else id_counter_from_json(entry.value), claimed.keys())
        unchanged = Compare(KAFKA_PRODUCER_IDS, mod_revision=0 if entry is None else entry.mod_revision)
        if await self._meta.transact([unchanged], [Put(KAFKA_PRODUCER_IDS, id_counter_to_json(block.stop))]) is None:
            raise Conflict("another broker took the block of producer ids at the same time: take the next one")
        await self._claim(block.start)
        return block

    async def _claim(self, first: int) -> None:
        """Claim a block in the storage, or raise Conflict if its claim exists, or may have been deleted already."""
        try:
            await self._store.create_claim(ClaimKind.PRODUCER_IDS, first, b"")
        except AlreadyExists as error:
            raise Conflict(f"the counter of producer ids in etcd was set back: {error}") from error
        claimed = sorted(await self._store.read_claims(ClaimKind.PRODUCER_IDS))
        await self._store.delete_claims(ClaimKind.PRODUCER_IDS, claimed[:-CLAIMS_KEPT])
        if first not in claimed[-CLAIMS_KEPT:]:
            raise Conflict(f"other brokers claimed {CLAIMS_KEPT} blocks of producer ids meanwhile: take the next one")
