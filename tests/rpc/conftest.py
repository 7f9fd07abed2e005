"""Fixtures: a served fake broker, and a client that dials it."""

from collections.abc import AsyncIterator

import pytest

from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import RpcServer, serve
from tests.rpc.fake_broker import FakeBroker


@pytest.fixture
def fake() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
async def server(fake: FakeBroker) -> AsyncIterator[RpcServer]:
    running = await serve(fake, "127.0.0.1:0", BrokerConfig(streams_max=8))
    yield running
    await running.stop(0)


@pytest.fixture
async def dialer() -> AsyncIterator[GrpcDialer]:
    dialer = GrpcDialer()
    yield dialer
    await dialer.close()


@pytest.fixture
def broker(server: RpcServer, dialer: GrpcDialer) -> BrokerApi:
    return dialer.dial(server.address)
