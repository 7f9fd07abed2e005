"""In-memory socket between the listener and a client that reads replies on command."""

import asyncio
from collections.abc import Sequence
from typing import Any

from seaweedmq.kafka.server import KafkaServer
from seaweedmq.kafka.wire.connection import Connection
from seaweedmq.kafka.wire.messages import Buffer
from tests.kafka.wire.script import framed


class MemorySocket(asyncio.Transport):
    """A transport that reads no replies by itself. Like the loops' sockets, it closes once all are read."""

    def __init__(self, server: KafkaServer, number: int) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._waiting_bytes = 0
        self._is_ending = False
        self.is_closed = False
        self.received_bytes = 0
        """Bytes of replies that the client has read."""
        self.connection = Connection(server, number)
        self.connection.connection_made(self)

    # The client.

    def ask(self, api: int, version: int, body: Any, client_id: str = "client") -> None:
        data = framed(1, api, version, body, client_id)
        self.connection.get_buffer(len(data))[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def end(self) -> None:
        self.connection.eof_received()

    def take(self, size_bytes: int) -> None:
        """Read this much of the replies, or all of them."""
        taken = min(size_bytes, self._waiting_bytes)
        self.received_bytes += taken
        self._waiting_bytes -= taken
        if taken and not self._waiting_bytes:
            self.connection.resume_writing()
        if self._is_ending and not self._waiting_bytes:
            self.abort()

    # The transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        was_empty = not self._waiting_bytes
        self._waiting_bytes += sum(map(len, list_of_data))
        if was_empty:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self._is_ending = True
        if not self._waiting_bytes:
            self.abort()

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.call_soon(self.connection.connection_lost, None)
