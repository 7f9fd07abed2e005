"""A broker stays below its limit of open files by limits on connections and open segments."""

import asyncio
import contextlib

import pytest

from seaweedmq.cli.servers import broker
from seaweedmq.model.config import BrokerConfig
from seaweedmq.rpc.server import serve
from tests.rpc.fake_broker import FakeBroker


def test_connections_and_open_segments_take_a_quarter_of_the_files_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "files_max", lambda: 256)
    config = broker.within_its_files(BrokerConfig(open_segments_max=10))
    assert (config.connections_max, config.kafka_connections_max, config.open_segments_max) == (64, 64, 10)
    assert (config.kafka_cursors_max, config.file_readers_max) == (16, 16)
    monkeypatch.setattr(broker, "files_max", lambda: None)
    assert broker.within_its_files(BrokerConfig()) == BrokerConfig()


async def test_native_connections_beyond_the_limit_are_closed_and_the_others_stay() -> None:
    server = await serve(FakeBroker(), "127.0.0.1:0", BrokerConfig(connections_max=4))
    try:
        async with contextlib.AsyncExitStack() as stack:
            readers = []
            for _ in range(8):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                stack.callback(writer.close)
                readers.append(asyncio.create_task(reader.read(1)))
            # The server sends HTTP/2 settings on each connection that it accepts.
            await asyncio.wait(readers, timeout=20)
            assert sorted(task.result() for task in readers if task.done()) == [b""] * 4 + [b"\x00"] * 4
    finally:
        await server.stop(0)
