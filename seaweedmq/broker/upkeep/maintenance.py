"""Maintenance of files: complete old log files, convert them, merge small tables, delete expired files."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.upkeep.compaction import AutoCompaction
from seaweedmq.broker.upkeep.conversion import Conversion
from seaweedmq.broker.upkeep.payload_sweep import PayloadSweep
from seaweedmq.broker.upkeep.retention import Retention
from seaweedmq.core.files.rolling import roll_bounds
from seaweedmq.errors import StorageFailed
from seaweedmq.model.config import BrokerConfig
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)


class Maintenance:
    """A task that maintains the files of the segments that this broker owns, and of its share of the sealed ones."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        segments: Callable[[], Iterable[OpenSegment]],
        clock: ConfirmedClock,
        conversion: Conversion,
        compaction: AutoCompaction,
        retention: Retention,
        payload_sweep: PayloadSweep,
    ) -> None:
        self._config = config
        self._segments = segments
        self._clock = clock
        self._conversion = conversion
        self._compaction = compaction
        self._retention = retention
        self._payload_sweep = payload_sweep
        self._failures_log = OnceLogger(log)

    async def run(self) -> None:
        """Maintain all files once per interval, until cancelled."""
        while True:
            await asyncio.sleep(self._config.maintenance_interval_s)
            self._clock.read()
            await self._retention.watch_storage_clock()
            for segment in list(self._segments()):
                segment.files.retire_if_older(roll_bounds(segment.topic, self._config).age_s)
                segment.forget_older(self._config.cache_age_s)
            converted = await self._conversion.round()
            await self._compaction.round(converted)
            await self._release_last_logs()
            await self._retention.round(converted)
            self._payload_sweep.begin()

    async def _release_last_logs(self) -> None:
        for segment in list(self._segments()):
            try:
                await segment.release_last_log()
            except StorageFailed as error:
                self._failures_log.add(f"release of the newest log file of {segment.segment}", error)
