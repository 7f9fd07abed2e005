"""Scripted Kafka client on a real socket, which sends and receives exactly what a test says, and its listener."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from seaweedmq.kafka.server import KafkaServer, bind
from seaweedmq.kafka.wire.messages import (
    API,
    REPLIES,
    FetchRequest,
    FetchResponse,
    Handler,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    ProduceRequest,
    Reply,
    Request,
)
from seaweedmq.model.config import BrokerConfig
from seaweedmq.runtime.turns import Turns

TIMEOUT_S = 20.0


@contextlib.asynccontextmanager
async def listening(
    handlers: Mapping[int, Handler],
    *,
    in_flight_bytes_max: int | None = None,
    turns: Turns | None = None,
    grace_s: float = 5.0,
    **config: Any,
) -> AsyncIterator[tuple[KafkaServer, int]]:
    """Serve on a free port with these settings, and cancel unanswered requests ``grace_s`` after the block."""
    server = KafkaServer(handlers, replace(BrokerConfig(), **config), in_flight_bytes_max, turns)
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    await server.start(bound)
    try:
        yield server, port
    finally:
        await server.stop(grace_s)
        assert server.connections == 0
        assert server.requests == 0
        assert server.in_flight.taken_bytes == 0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that sets no event."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Script:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, correlation_id: int, api: int, version: int, body: Any, client_id: str | None = "script") -> None:
        self.say(framed(correlation_id, api, version, body, client_id))

    async def hear(self, api: int, version: int) -> tuple[int, Any]:
        """Return the next reply: its correlation id and body."""
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
        (correlation_id,) = struct.unpack_from(">i", data)
        reply = REPLIES[api]
        skip = 5 if api != API.API_VERSIONS and reply.flexible_version_q(version) else 4
        return correlation_id, reply.decode(data[skip:], version=version)

    async def hears(self, *expected: tuple[int, int, int]) -> None:
        """Check that these replies come next: their correlation ids, APIs and versions."""
        for number, api, version in expected:
            assert (await self.hear(api, version))[0] == number

    async def is_closed(self) -> bool:
        """Wait until the other side closes; return whether it sent nothing more."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def script(port: int, *, buffer_bytes: int = 1 << 20) -> AsyncIterator[Script]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=buffer_bytes)
    one = Script(reader, writer)
    try:
        yield one
    finally:
        await one.close()


def framed(correlation_id: int, api: int, version: int, body: Any, client_id: str | None = "script") -> bytes:
    body.API_VERSION = version
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    tags = b"\0" if body.flexible_version_q(version) else b""
    data = struct.pack(">hhi", api, version, correlation_id) + name + tags + bytes(body.encode(version=version))
    return struct.pack(">i", len(data)) + data


def produce(*, version: int = 9, acks: int = -1, records: bytes = b"records", topic: str = "t", index: int = 0) -> Any:
    topics = ProduceRequest.TopicProduceData
    partition = topics.PartitionProduceData(version=version, index=index, records=records)
    return ProduceRequest(
        version=version,
        transactional_id=None,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[topics(version=version, name=topic, partition_data=[partition])],
    )


def heartbeat(group: str = "g") -> Any:
    return HeartbeatRequest(version=4, group_id=group, generation_id=1, member_id="m", group_instance_id=None)


def fetch() -> Any:
    return FetchRequest(version=12, max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[], rack_id="")


def join(*protocols: Any) -> Any:
    timeouts = {"session_timeout_ms": 1, "rebalance_timeout_ms": 1}
    return JoinGroupRequest(version=5, group_id="g", member_id="", protocols=list(protocols), **timeouts)


# --- handlers


async def beat(request: Request) -> Reply:
    return HeartbeatResponse(error_code=0)


async def polls(request: Request) -> Reply:
    """Answer a Fetch once a later request of the connection waits for it."""
    while not request.holds_up:
        await request.line.grown.wait()
    return FetchResponse(error_code=0, responses=[])


def appends(reply: Callable[[Request], Awaitable[Reply]]) -> Handler:
    """Return a handler of Produce that appends at once; ``reply`` is awaited as its commit."""

    async def append(request: Request) -> Awaitable[Reply]:
        return reply(request)

    return append


class Gate:
    """A handler that counts its requests, and answers them once it is open."""

    def __init__(self, reply: Reply = None) -> None:
        self.began = 0
        self.opens = asyncio.Event()
        self._reply = reply

    async def __call__(self, request: Request) -> Reply:
        self.began += 1
        await self.opens.wait()
        return self._reply
