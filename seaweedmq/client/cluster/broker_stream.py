"""One stream with one broker: dialled, answered in time, and closed however it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.ports import BrokerApi
from seaweedmq.runtime.closing import closing

R = TypeVar("R")


class BrokerStream(Generic[R]):
    """``replies`` of the broker, and how long the next one may take.

    Whoever holds one may go on speaking of it while it is being closed, which takes as long as gRPC takes: that changes
    nothing any more.
    """

    def __init__(self, address: str, replies: AsyncIterator[R], limit: asyncio.Timeout) -> None:
        self.address = address
        self.replies = replies
        self._limit = limit
        self._is_over = False
        self.failure: SeaweedMQError | None = None
        """Why it is being ended by this side."""

    def end(self, error: SeaweedMQError) -> None:
        """End it with this error, which is no fault of the broker's."""
        if self._can_still_wait():
            self.failure = error
            self._limit.reschedule(asyncio.get_running_loop().time())

    def expect(self, within_s: float | None) -> None:
        """The next reply is due in so many seconds; None: it may take any time. Said anew, the last one counts."""
        if self.failure is None and self._can_still_wait():
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(None if within_s is None else now + within_s)

    def over(self) -> None:
        """Nothing is awaited of the broker any more."""
        self._is_over = True

    def _can_still_wait(self) -> bool:
        return not (self._is_over or self._limit.expired())


@asynccontextmanager
async def broker_stream(
    cluster: Cluster, address: str, open_stream: Callable[[BrokerApi], AsyncIterator[R]], what: str
) -> AsyncIterator[BrokerStream[R]]:
    """Open a stream to the broker at ``address``. The first reply is awaited for ``answer_timeout_s`` of the cluster.

    Args:
        what: what it is about, for people.

    Raises:
        Unavailable: a reply did not come in time, and the broker is avoided for a while.
        SeaweedMQError: what :meth:`BrokerStream.end` was given.
    """
    talk: BrokerStream[R] | None = None
    with cluster.reaching(address):
        try:
            async with (
                closing(open_stream(cluster.dial(address))) as replies,
                asyncio.timeout(cluster.answer_timeout_s(address)) as limit,
            ):
                talk = BrokerStream(address, replies, limit)
                try:
                    yield talk
                finally:
                    talk.over()
        except TimeoutError:
            if talk is not None and talk.failure is not None:
                raise talk.failure from None
            raise Unavailable(f"broker {address} does not answer for {what}") from None
