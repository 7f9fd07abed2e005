"""Refusal of records while the storage has too little free space.

A full disk stops what frees it: tables, retention and compaction write files first. So a broker refuses records before
that, as long as less than ``storage_free_bytes_min`` is free, or a twentieth of a small storage. Reads, deletions and
the log of Kafka's groups, which consumers need for reading, continue.
"""

import asyncio
import logging

from seaweedmq.errors import StorageFailed, StorageFull, fresh
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore, StorageSpace
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

FILL_BYTES_PER_S = 1_000_000_000
"""Assumed speed at which all brokers together fill the storage, when the next measurement is chosen."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
TOTAL_PART = 20
"""On a small storage one part in so many is the least that is kept free."""
RESUME_RATIO = 1.05
"""Records are taken again once so many times the minimum is free, lest each file that is deleted ends a refusal."""


class SpaceGuard:
    """The free space of the storage, as measured last, and whether it suffices for records."""

    def __init__(self, free_bytes_min: int, exempt: TopicName) -> None:
        """``exempt``: the topic whose records are always taken."""
        self._free_bytes_min = free_bytes_min
        self._exempt = exempt
        self._refusal: StorageFull | None = None

    def check(self, topic: TopicName) -> None:
        """Return if records of a topic may be stored.

        Raises:
            StorageFull: If too little space is free; names the setting and the remedy.
        """
        if self._refusal is not None and topic != self._exempt:
            raise fresh(self._refusal)

    def measured(self, space: StorageSpace) -> float:
        """Take in how much is free; return after how many seconds to measure again."""
        free_bytes = space.free_bytes
        least = min(self._free_bytes_min, space.total_bytes // TOTAL_PART)
        if self._refusal is None and free_bytes < least:
            self._refusal = StorageFull(
                f"the storage has less than {least:,} bytes free, the least for new records (storage_free_bytes_min): "
                "free space on it, raise its size or lower the retention of topics; then records are taken again"
            )
            log.error("records refused: %s; %d bytes are free", self._refusal, free_bytes)
        elif self._refusal is not None and free_bytes >= RESUME_RATIO * least:
            self._refusal = None
            log.info("records accepted again: %d bytes of the storage are free", free_bytes)
        return min(PAUSE_S_MAX, max(PAUSE_S_MIN, abs(free_bytes - least) / FILL_BYTES_PER_S))

    async def run(self, store: SegmentStore) -> None:
        """Measure, until cancelled."""
        failures = OnceLogger(log)
        while True:
            pause_s = PAUSE_S_MAX
            try:
                space = await store.space()
            except StorageFailed as error:
                failures.add("free space of the storage", error)
            else:
                failures.over("free space of the storage")
                if space is not None:
                    pause_s = self.measured(space)
            await asyncio.sleep(pause_s)
