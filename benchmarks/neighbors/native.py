"""Neighbors that are native clients."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

import uvloop

import seaweedmq
from benchmarks.neighbors.kafka import connections
from benchmarks.neighbors.run import FLOODING, HALF_OPEN, IDLE, Addresses, Orders
from seaweedmq import aio
from seaweedmq.errors import AlreadyExists
from seaweedmq.model.topic import TOPICS_AT_ONCE_MAX

FLOODED, LARGE = "neighbors/flooded", "neighbors/large"
"""Number of topics that ``create_topics`` makes."""
LARGEST_BYTES = 15_000_000
"""Size of a record that just fits into a frame of 16 MiB."""
LARGE_RECORDS = 4
RECORD = b"x" * 100
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS = 4, 1
"""Types of HTTP/2's frames."""


def create_topics(client: seaweedmq.Client) -> None:
    """Create the topics that the neighbors need."""
    for name in (FLOODED, LARGE):
        client.admin.create_topic(name, durability="replicated", scaling="fixed")
    with client.publisher(LARGE) as publisher:
        for _ in range(LARGE_RECORDS):
            publisher.send(bytes(LARGEST_BYTES)).result()


def _idle(addresses: Addresses, orders: Orders) -> int:
    """Send HTTP/2's preface on each connection."""
    with connections(addresses.native, IDLE) as opened:
        for one in opened:
            one.sendall(PREFACE + _frame_head(0, SETTINGS))
        orders.ready.set()
        orders.stop.wait()
    return 0


def _half_open(addresses: Addresses, orders: Orders) -> int:
    """Send the beginning of a request on each connection: 9 bytes, where 4 KiB should follow."""
    with connections(addresses.native, HALF_OPEN) as opened:
        for one in opened:
            one.sendall(PREFACE + _frame_head(0, SETTINGS) + _frame_head(4096, HEADERS, stream=1))
        orders.ready.set()
        orders.stop.wait()
    return 0


def _frame_head(size: int, kind: int, stream: int = 0) -> bytes:
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, 0, stream)


async def _flood(addresses: Addresses, orders: Orders) -> int:
    """Run clients, each with a connection, that publish a record as soon as the last is acknowledged."""

    async def publish(at: int) -> int:
        done = 0
        async with aio.connect(addresses.native) as client, client.publisher(FLOODED, linger_s=0) as publisher:
            while not orders.stop.is_set():
                await (await publisher.send(RECORD))
                done += 1
                if at == 0:
                    orders.ready.set()
        return done

    return sum(await asyncio.gather(*(publish(at) for at in range(FLOODING))))


async def _publish(addresses: Addresses, orders: Orders) -> int:
    """Publish the largest record, one after another."""
    done, record = 0, bytes(LARGEST_BYTES)
    async with aio.connect(addresses.native) as client, client.publisher(LARGE, linger_s=0) as publisher:
        while not orders.stop.is_set():
            await (await publisher.send(record))
            orders.ready.set()
            done += 1
    return done


async def _subscribe(addresses: Addresses, orders: Orders) -> int:
    """Read the largest records, from the first on, again and again."""
    done = 0
    async with aio.connect(addresses.native) as client:
        while not orders.stop.is_set():
            async with client.subscriber(LARGE, start="earliest", limit=LARGE_RECORDS) as subscriber:
                async for _ in subscriber.batches():
                    orders.ready.set()
            done += 1
    return done


async def _create(addresses: Addresses, orders: Orders) -> int:
    """Create as many topics as one call permits, the last of which exists: all are checked, and none is created."""
    names = [f"neighbors/t{number}" for number in range(TOPICS_AT_ONCE_MAX - 1)]
    done = 0
    async with aio.connect(addresses.native) as client:
        while not orders.stop.is_set():
            try:
                await client.admin.create_topics([*names, LARGE])
            except AlreadyExists:
                orders.ready.set()
            done += 1
    return done


def _on_a_loop(
    work: Callable[[Addresses, Orders], Coroutine[None, None, int]], addresses: Addresses, orders: Orders
) -> int:
    return uvloop.run(work(addresses, orders))


NEIGHBORS: Mapping[str, Callable[[Addresses, Orders], int]] = {
    "native_idle": _idle,
    "native_half_open": _half_open,
    "native_flood": partial(_on_a_loop, _flood),
    "native_publish": partial(_on_a_loop, _publish),
    "native_subscribe": partial(_on_a_loop, _subscribe),
    "native_create_topics": partial(_on_a_loop, _create),
}
"""Neighbors by name, as ``kafka.NEIGHBORS``."""
