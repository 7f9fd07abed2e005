"""Fixtures of the wire tests."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH_LOOPS = frozenset({"test_connection.py"})


@pytest.fixture(autouse=True)
def _short_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close half-closed connections soon: a dead client looks like one that ended its half."""
    monkeypatch.setattr("seaweedmq.kafka.wire.deadlines.HALF_CLOSED_S", 0.5)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests on uvloop as brokers do: its sockets differ from asyncio's."""
    both = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    return both if item.path.name in ON_BOTH_LOOPS else {"uvloop": uvloop.new_event_loop}
