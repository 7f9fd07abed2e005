"""One stay of a broker in the cluster."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.coordination.session import Session
from seaweedmq.model.broker import BrokerInfo


class Term:
    """A lease, the broker id that goes with it, and what runs under it. Over with the lease; then make another."""

    def __init__(
        self,
        info: BrokerInfo,
        session: Session,
        leader: Leader,
        followers: FollowerService,
        begin: Callable[[], list[asyncio.Task[None]]],
    ) -> None:
        self.id = info.id
        self.session = session
        self.leader = leader
        self.followers = followers
        self._info = info
        self._begin = begin
        self._duties: list[asyncio.Task[None]] = []
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether the lease is gone, or about to be given back: nothing may be said or done under the id any more."""
        return self._ended or self.session.lost.is_set()

    def begin(self) -> None:
        """Start the duties."""
        self._duties = self._begin()

    async def announce_draining(self) -> None:
        """Register as draining, under the same lease. Fenced: that has ended."""
        self._info = replace(self._info, draining=True)
        await self.session.update(self._info)

    async def end(self) -> None:
        """Stop the duties and give the lease back. Again is no error."""
        if self._ended:
            return
        self._ended = True
        for task in self._duties:
            task.cancel()
        if self._duties:
            await asyncio.wait(self._duties)
        await self.session.leave(self.id)
        await self.session.close()
