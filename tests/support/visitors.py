"""Clients of every kind that visit one broker until they are cancelled: valid, silent, and broken ones.

Each reads and writes the topic ``TOPIC`` by one protocol, on its own connection, and holds little memory itself.
"""

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from seaweedmq.codec.frame import HEADER_BYTES
from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.wire.messages import API, REQUESTS, JoinGroupRequest
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.messages.calls import DescribeTopic
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES, FrameHead
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommit, GroupLeave, GroupOpen, GroupRequest, Position
from seaweedmq.model.messages.publish import PublishFrames, PublishOpen, PublishReady, PublishRequest
from seaweedmq.model.messages.subscribe import (
    EARLIEST,
    SubscribeCredit,
    SubscribeEnd,
    SubscribeFrames,
    SubscribeOpen,
    SubscribeReady,
    SubscribeRequest,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc.address import parse_address
from seaweedmq.rpc.client import GrpcDialer
from tests.broker.testbed import frame
from tests.integration.kafka.raw import FETCH, PRODUCE, fetch_fields, join_fields, produce_fields
from tests.kafka.wire.script import Script, framed, script
from tests.support.kafka_batches import Record, batch_of

TOPIC = TopicName("kafka", "visited")
FRAME_BYTES_MAX = 1 * MIB
"""Largest frame that the broker accepts."""
GROUPS = 4
"""Number of group names of either kind."""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(frozen=True)
class Place:
    """The visited broker."""

    address: str
    kafka_port: int


Visitor = Callable[[Place, random.Random], Awaitable[None]]
NativeVisitor = Callable[[BrokerApi, random.Random], Awaitable[None]]


async def stay() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


# --- Kafka clients ----------------------------------------------------------------------------------------------------
def _kafka(act: Callable[[Script, random.Random], Awaitable[None]]) -> Visitor:
    """Return a visitor with one connection that reads replies slowly, or not at all."""

    async def visit(place: Place, rng: random.Random) -> None:
        async with script(place.kafka_port, buffer_bytes=KIB) as client:
            await act(client, rng)
            await stay()

    return visit


async def _idle(client: Script, rng: random.Random) -> None:
    pass


async def _half_open(client: Script, rng: random.Random) -> None:
    size = rng.randint(100, MIB)
    client.say(struct.pack(">ihhi", size, API.PRODUCE, PRODUCE, 1) + bytes(rng.randint(0, size - 9)))


async def _garbage(client: Script, rng: random.Random) -> None:
    client.say(rng.randbytes(rng.randint(1, 200)))


def _fetch(**fields: int) -> bytes:
    body = REQUESTS[API.FETCH](version=FETCH, **fetch_fields(TOPIC.name, 0, 0, **fields))
    return framed(1, API.FETCH, FETCH, body)


async def _wait(client: Script, rng: random.Random) -> None:
    client.say(_fetch(max_wait_ms=60_000, min_bytes=2**31 - 1) * rng.randint(1, 50))


async def _deaf(client: Script, rng: random.Random) -> None:
    client.say(_fetch(max_bytes=8 * MIB, partition_max_bytes=8 * MIB) * rng.randint(1, 20))


async def _consume(client: Script, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 5)):
        client.say(_fetch())
        (size,) = struct.unpack(">i", await client.reader.readexactly(4))
        while size:
            size -= len(await client.reader.read(min(size, 64 * KIB)))


async def _join(client: Script, rng: random.Random) -> None:
    metadata = bytes(rng.randint(1, 256 * KIB))
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)]
    fields = join_fields(f"g{rng.randrange(GROUPS)}", protocols=protocols)
    client.ask(1, API.JOIN_GROUP, 3, REQUESTS[API.JOIN_GROUP](version=3, **fields))


