"""Calls that only the leader can answer, made by whichever broker a client happens to talk to."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from seaweedmq.broker.leader.leader import Leader, NoLeader
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Deposed, StaleMetadata, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.calls import Call
from seaweedmq.ports import Dialer, LeaderApi
from seaweedmq.runtime.closing import closing
from seaweedmq.runtime.retrying import after_s, backoff, retrying

R = TypeVar("R")


class LeaderForwarder:
    """Finds the leader: this broker, or another one that is dialled."""

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
        """``forwarded``: for calls that another broker passed on. They go no further."""
        self._forwarded = forwarded
        self._view = view
        self._dialer = dialer
        self._own = own
        self._rng = rng
        self._timeout_s = timeout_s

    def no_further(self) -> "LeaderForwarder":
        """The same for calls that another broker passed on."""
        return LeaderForwarder(self._view, self._dialer, self._own, self._rng, self._timeout_s, forwarded=True)

    async def call(self, request: Call[R], answer: Callable[[Leader, Any], Awaitable[R]]) -> R:
        """Have the leader answer. While there is none, wait for one; an unclear outcome is the caller's to judge."""

        async def attempt() -> R:
            own = self._own()
            if own.leading:
                return await _here(own, answer(own, request))
            return await self._dialer.dial(self._another(own).address).forwarded.call(request)

        waiting = retrying(backoff(self._rng, 0.05, 0.5), on=NoLeader, stop=after_s(self._timeout_s))
        return await waiting(attempt)

    async def stream(
        self, local: Callable[[Leader], AsyncIterator[R]], remote: Callable[[LeaderApi], AsyncIterator[R]]
    ) -> AsyncGenerator[R, None]:
        """Replies of the leader, as long as it leads: a frozen one would never end its stream.

        Raises:
            NoLeader: nobody leads now.
            StaleMetadata: another broker leads since a moment.
            Unavailable: brokers disagree about who leads.
        """
        own = self._own()
        if own.leading:
            async with closing(local(own)) as replies:
                async for reply in replies:
                    yield reply
            return
        info = self._another(own)
        async with (
            closing(remote(self._dialer.dial(info.address).forwarded)) as replies,
            closing(self._while_leading(info, replies)) as heard,
        ):
            async for reply in heard:
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
                        coming.exception()  # retrieved, or asyncio complains of it when the caller is gone
                if coming.cancelled():
                    raise StaleMetadata(f"broker {info.id} does not lead any more: come back to find the new leader")
                news = coming.result()
                if news is None:
                    return
                yield news
        finally:
            moved.cancel()
            await asyncio.wait({moved})

    async def _leader_moves(self, before: str) -> None:
        while self._view.leader == before:
            await self._view.wait_change(self._view.changes)

    def _another(self, own: Leader) -> BrokerInfo:
        """The leader, if that is not this broker.

        Raises:
            NoLeader: nobody leads, or this broker is about to.
            Unavailable: the call was passed on to this broker, which does not lead.
        """
        info = self._view.brokers.get(self._view.leader or "")
        if info is None or info.id == own.broker_id:
            raise NoLeader("no broker leads the cluster at the moment: try again in some seconds")
        if self._forwarded:
            raise Unavailable(
                f"broker {own.broker_id} was taken for the leader, and knows {info.id} as such: try again in a moment"
            )
        return info


async def _here(own: Leader, answering: Awaitable[R]) -> R:
    try:
        return await answering
    except Deposed as error:
        if own.leading:
            raise
        raise NoLeader(f"the leader changed in the middle: {error}") from error
