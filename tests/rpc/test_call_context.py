"""Calls and streams arrive with the address of their caller, the listener and the deadline; forwarded ones as such."""

import asyncio
from contextlib import AbstractAsyncContextManager
from math import inf

import pytest

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.call_context import ANONYMOUS, ListenerKind
from seaweedmq.model.messages.calls import DeleteTopic, DescribeTopic, GetClusterStatus
from seaweedmq.model.messages.groups import GroupOpen
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from tests.rpc.fake_broker import NAME, OPEN, FakeBroker, stream_of


async def test_a_unary_call_arrives_with_its_peer_and_deadline(fake: FakeBroker, broker: BrokerApi) -> None:
    await broker.call(DeleteTopic(NAME))
    await broker.call(DescribeTopic(NAME))  # travels together with others
    now = asyncio.get_running_loop().time()
    for context in fake.contexts:
        assert (context.listener, context.caller) == (ListenerKind.NATIVE, ANONYMOUS)
        assert context.peer.startswith("ipv4:127.0.0.1:")
        assert now < context.deadline_s < now + 60
    assert len(fake.contexts) == 2


async def test_a_stream_arrives_with_its_peer_and_without_a_deadline(fake: FakeBroker, broker: BrokerApi) -> None:
    assert [reply async for reply in broker.publish(stream_of(OPEN))]
    await broker.report_load(stream_of())
    for context in fake.contexts:
        assert (context.listener, context.deadline_s) == (ListenerKind.NATIVE, inf)
        assert context.peer.startswith("ipv4:127.0.0.1:")
    assert len(fake.contexts) == 2


JOINING = GroupOpen(group="g", topic=NAME, member="m", incarnation=7, start=EARLIEST, client="test", held={})


class NoMemory:
    """A memory limit without room for any stream."""

    def lent(self) -> AbstractAsyncContextManager[None]:
        raise ResourceExhausted("no memory")


async def test_what_is_passed_on_is_told_apart(dialer: GrpcDialer) -> None:
    fake = FakeBroker()
    fake.forwarded = last = FakeBroker()
    server = await serve(fake, "127.0.0.1:0", BrokerConfig())
    broker = dialer.dial(server.address)
    await broker.call(GetClusterStatus())
    await broker.call(DeleteTopic(NAME))
    assert (len(fake.calls), len(last.calls)) == (2, 0)
    await broker.forwarded.call(GetClusterStatus())
    await broker.forwarded.call(DeleteTopic(NAME))
    assert (len(fake.calls), len(last.calls)) == (2, 2)
    assert [reply async for reply in broker.forwarded.join_group(stream_of(JOINING))]
    assert len(fake.received) == 0
    assert len(last.received) == 1
    await server.stop(0)


async def test_a_stream_that_is_passed_on_waits_for_no_memory(dialer: GrpcDialer) -> None:
    """The forwarding broker holds memory for the stream, and others may wait for that."""
    fake = FakeBroker()
    fake.forwarded = FakeBroker()
    server = await serve(fake, "127.0.0.1:0", BrokerConfig(), memory=NoMemory())
    broker = dialer.dial(server.address)
    with pytest.raises(ResourceExhausted, match="no memory"):
        assert [reply async for reply in broker.join_group(stream_of(JOINING))]
    assert [reply async for reply in broker.forwarded.join_group(stream_of(JOINING))]
    await server.stop(0)
