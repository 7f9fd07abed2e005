"""Kafka's protocol without a client library: the cost of the gateway, without that of a client."""

import asyncio
import io
import socket
import struct
from typing import Any, Self

from benchmarks.contest.errors import Failed
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS

CLIENT = b"bench"
TIMEOUT_S = 60.0
PRODUCE_VERSION, FETCH_VERSION, FIND_COORDINATOR_VERSION = 8, 11, 1
ACKS_ALL = -1
GROUP = 0
_HEAD = struct.Struct(">ihhih")
_LENGTH = struct.Struct(">i")
_BATCH = struct.Struct(">qi")
_FIXED = 12
"""Bytes of a batch before those that its length counts."""
_LAST_DELTA_AT, _COUNT_AT = 23, 57


def encoded(api: int, version: int, **fields: Any) -> bytes:
    """Return a request with its length, whose correlation id is 0: replies come in order."""
    body = REQUESTS[api](version=version, **fields)
    tags = b"\0" if body.flexible_version_q(version) else b""
    data = CLIENT + tags + bytes(body.encode(version=version))
    return _HEAD.pack(_HEAD.size - _LENGTH.size + len(data), api, version, 0, len(CLIENT)) + data


def decoded(api: int, version: int, data: bytes | memoryview) -> Any:
    """Return a reply, without its length."""
    reply = REPLIES[api]
    head = 5 if api != API.API_VERSIONS and reply.flexible_version_q(version) else 4
    return reply.decode(io.BytesIO(data[head:]), version=version)


def produce_head(topic: str, records_bytes: int) -> bytes:
    """Return a Produce request to partition 0 without the batch at its end."""
    make = REQUESTS[API.PRODUCE].TopicProduceData
    part = make.PartitionProduceData(version=PRODUCE_VERSION, index=0, records=b"")
    data = make(version=PRODUCE_VERSION, name=topic, partition_data=[part])
    fields = {"transactional_id": None, "acks": ACKS_ALL, "timeout_ms": 30_000, "topic_data": [data]}
    request = encoded(API.PRODUCE, PRODUCE_VERSION, **fields)
    size = len(request) - _LENGTH.size + records_bytes
    return _LENGTH.pack(size) + request[_LENGTH.size : -_LENGTH.size] + _LENGTH.pack(records_bytes)


def fetch_request(topic: str, offset: int, bytes_max: int) -> bytes:
    """Return a Fetch request for partition 0, which waits a second for the first byte."""
    make = REQUESTS[API.FETCH].FetchTopic
    part = make.FetchPartition(
        version=FETCH_VERSION,
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
    )
    return encoded(
        API.FETCH,
        FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=1_000,
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[make(version=FETCH_VERSION, topic=topic, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetched(data: memoryview, topic: str) -> tuple[int, int, int]:
    """Return records, their bytes as sent, and the next offset (-1 for none) of a reply to ``fetch_request``.

    Only heads of batches are read: a reader of the raw bytes costs next to nothing.

    Raises:
        Failed: If the reply is an error.
    """
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    (error,) = struct.unpack_from(">h", data, at)
    if error:
        raise Failed(f"Fetch of {topic} says error {error}")
    at += 2 + 8 + 8 + 8
    (aborted,) = _LENGTH.unpack_from(data, at)
    at += 4 + 16 * max(0, aborted) + 4
    (size,) = _LENGTH.unpack_from(data, at)
    at += 4
    end, records, following = at + max(0, size), 0, -1
    while at + _COUNT_AT + 4 <= end:
        base, length = _BATCH.unpack_from(data, at)
        records += _LENGTH.unpack_from(data, at + _COUNT_AT)[0]
        following = base + _LENGTH.unpack_from(data, at + _LAST_DELTA_AT)[0] + 1
        at += _FIXED + length
    return records, max(0, size), following


class Wire:
    """A blocking connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(65_536)

    def send(self, *parts: bytes) -> None:
        """Send a request, without waiting for its reply."""
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> memoryview:
        """Receive the next reply, without its length; it is valid until the next is received."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return self._read(size)

    def ask(self, api: int, version: int, **fields: Any) -> Any:
        """Return the reply to one request."""
        self.send(encoded(api, version, **fields))
        return decoded(api, version, self.receive())

    def _read(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(2 * size)
        view, at = memoryview(self._buffer)[:size], 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise Failed("the gateway closed the connection")
            at += count
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class Talk:
    """A connection on an event loop, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> "Talk":
        """Connect."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def say(self, request: bytes) -> bytes:
        """Return the reply to an encoded request, without its length."""
        self._writer.write(request)
        (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return await self._reader.readexactly(size)

    async def ask(self, api: int, version: int, **fields: Any) -> Any:
        """Return the reply to one request."""
        return decoded(api, version, await self.say(encoded(api, version, **fields)))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def coordinator_of(bootstrap: str, group: str) -> str:
    """Return ``host:port`` of a group's coordinator. Raises Failed while there is none."""
    with Wire(bootstrap.split(",")[0]) as wire:
        reply = wire.ask(API.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, key=group, key_type=GROUP)
    if reply.error_code:
        raise Failed(f"group {group} has no coordinator: error {reply.error_code}")
    return f"{reply.host}:{reply.port}"
