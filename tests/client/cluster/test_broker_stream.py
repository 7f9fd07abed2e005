"""The end of a stream to one broker, and errors that arrive while it closes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import StaleMetadata, Unavailable
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster

ADDRESS = "fake:9000"
NEWS = StaleMetadata("the segment has ended")


class Replies(AsyncIterator[int]):
    """Replies of a broker that sends one and then none. As in gRPC, closing waits for the sender of the requests, here
    until ``closed`` is set.
    """

    def __init__(self) -> None:
        self.left = [1]
        self.closing = asyncio.Event()
        self.closed = asyncio.Event()

    async def __anext__(self) -> int:
        if self.left:
            return self.left.pop()
        await asyncio.Event().wait()
        raise AssertionError("never set")

    async def aclose(self) -> None:
        self.closing.set()
        await self.closed.wait()


class Talking:
    """A task with an open broker stream until ``leave`` is set, or until awaiting a reply ends it."""

    def __init__(self, cluster: Cluster) -> None:
        self.replies = Replies()
        self.leave = asyncio.Event()
        self.talks: asyncio.Future[BrokerStream[int]] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._converse(cluster))

    async def _converse(self, cluster: Cluster) -> str:
        async with broker_stream(cluster, ADDRESS, lambda _: self.replies, "a test") as stream:
            assert await anext(stream.replies) == 1
            stream.expect(None)
            self.talks.set_result(stream)
            await self.leave.wait()
        return "left"


@pytest.fixture
async def talking() -> Talking:
    return Talking(Cluster((ADDRESS,), FakeCluster().dialer(), environment(), QUICK))


async def test_it_ends_with_the_error_that_this_side_gives_it(talking: Talking) -> None:
    stream = await talking.talks
    stream.end(NEWS)
    talking.replies.closed.set()
    with pytest.raises(StaleMetadata, match="has ended"):
        await talking.task


async def test_a_reply_that_is_late_ends_it_as_the_broker_s_fault(talking: Talking) -> None:
    stream = await talking.talks
    stream.expect(0.2)
    talking.replies.closed.set()
    with pytest.raises(Unavailable, match="broker fake:9000 does not answer for a test"):
        await talking.task


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_is_said_while_it_is_being_closed_changes_nothing(talking: Talking, is_late: bool) -> None:
    stream = await talking.talks
    if is_late:
        stream.expect(0.2)
    else:
        talking.leave.set()
    await talking.replies.closing.wait()
    stream.end(NEWS)
    stream.expect(1.0)
    talking.replies.closed.set()
    if is_late:
        with pytest.raises(Unavailable):
            await talking.task
    else:
        assert await talking.task == "left"


async def test_what_is_said_between_its_end_and_the_close_changes_nothing(talking: Talking) -> None:
    stream = await talking.talks
    stream.expect(0.0)
    asyncio.get_running_loop().call_soon(stream.end, NEWS)
    asyncio.get_running_loop().call_soon(stream.expect, 1.0)
    talking.replies.closed.set()
    with pytest.raises(Unavailable):
        await talking.task
