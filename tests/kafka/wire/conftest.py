"""What tests of the wire share."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH_LOOPS = frozenset({"test_connection.py", "test_clients.py"})


@pytest.fixture(autouse=True)
def _short_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are gone look like those that ended their half of the connection."""
    monkeypatch.setattr("seaweedmq.kafka.wire.connection.HALF_CLOSED_S", 0.5)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Brokers run on uvloop, whose sockets are others than those of asyncio."""
    both = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    return both if item.path.name in ON_BOTH_LOOPS else {"uvloop": uvloop.new_event_loop}