async def _flood(client: Script, rng: random.Random) -> None:
    records = batch_of([Record(b"key", rng.randbytes(rng.randint(1, 128 * KIB)))])
    body = REQUESTS[API.PRODUCE](version=PRODUCE, **produce_fields(TOPIC.name, 0, records, acks=rng.choice((0, -1))))
    client.say(framed(1, API.PRODUCE, PRODUCE, body) * rng.randint(1, 8))


# --- native clients ---------------------------------------------------------------------------------------------------
def _raw(data: Callable[[random.Random], bytes]) -> Visitor:
    """Return a visitor that sends some bytes to the native port, and nothing more."""

    async def visit(place: Place, rng: random.Random) -> None:
        address = parse_address(place.address)
        _, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(data(rng))
            await stay()
        finally:
            writer.transport.abort()

    return visit


def _native(act: NativeVisitor) -> Visitor:
    """Return a visitor with its own connection, for which an error is a valid answer."""

    async def visit(place: Place, rng: random.Random) -> None:
        dialer = GrpcDialer()
        try:
            with contextlib.suppress(SeaweedMQError):
                await act(dialer.dial(place.address), rng)
            await stay()
        finally:
            await dialer.close()

    return visit


async def _ask(api: BrokerApi, rng: random.Random) -> None:
    await asyncio.gather(*(api.call(DescribeTopic(TOPIC)) for _ in range(rng.randint(1, 50))))


async def opening(api: BrokerApi, rng: random.Random) -> PublishOpen:
    """Return the first message of a publisher."""
    described = await api.call(DescribeTopic(TOPIC))
    [segment] = described.segments
    producer = rng.getrandbits(48) | 1 << 48
    return PublishOpen(topic=TOPIC, segment=segment.id, epoch=segment.epoch, producer_id=producer, producer_epoch=0)


def frame_of(opened: PublishOpen, sequence: int, size_bytes: int) -> bytes:
    """Return a frame of one record."""
    now_us = time.time_ns() // 1_000
    return frame(producer=opened.producer_id, first=sequence, size=size_bytes, timestamp=now_us)


def _publishing(
    messages: Callable[[PublishOpen, random.Random], list[PublishRequest]], *, is_deaf: bool = False
) -> NativeVisitor:
    async def publish(api: BrokerApi, rng: random.Random) -> None:
        opened = await opening(api, rng)

        async def requests() -> AsyncIterator[PublishRequest]:
            yield opened
            for message in messages(opened, rng):
                yield message
            await stay()

        async for reply in api.publish(requests()):
            if is_deaf and isinstance(reply, PublishReady):
                await stay()

    return publish


def _frames(opened: PublishOpen, rng: random.Random) -> list[PublishRequest]:
    size = rng.randint(1, 48 * KIB)
    return [PublishFrames(frame_of(opened, number, size)) for number in range(rng.randint(1, 20))]


def _large_frame(opened: PublishOpen, rng: random.Random) -> list[PublishRequest]:
    data = frame_of(opened, 0, rng.randint(SMALL_MESSAGE_BYTES, FRAME_BYTES_MAX - KIB))
    return [FrameHead(data[:HEADER_BYTES]), PublishFrames(data[HEADER_BYTES:])]


def _head_alone(opened: PublishOpen, rng: random.Random) -> list[PublishRequest]:
    return _large_frame(opened, rng)[:1]


async def _subscribe(
    api: BrokerApi, credit_bytes: int, more: Callable[[], AsyncIterator[SubscribeRequest]]
) -> AsyncGenerator[SubscribeFrames | SubscribeReady, None]:
    async def requests() -> AsyncIterator[SubscribeRequest]:
        yield SubscribeOpen(topic=TOPIC, segment=0, start=EARLIEST, credit_bytes=credit_bytes)
        async for request in more():
            yield request

    async for reply in api.subscribe(requests()):
        assert not isinstance(reply, SubscribeEnd)
        if isinstance(reply, SubscribeFrames | SubscribeReady):
            yield reply


async def _no_more() -> AsyncIterator[SubscribeRequest]:
    await stay()
    yield SubscribeCredit(1)


