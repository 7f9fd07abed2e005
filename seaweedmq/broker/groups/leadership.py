"""Groups hang on the stay as leader: made anew when it begins, ended with it."""

import asyncio
from collections.abc import Callable

from seaweedmq.broker.groups.registry import Groups
from seaweedmq.coordination.election import Election


class GroupLeadership:
    """The groups of one broker's candidacy."""

    def __init__(self, election: Election, make: Callable[[], Groups]) -> None:
        self._election = election
        self._make = make
        self._groups: Groups | None = None

    @property
    def groups(self) -> Groups | None:
        """None while this broker does not surely lead, and for a moment after it began to."""
        return self._groups if self._election.revision is not None else None

    async def run(self) -> None:
        """Coordinate whenever elected, until cancelled."""
        while True:
            await self._election.wait_leading()
            self._groups = self._make()
            coordinating = asyncio.create_task(self._groups.run(), name="groups")
            deposed = asyncio.create_task(self._election.wait_not_leading(), name="groups until deposed")
            try:
                await asyncio.wait({coordinating, deposed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._groups = None
                for task in (coordinating, deposed):
                    task.cancel()
                await asyncio.wait({coordinating, deposed})
            if not coordinating.cancelled():
                coordinating.result()
