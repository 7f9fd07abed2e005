"""Tests that a broker with little memory keeps its bound beside any clients, serves a valid one, and leaks nothing.

Clients connect to real sockets, by either protocol, and leave by disconnecting. The broker runs in this process, so its
resident memory, descriptors and tasks include those of the clients. The profile "deep" runs 500 crowds.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest
import uvloop
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from seaweedmq.kafka.wire import budget, deadlines
from seaweedmq.kafka.wire.messages import API, REQUESTS
from seaweedmq.model.config import KIB, MIB, BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.calls import CreateTopic
from seaweedmq.model.messages.publish import PublishAck, PublishFrames, PublishReady, PublishRequest
from seaweedmq.model.topic import TopicSpec
from seaweedmq.rpc.address import parse_address
from seaweedmq.rpc.client import GrpcDialer
from tests.integration.kafka.raw import PRODUCE, produce_fields
from tests.kafka.wire.script import Script, script
from tests.support.insides import Insides
from tests.support.kafka_batches import Record, batch_of
from tests.support.visitors import FRAME_BYTES_MAX, TOPIC, VISITORS, Place, frame_of, opening
from tests.support.whole_broker import WholeBroker, whole_broker

RESIDENT_MAX = 1.25
"""Largest resident memory, as a multiple of the bound."""
IS_DEEP = settings.default.max_examples > 100
EXAMPLES = settings.default.max_examples if IS_DEEP else 4
"""Number of examples, all of the profile "deep"; an example takes up to seconds, until a slow client is closed."""
BEYOND_RUNTIME_MIB = (160, 288) if IS_DEEP else (160,)
"""Bounds of the broker, beyond its process's base memory: slightly more than it needs, and enough to reserve memory for
several streams.
"""
STORED_FRAMES = 400
"""Frames of 60 KiB that are initially only in files."""
PATIENCE_S = 60.0
OF_GROUPS = "group "
"""Part of the names of group tasks, which remain for some seconds after their members."""
SPARE_FILES = 4
"""Descriptors that may be left in the end: log files open and close independently."""
CROWDS = st.lists(st.tuples(st.sampled_from(sorted(VISITORS)), st.integers(1, 8)), min_size=1, max_size=6)
"""Kinds of clients, with the number of each."""


class Visited:
    """A broker with a valid client, and its holdings before any other client connected."""

    def __init__(self, broker: WholeBroker, bound_bytes: int) -> None:
        self._broker = broker
        self._place = Place(broker.address, broker.kafka_port)
        self._bound_bytes = bound_bytes
        self._process = psutil.Process()
        self._logs_bytes = Insides(broker.broker).memory.logs.limit
        self._memory: Mapping[str, int] = {}
        self._tasks: Mapping[str, int] = {}
        self._sockets = 0
        self._files: int | None = None
        """Descriptors after the first crowd: gRPC keeps some for the next connections."""
        self._peak_bytes = 0

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        """Connect the valid client, fill the topic, and note the holdings."""
        await self._broker.broker.api.call(CreateTopic(TopicSpec(name=TOPIC, partitions=1)))
        self._kafka = await stack.enter_async_context(script(self._place.kafka_port))
        self._native = Publishing(self._place.address)
        stack.push_async_callback(self._native.close)
        for _ in range(STORED_FRAMES):
            await self._native.publish(60 * KIB)
        await self._be_good()
        memory = Insides(self._broker.broker).memory
        for segment in Insides(self._broker.broker).segments.values():
            while segment.log.flushed < segment.log.end:  # noqa: ASYNC110 - only publishers learn of fsyncs
                await asyncio.sleep(0.05)
            memory.logs.give(segment.log.evict(1 << 30))
        self._memory, self._tasks = self._held(), _tasks()
        self._sockets = self._open_sockets()

    async def receive(self, crowd: Sequence[tuple[str, int]], seed: int) -> None:
        """Connect and disconnect the clients; check the holdings meanwhile and afterwards."""
        watching = asyncio.create_task(self._watch(), name="watch")
        visitors = [
            asyncio.create_task(VISITORS[kind](self._place, random.Random(f"{seed} {kind} {number}")))
            for kind, count in crowd
            for number in range(count)
        ]
        await asyncio.sleep(0.05)
        await self._be_good()
        for visitor in visitors:
            visitor.cancel()
        await asyncio.wait(visitors)
        failures = [v.exception() for v in visitors if not v.cancelled() and v.exception()]
        assert all(isinstance(failure, OSError | EOFError) for failure in failures), failures
        del visitors, visitor, failures  # they hold gRPC calls
        await self._be_good()
        watching.cancel()
        await asyncio.wait({watching})
        await self._until_left(OF_GROUPS)
        if self._files is None:
            self._files = self._process.num_fds()
        assert self._peak_bytes <= RESIDENT_MAX * self._bound_bytes, f"{self._peak_bytes / MIB:.0f} MiB are resident"

    async def end(self) -> None:
        """Check that no holdings of the clients are left once their groups have ended."""
        await self._until_left()
        assert self._files is not None
        files = self._process.num_fds()
        assert files <= self._files + SPARE_FILES, f"{files} files instead of {self._files}: {self._open_files()}"

    def _open_files(self) -> list[tuple[str, int]]:
        folder = Path(f"/proc/{self._process.pid}/fd")
        kinds = Counter(re.sub(r"\d+", "N", str(fd.readlink())) for fd in folder.iterdir() if fd.is_symlink())
        return kinds.most_common(20)

    async def _be_good(self) -> None:
        """Publish by either protocol."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(self._native.publish(100), _produce(self._kafka))

    async def _until_left(self, besides: str | None = None) -> None:
        """Wait until holdings are as before, except tasks whose names contain ``besides``."""
        left: object = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while left := self._left(besides):
                    gc.collect()  # gRPC closes a client's connection with the last object of its calls
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"{PATIENCE_S:.0f} s after the clients left, this of them is held: {left}")

    def _left(self, besides: str | None) -> object:
        memory = {name: size for name, size in self._held().items() if size > self._memory[name]}
        tasks = {
            name: count
            for name, count in _tasks().items()
            if count > self._tasks.get(name, 0) and not (besides and besides in name)
        }
        sockets = self._open_sockets() - self._sockets
        return memory or tasks or (sockets > 0 and f"{sockets} sockets")

    def _open_sockets(self) -> int:
        """Return the number of sockets at both ends of connections to the broker, and of listening ones."""
        ports = {self._place.kafka_port, parse_address(self._place.address).port}
        ends = self._process.net_connections("tcp")
        return sum(1 for end in ends if ports & {address.port for address in (end.laddr, end.raddr) if address})

    def _held(self) -> Mapping[str, int]:
        """Return the bytes that clients hold, by the name of the budget."""
        budgets = {budget.purpose: budget for budget in self._broker.broker.inspect.budgets()}
        return {
            "streams": self._logs_bytes - budgets["buffer"].limit_bytes,
            **{name: budgets[name].used_bytes for name in ("intake", "reading", "relaying", "sending")},
            "kafka": self._broker.gateway.held_bytes,
            "fetches": self._broker.handlers.fetch_memory.used,
        }

    async def _watch(self) -> None:
        while True:
            self._peak_bytes = max(self._peak_bytes, self._process.memory_info().rss)
            await asyncio.sleep(0.01)


