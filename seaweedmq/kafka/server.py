"""Listener for Kafka clients, with connection limits and a stop that answers the requests already read."""

import asyncio
import errno
import itertools
import logging
import socket
from collections.abc import Mapping

from seaweedmq.errors import AlreadyExists, InvalidArgument
from seaweedmq.kafka.dispatch import RequestScheduler, Tasks
from seaweedmq.kafka.wire.budget import RequestMemory
from seaweedmq.kafka.wire.connection import RECEIVE_BYTES, Connection
from seaweedmq.kafka.wire.interfaces import ConnectionHandle, ConnectionLimits
from seaweedmq.kafka.wire.messages import Handler
from seaweedmq.model.config import BrokerConfig
from seaweedmq.runtime.turns import Turns

log = logging.getLogger(__name__)

BACKLOG = 1_024
_IDS = itertools.count(1)


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket to an address without listening; ``getsockname`` has the chosen port if ``port`` is 0.

    Raises AlreadyExists if the port is taken, and InvalidArgument if the host is not an address of this machine, or the
    process may not bind the port.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except socket.gaierror as error:
        bound.close()
        raise InvalidArgument(f"cannot listen for Kafka on {host}: {error.strerror}") from None
    except OSError as error:
        bound.close()
        kind = AlreadyExists if error.errno == errno.EADDRINUSE else InvalidArgument
        raise kind(f"cannot listen for Kafka on {host}:{port}: {error.strerror}") from None
    bound.setblocking(False)
    return bound


class KafkaServer:
    """The listener that passes the requests of all connections to ``handlers``, by API key.

    ``dispatch.RequestOrder`` defines the order of requests. All connections share ``limits``, ``in_flight``, ``turns``
    and ``buffer``.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        config: BrokerConfig,
        in_flight_bytes_max: int | None = None,
        turns: Turns | None = None,
    ) -> None:
        """Create a server that does not listen yet, with ``handlers`` by API key.

        ``in_flight_bytes_max`` is for requests and replies in memory; None: ``kafka_in_flight_bytes_max``. ``turns``
        schedules long requests; None: on the clock of the machine.
        """
        self.limits = ConnectionLimits(
            request_bytes_max=config.kafka_request_bytes_max,
            requests_max=config.kafka_requests_per_connection_max,
            read_s=config.kafka_request_read_s,
            idle_s=config.kafka_connection_idle_s,
        )
        self.in_flight = RequestMemory(in_flight_bytes_max or config.kafka_in_flight_bytes_max)
        self.turns = turns or Turns()
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._handlers = handlers
        self._connections_max = config.kafka_connections_max
        self._connections: set[ConnectionHandle] = set()
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._all_closed = asyncio.Event()
        self._is_full = False

    @property
    def connections(self) -> int:
        """Number of open connections. Tests use it to detect leaked ones."""
        return len(self._connections)

    @property
    def requests(self) -> int:
        """Number of tasks that answer requests."""
        return len(self._tasks)

    async def start(self, bound: socket.socket) -> None:
        """Listen on a socket of :func:`bind`, now the server's; AlreadyExists if another process listens there."""
        host, port = bound.getsockname()[:2]
        loop = asyncio.get_running_loop()
        try:
            bound.listen(BACKLOG)
            self._server = await loop.create_server(lambda: Connection(self, next(_IDS)), sock=bound, backlog=BACKLOG)
        except OSError as error:
            raise AlreadyExists(f"cannot listen for Kafka on {host}:{port}: {error.strerror}") from None

    async def stop(self, grace_s: float) -> None:
        """Stop accepting and reading, answer the requests already read, and close all connections.

        Requests that are unanswered after ``grace_s`` seconds are cancelled.
        """
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(grace_s):
                while self._connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            log.warning("Kafka connections closed with unanswered requests: %d", len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)  # lets the tasks see their cancellation
        await self._tasks.ended(grace_s)

    def opened(self, connection: ConnectionHandle) -> RequestScheduler | None:
        """Register a connection; return its scheduler, or None if ``kafka_connections_max`` connections are open."""
        if len(self._connections) >= self._connections_max:
            if not self._is_full:  # one line until a connection closes
                self._is_full = True
                log.warning(
                    "Kafka connections rejected: first from %s, all %d of kafka_connections_max are open: close some "
                    "or raise it",
                    connection.context.peer,
                    self._connections_max,
                )
            return None
        self._connections.add(connection)
        return RequestScheduler(connection, self._handlers, self._tasks)

    def closed(self, connection: ConnectionHandle) -> None:
        """Unregister a closed connection."""
        self._connections.discard(connection)
        self._is_full = False
        if not self._connections:
            self._all_closed.set()
