"""A call that one broker passes on to another arrives as such, and no other does."""

from collections.abc import AsyncIterator

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.groups import GroupOpen, GroupRequest
from seaweedmq.model.protocol import EARLIEST
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from tests.rpc.fake_broker import NAME, FakeBroker


async def test_what_is_passed_on_is_told_apart(dialer: GrpcDialer) -> None:
    fake = FakeBroker()
    fake.passed_on = last = FakeBroker()
    server = await serve(fake, "127.0.0.1:0", BrokerConfig())
    broker = dialer.dial(server.address)

    await broker.cluster_status()
    await broker.delete_topic(NAME)
    assert (len(fake.calls), len(last.calls)) == (2, 0)

    await broker.passed_on.cluster_status()
    await broker.passed_on.delete_topic(NAME)
    assert (len(fake.calls), len(last.calls)) == (2, 2)

    async def requests() -> AsyncIterator[GroupRequest]:
        yield GroupOpen(group="g", topic=NAME, member="m", incarnation=7, start=EARLIEST, client="test", held={})

    assert [reply async for reply in broker.passed_on.join_group(requests())]
    assert len(fake.received) == 0
    assert len(last.received) == 1
    await server.stop(0)
