"""A stream with one broker, with a deadline for each reply, closed on every exit."""

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
    """The replies of a broker, and the deadline of the next one.

    Calls have no effect while the stream is being closed, which takes as long as gRPC takes.
    """

    def __init__(self, address: str, replies: AsyncIterator[R], limit: asyncio.Timeout) -> None:
        self.address = address
        self.replies = replies
        self._limit = limit
        self._is_over = False
        self.failure: SeaweedMQError | None = None
        """The error with which this side ends the stream; None while it does not."""

    def end(self, error: SeaweedMQError) -> None:
        """End the stream with an error that is not the broker's fault."""
        if self._can_still_wait():
            self.failure = error
            self._limit.reschedule(asyncio.get_running_loop().time())

    def expect(self, within_s: float | None) -> None:
        """Set the deadline of the next reply, in seconds from now; None removes it. It replaces the previous one."""
        if self.failure is None and self._can_still_wait():
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(None if within_s is None else now + within_s)

    def over(self) -> None:
        """Mark the stream as over: no reply is awaited."""
        self._is_over = True

    def _can_still_wait(self) -> bool:
        return not (self._is_over or self._limit.expired())


@asynccontextmanager
async def broker_stream(
    cluster: Cluster, address: str, open_stream: Callable[[BrokerApi], AsyncIterator[R]], what: str
) -> AsyncIterator[BrokerStream[R]]:
    """Open a stream to a broker; ``what`` is its subject, for error messages.

    The first reply is due within the cluster's ``answer_timeout_s``. If a reply is late, Unavailable is raised and the
    broker is avoided for a while. The error of :meth:`BrokerStream.end` is raised here.
    """
    stream: BrokerStream[R] | None = None
    with cluster.reaching(address):
        try:
            async with (
                closing(open_stream(cluster.dial(address))) as replies,
                asyncio.timeout(cluster.answer_timeout_s(address)) as limit,
            ):
                stream = BrokerStream(address, replies, limit)
                try:
                    yield stream
                finally:
                    stream.over()
        except TimeoutError:
            if stream is not None and stream.failure is not None:
                raise stream.failure from None
            raise Unavailable(f"broker {address} does not answer for {what}: retry") from None
