"""A broker that starts at the address of an earlier one is reachable at once."""

import pytest

from seaweedmq.errors import Closed, ConnectionRefused, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.calls import ListTopics
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc import transport
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from tests.rpc.fake_broker import FakeBroker
from tests.support.free_ports import free_ports

NEVER_MS = 600_000


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable gRPC's own reconnects."""
    options = transport.client_options
    fixed = {f"grpc.{which}_reconnect_backoff_ms": NEVER_MS for which in ("initial", "max")}
    monkeypatch.setattr(
        "seaweedmq.rpc.client.client_options",
        lambda most: tuple((name, fixed.get(name, value)) for name, value in options(most)),
    )


async def refused(broker: BrokerApi) -> None:
    with pytest.raises(ConnectionRefused):
        await broker.call(ListTopics())


@pytest.mark.usefixtures("stubborn")
async def test_a_refusal_of_before_is_forgotten(fake: FakeBroker, dialer: GrpcDialer) -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    dialer.renew(address)  # an unknown address does no harm
    await refused(dialer.dial(address))
    server = await serve(fake, address, BrokerConfig())
    await refused(dialer.dial(address))
    dialer.renew(address)
    assert await dialer.dial(address).call(ListTopics()) is not None
    await server.stop(0)


async def test_calls_under_way_go_on_and_old_connections_do_not_add_up(fake: FakeBroker, dialer: GrpcDialer) -> None:
    server = await serve(fake, "127.0.0.1:0", BrokerConfig())
    first = dialer.dial(server.address)
    assert await first.call(ListTopics()) is not None
    dialer.renew(server.address)
    assert dialer.dial(server.address) is not first
    assert await first.call(ListTopics()) is not None
    dialer.renew(server.address)
    assert await dialer.dial(server.address).call(ListTopics()) is not None
    with pytest.raises(Unavailable, match="another broker has the address: retry"):
        await first.call(ListTopics())
    await dialer.close()
    with pytest.raises(Closed):
        dialer.dial(server.address)
    await server.stop(0)