async def _read(api: BrokerApi, rng: random.Random) -> None:
    """Read records, and give credit for them."""
    taken: asyncio.Queue[int] = asyncio.Queue()

    async def more() -> AsyncIterator[SubscribeRequest]:
        while True:
            yield SubscribeCredit(await taken.get())

    async for reply in _subscribe(api, rng.randint(1, MIB), more):
        if isinstance(reply, SubscribeFrames):
            taken.put_nowait(len(reply.data))


async def _read_nothing(api: BrokerApi, rng: random.Random) -> None:
    """Give much credit, and read only the first message."""
    async with contextlib.aclosing(_subscribe(api, rng.randint(MIB, 200 * MIB), _no_more)) as replies:
        await anext(replies)
        await stay()


async def _pause(api: BrokerApi, rng: random.Random) -> None:
    """Read all records within the initial credit, and give no more."""
    async for _ in _subscribe(api, rng.randint(1, MIB), _no_more):
        pass


async def _scan(api: BrokerApi, rng: random.Random) -> None:
    """Read to the current end several times, as Spark does."""
    for _ in range(rng.randint(1, 4)):
        read = 0
        async with contextlib.aclosing(_subscribe(api, 2 * MIB, _no_more)) as replies:
            async for reply in replies:
                read += len(reply.data) if isinstance(reply, SubscribeFrames) else 0
                if read >= MIB:
                    break


async def _member(api: BrokerApi, rng: random.Random) -> None:
    """Join a group, commit the beginning of the assignment, and leave, or disconnect."""
    leaves = rng.random() < 0.5
    to_commit: asyncio.Queue[GroupCommit] = asyncio.Queue()

    async def requests() -> AsyncIterator[GroupRequest]:
        yield GroupOpen(
            group=f"g{rng.randrange(GROUPS)}",
            topic=TOPIC,
            member=f"m{rng.randrange(100)}",
            incarnation=rng.getrandbits(62),
            start=EARLIEST,
            client="visitor",
            held={},
        )
        yield await to_commit.get()
        if leaves:
            yield GroupLeave()
        await stay()

    async for reply in api.join_group(requests()):
        if isinstance(reply, GroupAssignment) and reply.owned and to_commit.empty():
            positions = tuple(
                Position(segment=owned.segment, generation=owned.generation, offset=0, deliveries={})
                for owned in reply.owned
            )
            to_commit.put_nowait(GroupCommit(1, positions))


NATIVE: Mapping[str, NativeVisitor] = {
    "asks": _ask,
    "publishes": _publishing(_frames),
    "publishes large records": _publishing(_large_frame),
    "takes no acknowledgements": _publishing(_frames, is_deaf=True),
    "stops in a frame": _publishing(_head_alone),
    "subscribes": _read,
    "subscribes and reads nothing": _read_nothing,
    "gives no more credit": _pause,
    "scans": _scan,
    "joins a group": _member,
}
"""Actions of visitors with the API of a broker, by name. They raise the broker's errors."""

VISITORS: Mapping[str, Visitor] = {
    "kafka: idle": _kafka(_idle),
    "kafka: half-open": _kafka(_half_open),
    "kafka: garbage": _kafka(_garbage),
    "kafka: waits for records": _kafka(_wait),
    "kafka: reads no replies": _kafka(_deaf),
    "kafka: consumes": _kafka(_consume),
    "kafka: joins with much metadata": _kafka(_join),
    "kafka: floods": _kafka(_flood),
    "native: idle": _raw(lambda rng: b""),
    "native: half-open": _raw(lambda rng: (HTTP2_PREFACE + b"\x00\x00\x20\x04")[: rng.randint(1, 28)]),
    "native: garbage": _raw(lambda rng: rng.randbytes(rng.randint(1, 200))),
    **{f"native: {name}": _native(act) for name, act in NATIVE.items()},
}
"""Visitors with their own connections, by name of their actions."""
