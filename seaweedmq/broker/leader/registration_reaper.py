"""Reaper of stale registrations: only the leader can delete a registration without a lease."""

import asyncio
import logging

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.errors import SeaweedMQError
from seaweedmq.ports import Compare, Delete
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

RETRY_S = 1.0


class RegistrationReaper:
    """The leader's reaper of stale registrations, which the view ignores from the start: see ``repairer``."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._failures_log = OnceLogger(log)

    async def run(self) -> None:
        """Delete stale registrations until cancelled."""
        view = self._metadata.view
        while True:
            seen = view.changes
            for key, revision in sorted(view.stale_registrations.items()):
                await self._delete(key, revision)
            await view.wait_change(seen)

    async def _delete(self, key: str, revision: int) -> None:
        as_seen = Compare(key, mod_revision=revision, lease=0)
        try:
            if await self._metadata.transact([as_seen], [Delete(key)]) is not None:
                log.warning("stale registration deleted: %s", key)
        except SeaweedMQError as error:
            self._failures_log.add(f"deletion of stale registration {key}", error)
            await asyncio.sleep(RETRY_S)
            self._metadata.view.wake()
