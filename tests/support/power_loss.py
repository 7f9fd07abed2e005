"""Power loss of files in memory: any part of the unflushed data is lost, in any order."""

import random

from seaweedmq.storage.logs.lost_blocks import BLOCK_BYTES
from tests.doubles.memory_store import MemorySegmentStore


def lose_power(store: MemorySegmentStore, rng: random.Random) -> None:
    """Lose parts of each file independently: its name if it was never fsynced, its end, or blocks in the middle."""
    for path, file in list(store.files.items()):
        file.crashed = True
        if not file.named and rng.random() < 0.3:
            del store.files[path]
            continue
        synced, size = file.synced_bytes, len(file.data)
        kept = rng.choice((synced, size, rng.randint(synced, size)))
        del file.data[kept:]
        lost = rng.choice((0.0, 0.2, 0.7))
        for block in range(synced // BLOCK_BYTES, kept // BLOCK_BYTES + 1):
            if rng.random() < lost:
                start, end = max(synced, block * BLOCK_BYTES), min(kept, (block + 1) * BLOCK_BYTES)
                file.data[start:end] = bytes(max(0, end - start))
