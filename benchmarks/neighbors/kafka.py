"""Neighbors that are Kafka clients."""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Thread

from benchmarks.kafka.wire import Wire, encoded
from benchmarks.neighbors.requests import OF_MANY, largest, topics_named
from benchmarks.neighbors.run import FLOODING, HALF_OPEN, IDLE, Addresses, Orders
from seaweedmq.kafka.wire.messages import API


def _largest(api: API, addresses: Addresses, orders: Orders) -> int:
    """Send one request after another."""
    data, number = largest(api), 0
    with Wire(addresses.kafka) as wire:
        while not orders.stop.is_set():
            wire.send(data)
            orders.ready.set()
            wire.receive()
            number += 1
    return number


def _idle(addresses: Addresses, orders: Orders) -> int:
    with connections(addresses.kafka, IDLE):
        orders.ready.set()
        orders.stop.wait()
    return 0


def _half_open(addresses: Addresses, orders: Orders) -> int:
    """Send the beginning of a request of 1 MiB on each connection."""
    with connections(addresses.kafka, HALF_OPEN) as opened:
        for one in opened:
            one.sendall(struct.pack(">ihhi", 1 << 20, API.PRODUCE, 8, 1))
        orders.ready.set()
        orders.stop.wait()
    return 0


def _flood(addresses: Addresses, orders: Orders) -> int:
    """Query metadata on each connection at full speed."""
    done = [0] * FLOODING
    request = encoded(API.METADATA, 4, topics=topics_named(1), allow_auto_topic_creation=False)

    def ask(number: int) -> None:
        with Wire(addresses.kafka) as wire:
            while not orders.stop.is_set():
                wire.send(request)
                wire.receive()
                done[number] += 1

    threads = [Thread(target=ask, args=(number,)) for number in range(FLOODING)]
    for thread in threads:
        thread.start()
    orders.ready.set()
    for thread in threads:
        thread.join()
    return sum(done)


@contextlib.contextmanager
def connections(address: str, number: int) -> Iterator[Sequence[socket.socket]]:
    """Open so many sockets."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(number)]


NEIGHBORS: Mapping[str, Callable[[Addresses, Orders], int]] = {
    "kafka_idle": _idle,
    "kafka_half_open": _half_open,
    "kafka_flood": _flood,
    **{f"kafka_{api.name.lower()}": partial(_largest, api) for api in OF_MANY},
}
"""Neighbors by name. Each works until it is stopped and returns the number of its requests."""
