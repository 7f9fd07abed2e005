"""Calls and streams arrive with the address of their caller, the listener, and the caller's deadline."""

import asyncio
from collections.abc import AsyncIterator
from math import inf

from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.call_context import ANONYMOUS, ListenerKind
from seaweedmq.model.messages.calls import DeleteTopic, DescribeTopic
from seaweedmq.model.messages.publish import PublishRequest
from seaweedmq.ports import BrokerApi
from tests.rpc.fake_broker import NAME, OPEN, FakeBroker


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
    async def opening() -> AsyncIterator[PublishRequest]:
        yield OPEN

    async def no_loads() -> AsyncIterator[BrokerLoad]:
        for load in list[BrokerLoad]():
            yield load

    assert [reply async for reply in broker.publish(opening())]
    await broker.report_load(no_loads())
    for context in fake.contexts:
        assert (context.listener, context.deadline_s) == (ListenerKind.NATIVE, inf)
        assert context.peer.startswith("ipv4:127.0.0.1:")
    assert len(fake.contexts) == 2
