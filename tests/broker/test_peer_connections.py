"""Connections to brokers by id: one new connection for each broker that takes over an address."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.broker.peer_connections import PeerConnections
from seaweedmq.errors import Unavailable


class Phone:
    """A dialer that records its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def dial(self, address: str) -> Any:
        self.asked.append(f"dial {address}")
        return address

    def renew(self, address: str) -> None:
        self.asked.append(f"renew {address}")

    async def close(self) -> None: ...


def test_each_broker_at_an_address_is_connected_to_anew() -> None:
    phone = Phone()
    brokers: dict[str, Any] = {"b-1": SimpleNamespace(address="here:1"), "b-2": SimpleNamespace(address="there:1")}
    peers = PeerConnections(cast(Any, SimpleNamespace(brokers=brokers)), phone)
    for _ in range(2):
        assert cast(Any, peers.dial("b-1")) == "here:1"
    assert phone.asked == ["renew here:1", "dial here:1", "dial here:1"]

    phone.asked.clear()
    brokers["b-3"] = SimpleNamespace(address="here:1")  # while the lease of its predecessor lives
    peers.dial("b-3")
    peers.dial("b-1")
    peers.dial("b-3")
    assert phone.asked == ["renew here:1", *["dial here:1"] * 3]

    del brokers["b-1"]
    with pytest.raises(Unavailable, match="broker b-1 is not registered"):
        peers.dial("b-1")