def _tasks() -> Mapping[str, int]:
    """Return the number of tasks by their names without digits."""
    digits = str.maketrans("", "", "0123456789")
    return Counter(task.get_name().translate(digits) for task in asyncio.all_tasks())


class Publishing:
    """A native publisher that sends one record at a time."""

    def __init__(self, address: str) -> None:
        self._dialer = GrpcDialer()
        self._api = self._dialer.dial(address)
        self._to_send: asyncio.Queue[PublishRequest] = asyncio.Queue()
        self._replies = self._api.publish(self._requests())
        self._sent = 0

    async def publish(self, size_bytes: int) -> None:
        """Send a record; return once it is acknowledged."""
        if not self._sent:
            self._opened = await opening(self._api, random.Random("good"))
            self._to_send.put_nowait(self._opened)
            assert isinstance(await anext(self._replies), PublishReady)
        self._to_send.put_nowait(PublishFrames(frame_of(self._opened, self._sent, size_bytes)))
        self._sent += 1
        assert isinstance(await anext(self._replies), PublishAck)

    async def close(self) -> None:
        """Close the connection."""
        await self._dialer.close()

    async def _requests(self) -> AsyncIterator[PublishRequest]:
        while True:
            yield await self._to_send.get()


async def _produce(kafka: Script) -> None:
    records = batch_of([Record(b"key", bytes(100))])
    kafka.ask(1, API.PRODUCE, PRODUCE, REQUESTS[API.PRODUCE](version=PRODUCE, **produce_fields(TOPIC.name, 0, records)))
    _, reply = await kafka.hear(API.PRODUCE, PRODUCE)
    assert reply.responses[0].partition_responses[0].error_code == Code.NONE


@contextlib.asynccontextmanager
async def visited(storage: Path, beyond_runtime_bytes: int) -> AsyncIterator[Visited]:
    """Provide a broker to visit."""
    gc.collect()
    bound_bytes = psutil.Process().memory_info().rss + beyond_runtime_bytes
    config = BrokerConfig(
        memory_bytes_max=bound_bytes,
        frame_bytes_max=FRAME_BYTES_MAX,
        stream_in_flight_bytes_max=2 * FRAME_BYTES_MAX,
        kafka_request_bytes_max=2 * MIB,
        kafka_internal_partitions=1,
        maintenance_interval_s=3_600,
        group_session_timeout_s=1.0,
        storage_free_bytes_min=1,
    )
    async with whole_broker(storage, config) as broker, contextlib.AsyncExitStack() as stack:
        one = Visited(broker, bound_bytes)
        await one.begin(stack)
        yield one


@pytest.mark.deep
@pytest.mark.examples
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mib", BEYOND_RUNTIME_MIB)
def test_whatever_clients_come_and_leave_the_bound_holds_and_nothing_remains(tmp_path: Path, mib: int) -> None:
    # In a process of its own: memory from earlier tests would dominate this one's resident memory.
    examples = EXAMPLES // len(BEYOND_RUNTIME_MIB)
    child = multiprocessing.get_context("spawn").Process(target=visits, args=(tmp_path, mib * MIB, examples))
    child.start()
    child.join()
    assert child.exitcode == 0


def visits(storage: Path, beyond_runtime_bytes: int, examples: int) -> None:
    """Have crowds visit a broker, each kind of client first."""
    budget.PRESS_INTERVAL_S = deadlines.PRESS_INTERVAL_S = 0.02
    budget.SLOW_WINDOW_S = 0.3
    deadlines.HALF_CLOSED_S = 0.2
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = contextlib.AsyncExitStack()
        broker = runner.run(stack.enter_async_context(visited(storage, beyond_runtime_bytes)))

        @settings(max_examples=examples, phases=[Phase.generate], database=None, deadline=None)
        @given(CROWDS, st.integers(0, 2**32))
        def visit(crowd: Sequence[tuple[str, int]], seed: int) -> None:
            runner.run(broker.receive(crowd, seed))

        try:
            for count in (1, 8):
                runner.run(broker.receive([(kind, count) for kind in sorted(VISITORS)], count))
            visit()
            runner.run(broker.end())
        finally:
            runner.run(stack.aclose())
