"""Kafka listener of a simulated broker: the gateway's connections and handlers on bytes of the simulated network.

``_Transport`` replaces the socket; all code behind it is the product's.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

from seaweedmq.kafka.gateway import handlers_of
from seaweedmq.kafka.handlers import Handlers
from seaweedmq.kafka.server import KafkaServer
from seaweedmq.kafka.wire.connection import Connection
from seaweedmq.model.config import KIB, BrokerConfig
from seaweedmq.ports import loop_s
from seaweedmq.runtime.turns import Turns
from tests.sim.machines.network import Answer

KAFKA_PORT = 9092
SNAPSHOT_AFTER_BYTES = 4 * KIB
"""Log bytes after which a coordinator writes a snapshot; small, because runs are short."""


def kafka_address(address: str) -> str:
    return f"{address.partition(':')[0]}:{KAFKA_PORT}"


class KafkaListener:
    """The listener at ``kafka_address``, open from the broker's joining until its leaving."""

    def __init__(self, handlers: Handlers, config: BrokerConfig, in_flight_bytes_max: int) -> None:
        turns = Turns(loop_s)  # no turn ends in virtual time
        self._server = KafkaServer(handlers_of(handlers.all), config, in_flight_bytes_max, turns)
        self._numbers = itertools.count(1)

    async def kafka(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[Answer, None]:
        number = next(self._numbers)
        connection = Connection(self._server, number)
        transport = _Transport(connection, number)
        connection.connection_made(transport)
        reading = asyncio.create_task(_read(requests, connection, transport), name="Kafka connection")
        try:
            while (data := await transport.written()) is not None:
                yield Answer(data)
        finally:
            reading.cancel()
            transport.is_over = True
            connection.connection_lost(None)
            with suppress(asyncio.CancelledError):
                await reading

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


async def _read(requests: AsyncIterator[bytes], connection: Connection, transport: "_Transport") -> None:
    async for data in requests:
        left = memoryview(data)
        while left and not transport.is_over:
            await transport.may_read.wait()
            buffer = connection.get_buffer(-1)
            size = min(len(buffer), len(left))
            buffer[:size] = left[:size]
            connection.buffer_updated(size)
            left = left[size:]
    transport.close()


class _Transport(asyncio.Transport):
    """The socket as a connection sees it."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__({"peername": ("10.0.0.1", number)})
        self._connection = connection
        self._written: deque[bytes] = deque()
        self._news = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.is_over = False

    async def written(self) -> bytes | None:
        """Return the next written bytes, or None once the transport is closed."""
        while not self._written:
            if self.is_over:
                return None
            self._news.clear()
            await self._news.wait()
        return self._written.popleft()

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._written.append(b"".join(list_of_data))
        self._news.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: a run writes little."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.may_read.clear()

    def resume_reading(self) -> None:
        self.may_read.set()

    def close(self) -> None:
        self.is_over = True
        self.may_read.set()
        self._news.set()

    def abort(self) -> None:
        self._written.clear()
        self.close()
