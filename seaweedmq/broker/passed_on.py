"""A broker as another one sees it that passes a call on: it answers by itself, or not at all."""

from collections.abc import Callable, Coroutine
from typing import Any

from seaweedmq.broker.forward import Forwarding
from seaweedmq.broker.group_calls import GroupCalls
from seaweedmq.broker.leader_calls import LeaderCalls
from seaweedmq.errors import Unavailable


class PassedOn(LeaderCalls, GroupCalls):
    """Implements ``ports.LeaderApi``."""

    def __init__(
        self, forward: Forwarding, *, broker_id: Callable[[], str], drain: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(forward)
        self._id = broker_id
        self._drain = drain

    async def drain_broker(self, broker: str) -> None:
        """See ``ports.LeaderApi``. Brokers are named by id here."""
        if broker != self._id():
            raise Unavailable(f"broker {broker} came back as {self._id()} a moment ago: try again")
        await self._drain()
