"""Forwarder of calls to the leader, on any broker that a client calls."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from seaweedmq.broker.leader.leader import Leader, NoLeader
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Deposed, StaleMetadata, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.messages.calls import Call
from seaweedmq.ports import Dialer, LeaderApi
from seaweedmq.runtime.closing import closing
from seaweedmq.runtime.retrying import after_s, backoff, retrying

R = TypeVar("R")


class LeaderForwarder:
    """The access to the leader: this broker, or another one that it dials."""

    def __init__(
        self,
        view: ClusterView,
        dialer: Dialer,
        own: Callable[[], Leader],
        rng: random.Random,
        timeout_s: float,
        *,
        forwarded: bool = False,
    ) -> None:
        """Create the forwarder, which waits up to ``timeout_s`` for a leader and passes on no ``forwarded`` call.

        ``own`` returns this broker's own duties as a leader; it raises Unavailable while the broker is not registered.
        """
        self._forwarded = forwarded
        self._view = view
        self._dialer = dialer
        self.own = own
        """Function that returns this broker's own duties as a leader."""
        self._rng = rng
        self._timeout_s = timeout_s

    def without_forwarding(self) -> "LeaderForwarder":
        """Return the forwarder for calls that another broker forwarded."""
        return LeaderForwarder(self._view, self._dialer, self.own, self._rng, self._timeout_s, forwarded=True)

    async def call(self, request: Call[R], answer: Callable[[Leader, Any], Awaitable[R]]) -> R:
        """Return the leader's answer, waiting while there is none. Calls with an unknown outcome are not retried."""

        async def attempt() -> R:
            own = self.own()
            if own.leading:
                return await _here(own, answer(own, request))
            return await self._dialer.dial(self._another(own).address).forwarded.call(request)

        waiting = retrying(backoff(self._rng, 0.05, 0.5), on=NoLeader, stop=after_s(self._timeout_s))
        return await waiting(attempt)

    async def stream(
        self, local: Callable[[Leader], AsyncIterator[R]], remote: Callable[[LeaderApi], AsyncIterator[R]]
    ) -> AsyncGenerator[R, None]:
        """Yield the replies of the leader while it leads: a frozen one would never end its stream.

        Raises NoLeader if no broker leads, StaleMetadata if another one has become the leader, and Unavailable if
        brokers disagree about that.
        """
        own = self.own()
        if own.leading:
            async with closing(local(own)) as replies:
                async for reply in replies:
                    yield reply
            return
        info = self._another(own)
        async with (
            closing(remote(self._dialer.dial(info.address).forwarded)) as replies,
            closing(self._while_leading(info, replies)) as leader_replies,
        ):
            async for reply in leader_replies:
                yield reply

    async def _while_leading(self, info: BrokerInfo, replies: AsyncIterator[R]) -> AsyncGenerator[R, None]:
        moved = asyncio.create_task(self._leader_moves(info.id), name=f"until {info.id} does not lead")
        try:
            while True:
                coming = asyncio.ensure_future(anext(replies, None))
                try:
                    await asyncio.wait({coming, moved}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.wait({coming})
                    if not coming.cancelled():
                        coming.exception()  # retrieve it, or asyncio logs it if the caller is cancelled
                if coming.cancelled():
                    raise StaleMetadata(f"broker {info.id} no longer leads: retry")
                reply = coming.result()
                if reply is None:
                    return
                yield reply
        finally:
            moved.cancel()
            await asyncio.wait({moved})

    async def _leader_moves(self, before: str) -> None:
        while self._view.leader == before:
            await self._view.wait_change(self._view.changes)

    def _another(self, own: Leader) -> BrokerInfo:
        """Return the leader, if it is not this broker.

        Raises NoLeader if no broker leads or this one is about to, and Unavailable if the call was forwarded here.
        """
        info = self._view.brokers.get(self._view.leader or "")
        if info is None or info.id == own.broker_id:
            raise NoLeader("no broker leads the cluster at the moment: retry")
        if self._forwarded:
            raise Unavailable(f"broker {own.broker_id} is not the leader, broker {info.id} is: retry")
        return info


async def _here(own: Leader, answering: Awaitable[R]) -> R:
    try:
        return await answering
    except Deposed as error:
        if own.leading:
            raise
        raise NoLeader(f"the leader changed during the call: {error}") from error
