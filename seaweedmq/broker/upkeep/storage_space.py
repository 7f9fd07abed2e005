"""Rejection of records while the storage has too little free space.

A full disk stops the tasks that would free it: conversion, retention and compaction write files first. A broker
therefore rejects records while less than ``storage_free_bytes_min`` is free, or less than a twentieth of a small
storage. Reads and deletions continue, and so does the log of Kafka groups, which consumers need for reading.
"""

import asyncio
import logging

from seaweedmq.errors import StorageFailed, StorageFull, fresh
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore, StorageSpace
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

FILL_BYTES_PER_S = 1_000_000_000
"""Assumed bytes per second at which all brokers together fill the storage. It sets the time of the next measurement."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
"""Shortest and longest pause in seconds between two measurements."""
TOTAL_PART = 20
"""Divisor of the total size of a small storage that gives its least free space."""
RESUME_RATIO = 1.05
"""Multiple of the minimum at which records are accepted again. It prevents that each deleted file ends a rejection."""


class SpaceGuard:
    """A guard that rejects records by the last measured free space of the storage."""

    def __init__(self, free_bytes_min: int, exempt: TopicName) -> None:
        """Create a guard that accepts records; those of the topic ``exempt`` are always accepted."""
        self._free_bytes_min = free_bytes_min
        self._exempt = exempt
        self._rejection: StorageFull | None = None

    def check(self, topic: TopicName) -> None:
        """Return if records of a topic may be appended, else raise StorageFull, which has setting and remedy."""
        if self._rejection is not None and topic != self._exempt:
            raise fresh(self._rejection)

    def measured(self, space: StorageSpace) -> float:
        """Evaluate a measurement; return the seconds until the next one."""
        free_bytes = space.free_bytes
        least = min(self._free_bytes_min, space.total_bytes // TOTAL_PART)
        if self._rejection is None and free_bytes < least:
            self._rejection = StorageFull(
                f"storage has less than {least:,} bytes free, the least for new records (storage_free_bytes_min): "
                "free space on it, raise its size or lower the retention of topics; then records are accepted again"
            )
            log.error("records rejected: %s; %d bytes are free", self._rejection, free_bytes)
        elif self._rejection is not None and free_bytes >= RESUME_RATIO * least:
            self._rejection = None
            log.info("records accepted again: %d bytes of the storage are free", free_bytes)
        return min(PAUSE_S_MAX, max(PAUSE_S_MIN, abs(free_bytes - least) / FILL_BYTES_PER_S))

    async def run(self, store: SegmentStore) -> None:
        """Measure the free space until cancelled. A failed measurement keeps the last result."""
        failures = OnceLogger(log)
        while True:
            pause_s = PAUSE_S_MAX
            try:
                space = await store.space()
            except StorageFailed as error:
                failures.add("measurement of free space", error)
            else:
                failures.over("measurement of free space")
                if space is not None:
                    pause_s = self.measured(space)
            await asyncio.sleep(pause_s)
