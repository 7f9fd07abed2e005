"""Calls measured beside neighbors: short ones of small clients, one after another."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeAlias

import seaweedmq
from benchmarks.kafka.batches import batch_of
from benchmarks.kafka.wire import Wire, encoded, produce_head
from benchmarks.measure import percentile
from benchmarks.neighbors.requests import GROUP, TOPIC
from benchmarks.neighbors.run import Addresses
from seaweedmq.kafka.wire.messages import API

NATIVE_TOPIC = "neighbors/native"
RECORD = b"x" * 100
PAUSE_S = 0.002
"""Seconds between two calls, long enough that they add no load."""
CALLS = ("kafka_heartbeat", "kafka_produce", "native_publish", "native_delivery")
P99s: TypeAlias = Mapping[str, float]
"""Milliseconds, by call."""


class Probe:
    """Open two connections, one of each kind. A heartbeat is that of an unknown member."""

    def __init__(self, client: seaweedmq.Client, addresses: Addresses) -> None:
        self._stack = ExitStack()
        self._wire = self._stack.enter_context(Wire(addresses.kafka))
        batch = batch_of([RECORD])
        beat = encoded(API.HEARTBEAT, 3, group_id=GROUP, generation_id=1, member_id="m", group_instance_id=None)
        produce = produce_head(TOPIC, len(batch)) + batch
        self._publisher = self._stack.enter_context(client.publisher(NATIVE_TOPIC, linger_s=0))
        subscriber = self._stack.enter_context(client.subscriber(NATIVE_TOPIC, start="latest"))
        self._messages = iter(subscriber)
        self._calls: Mapping[str, Callable[[], object]] = {
            "kafka_heartbeat": lambda: self._ask(beat),
            "kafka_produce": lambda: self._ask(produce),
            "native_publish": lambda: self._publisher.send(RECORD).result(),
        }

    def p99s_ms(self, seconds: float) -> P99s:
        """Return the p99 of each call, repeated for so long. A delivery is from the send to the subscriber."""
        took_ms: dict[str, list[float]] = {name: [] for name in CALLS}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for name, call in self._calls.items():
                began = time.perf_counter()
                call()
                took_ms[name].append((time.perf_counter() - began) * 1e3)
                if name == "native_publish":
                    next(self._messages)
                    took_ms["native_delivery"].append((time.perf_counter() - began) * 1e3)
                time.sleep(PAUSE_S)
        return {name: percentile(sorted(took), 0.99) for name, took in took_ms.items()}

    def _ask(self, request: bytes) -> None:
        self._wire.send(request)
        self._wire.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
