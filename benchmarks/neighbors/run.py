"""The process that is a neighbor: one after another, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

from benchmarks.contest.process import SPAWN

IDLE, HALF_OPEN, FLOODING = 1_000, 1_000, 50
"""Connections."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of a broker, for native and Kafka clients."""

    native: str
    kafka: str


@dataclass(frozen=True, slots=True)
class Orders:
    """The messages between the measuring process and the neighbor."""

    names: "Queue[str | None]" = field(default_factory=SPAWN.Queue)
    """The neighbor to be next; None: the end."""
    requests: "Queue[int]" = field(default_factory=SPAWN.Queue)
    """The number of requests of the last one, once it has stopped."""
    ready: Event = field(default_factory=SPAWN.Event)
    stop: Event = field(default_factory=SPAWN.Event)


def disturb(addresses: Addresses, orders: Orders) -> None:
    """Run one neighbor after another."""
    while (name := orders.names.get()) is not None:
        orders.requests.put(all_neighbors()[name](addresses, orders))


def all_neighbors() -> Mapping[str, Callable[[Addresses, Orders], int]]:
    """Return all neighbors by name."""
    from benchmarks.neighbors import kafka, native

    return {**kafka.NEIGHBORS, **native.NEIGHBORS}
