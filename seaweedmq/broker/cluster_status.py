"""Status of the cluster: the leader's, or, while etcd lets no broker lead, this broker's own with the reason."""

import asyncio
from collections.abc import Callable

from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.leader_forwarder import LeaderForwarder
from seaweedmq.errors import DeadlineExceeded, Unavailable
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.messages.calls import GetClusterStatus

PATIENCE_S = 1.0
"""Time to find a leader while etcd rejects calls of this broker, in seconds."""


async def leader_status(leader: Leader, _: GetClusterStatus) -> ClusterStatus:
    """Return the status as a leader has it."""
    return leader.status()


class StatusService:
    """The handler of ``calls.GetClusterStatus``."""

    def __init__(self, forward: LeaderForwarder, trouble: Callable[[], str], timeout_s: float) -> None:
        """Create the handler; ``trouble`` returns the reason why etcd rejects calls of this broker, or ""."""
        self._forward = forward
        self._trouble = trouble
        self._timeout_s = timeout_s

    async def status(self, request: GetClusterStatus) -> ClusterStatus:
        """Return the leader's status, or this broker's own, which names no leader and has the reason.

        Raises Unavailable if no broker leads though etcd answers, or this broker was never registered.
        """
        patience_s = PATIENCE_S if self._trouble() else self._timeout_s
        try:
            async with asyncio.timeout(patience_s):
                return await self._forward.call(request, leader_status)
        except (Unavailable, DeadlineExceeded, TimeoutError) as error:
            if self._trouble():
                return self._forward.own().status(leads=False)
            if isinstance(error, TimeoutError):
                raise Unavailable(f"no leader answered within {patience_s:g} s: retry") from None
            raise
