"""Registrations without a lease: nobody lives there, and nobody but the leader would ever delete them."""

import asyncio
import logging

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.errors import SeaweedMQError
from seaweedmq.ports import Compare, Delete
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

RETRY_S = 1.0


class RegistrationReaper:
    """Deletes them. The view leaves them out from the beginning: their segments have lost a replica, see ``repair``."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._complaints = OnceLogger(log)

    async def run(self) -> None:
        """Until cancelled."""
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
                log.warning("deleted %s, which had no lease: no broker lives there", key)
        except SeaweedMQError as error:
            self._complaints.add(f"deleting {key}, which has no lease", error)
            await asyncio.sleep(RETRY_S)
            self._metadata.view.nudge()
