"""A test bed: real brokers in virtual time, over one storage, one etcd and one network, all in memory.

A test is a coroutine function that takes a ``Testbed`` and is decorated with :func:`story`. Times are virtual: waiting
for a lease costs nothing.
"""

import asyncio
import errno
import functools
import inspect
import logging
import os
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pyarrow as pa

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.inspect import Inspection
from seaweedmq.broker.membership import Endpoints
from seaweedmq.client.subscribe.assembler import FrameAssembler
from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.paths import GROUPS
from seaweedmq.codec.payload.batch import decode_frame, encode_frame, payload_schema
from seaweedmq.errors import SeaweedMQError, StorageFailed, StorageFull
from seaweedmq.model.config import KIB, BrokerConfig
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.calls import CreateTopic, DescribeTopic
from seaweedmq.model.messages.publish import PublishAck, PublishFrames, PublishOpen, PublishReady
from seaweedmq.model.messages.replication import SegmentRef
from seaweedmq.model.messages.subscribe import (
    EARLIEST,
    Start,
    SubscribeCredit,
    SubscribeEnd,
    SubscribeFrames,
    SubscribeOpen,
    SubscribeReady,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.ports import Environment
from tests.doubles.memory_converter import MemoryTableConverter
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.sim.machines.determinism import WALL_START_US, deterministic
from tests.sim.machines.loop import Owner, OwnerState, SimLoop
from tests.sim.machines.meta import SimEtcd
from tests.sim.machines.network import Network

NAME = TopicName("test", "topic")
TTL_S = 2.0
CONFIG = BrokerConfig(
    lease_ttl_s=TTL_S,
    frame_bytes_max=64 * KIB,
    stream_in_flight_bytes_max=256 * KIB,
    segment_buffer_bytes_max=256 * KIB,
    read_chunk_bytes=4 * KIB,
    flush_interval_s=1.0,
    maintenance_interval_s=2.0,
    log_roll_age_s=60.0,
    rpc_timeout_s=5.0,
)
PATIENCE_S = 60.0
"""Limit of waits in virtual time: no expected event takes longer."""


def story(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run the test in a deterministic loop; an unretrieved exception of a task fails it."""

    @functools.wraps(test)
    def run(**parameters: Any) -> None:
        with deterministic():
            _play(test, parameters)

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p for name, p in signature.parameters.items() if name != "testbed"], return_annotation=None
    )
    return run


def _play(test: Callable[..., Awaitable[None]], parameters: dict[str, Any]) -> None:
    """Run the test, and leave a test bed that is garbage once this returns, when ``deterministic`` collects it.

    Later collections skip what that one finds alive. Such test beds take memory to the end of the process, and
    ``asyncio.all_tasks`` walks all of their tasks.
    """
    loop = SimLoop(time_s_max=4_000, steps_max=3_000_000)
    testbed = Testbed(loop)
    _LOGGER.addHandler(_SAID)
    try:
        loop.run_until_complete(_run(test, testbed, parameters))
        assert not testbed.network.unexpected, testbed.network.unexpected
        assert not loop.failures(), loop.failures()
        assert not testbed.etcd.unguarded, testbed.etcd.unguarded
    finally:
        _LOGGER.removeHandler(_SAID)
        loop.close()


class _Said(logging.Handler):
    """Handler that reduces a record to its text: pytest keeps records to the end of the test, and an error among the
    arguments refers to the frames of the whole test bed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), ()


_LOGGER = logging.getLogger("seaweedmq")
_SAID = _Said()


async def _run(test: Callable[..., Awaitable[None]], testbed: "Testbed", parameters: dict[str, Any]) -> None:
    try:
        await test(testbed, **parameters)
    finally:
        await testbed.close()


class Faults:
    """The storage's fault hook: counts operations, and fails or holds selected ones."""

    def __init__(self) -> None:
        self.counts: Counter[StorageOp] = Counter()
        self.failing: dict[StorageOp, str] = {}
        """Reason for each failing operation."""
        self.paths = ""
        """Path fragment: other operations neither fail nor are held."""
        self.held: dict[StorageOp, asyncio.Event] = {}
        """Event that releases each held operation."""

    async def __call__(self, op: StorageOp, path: str) -> None:
        if not path.startswith(f"{GROUPS}/"):  # every test writes the journal of groups
            self.counts[op] += 1
        if op in self.held and self.paths in path:
            await self.held[op].wait()
        await asyncio.sleep(0.0005)
        if op in self.failing and self.paths in path:
            kind = StorageFull if self.failing[op].lower() == os.strerror(errno.ENOSPC).lower() else StorageFailed
            raise kind(f"cannot {op} {path}: {self.failing[op]}")

    def hold(self, op: StorageOp) -> asyncio.Event:
        """Hold operations of this kind until the returned event is set."""
        event = self.held[op] = asyncio.Event()
        return event


class Testbed:
    """Everything a broker needs, and the brokers."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.etcd = SimEtcd(loop, random.Random(1))
        self.network = Network(loop, random.Random(2))
        self.faults = Faults()
        self.storage_ahead_s = 0.0
        """Seconds by which the storage's clock is ahead of the true time."""
        self.ahead_s = 0.0
        """Seconds by which the clocks of brokers that start from now on are ahead."""
        self.store = MemorySegmentStore(lambda: self.wall_us() + int(self.storage_ahead_s * 1e6), self.faults)
        self.hosts: list[Host] = []
        self.streams: list[Streaming] = []

    def wall_us(self) -> int:
        """Return the true time."""
        return WALL_START_US + int(self.loop.boot_s * 1e6)

    async def start(
        self, config: BrokerConfig = CONFIG, address: str | None = None, store: MemorySegmentStore | None = None
    ) -> "Host":
        """Start one more broker."""
        host = self.host(config, address, store)
        await self.network.spawn(host.owner, host.broker.start())
        return host

    def host(
        self, config: BrokerConfig = CONFIG, address: str | None = None, store: MemorySegmentStore | None = None
    ) -> "Host":
        """Add one more broker without starting it."""
        host = Host(self, config, address or f"broker-{len(self.hosts)}:7777", len(self.hosts), store)
        self.hosts.append(host)
        return host

    async def cluster(self, count: int, config: BrokerConfig = CONFIG) -> list["Host"]:
        """Start this many brokers, and wait until each knows all the others and the leader."""
        hosts = [await self.start(config) for _ in range(count)]
        await self.until(lambda: all(len(h.inspect.view.brokers) == count and h.inspect.view.leader for h in hosts))
        return hosts

    def leader(self) -> "Host":
        """Return the leader; fail if there is none."""
        return next(h for h in self.hosts if h.lives and h.inspect.leads)

    async def topic(self, host: "Host", name: TopicName = NAME, **settings: Any) -> TopicDescription:
        return await host.api.call(CreateTopic(TopicSpec(name=name, **settings)))

    async def primary(self, host: "Host", name: TopicName = NAME, segment: int = 0) -> "Host":
        """Return the segment's primary."""
        description = await host.api.call(DescribeTopic(name))
        found = next(s for s in description.segments if s.id == segment)
        return next(h for h in self.hosts if h.broker.id == found.primary)

    def ref(self, segment: Segment, epoch: int | None = None) -> SegmentRef:
        """Return a reference to a segment of an existing topic, as brokers exchange it."""
        topic = self.leader().inspect.view.topics[segment.topic]
        return SegmentRef.of(topic, segment, epoch)

    def files(self, kind: FileKind, name: TopicName = NAME, segment: int = 0) -> list[SegmentFile]:
        found = [self.store.described(path, file) for path, file in self.store.files.items()]
        return sorted(
            (f for f in found if f and f.kind is kind and f.topic == name and f.segment == segment),
            key=lambda f: f.base_offset,
        )

    async def until(self, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(patience_s):
            while not condition():  # noqa: ASYNC110 - conditions are of any kind, and time is virtual
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for stream in self.streams:
            await stream.close()
        for host in self.hosts:
            if host.lives:
                await host.stop()


class Host:
    """One broker process."""

    def __init__(
        self, testbed: Testbed, config: BrokerConfig, address: str, number: int, store: MemorySegmentStore | None = None
    ) -> None:
        store = store or testbed.store
        self.testbed = testbed
        self.address = address
        self.owner = Owner(f"broker-{number}")
        self.meta = testbed.etcd.client(self.owner)
        self.ahead_s = testbed.ahead_s
        """Seconds by which the broker's wall clock is ahead of the true time."""
        self.cpu_share = 0.0
        """Share of one core that the process uses."""
        self.broker = Broker(
            config=config,
            env=Environment(
                self.wall_us,
                random.Random(f"broker {number}"),
                lambda: testbed.loop.boot_s,
                cpu_share=lambda: self.cpu_share,
            ),
            store=store,
            meta=self.meta,
            dialer=testbed.network.dialer(self.owner),
            converter=MemoryTableConverter(store, row_group_bytes=64 * KIB),
            endpoints=Endpoints(address, f"127.0.0.1:{9_000 + number}" if config.kafka_listen else ""),
        )
        testbed.network.serve(address, self.owner, self.broker.api)

    def wall_us(self) -> int:
        return self.testbed.wall_us() + int(self.ahead_s * 1e6)

    @property
    def inspect(self) -> Inspection:
        """The broker's internals that tests may read."""
        return self.broker.inspect

    @property
    def api(self) -> Any:
        """The broker's API through the network."""
        return self.testbed.network.dialer(None).dial(self.address)

    @property
    def lives(self) -> bool:
        return self.owner.state is not OwnerState.DEAD

    @property
    def has_failed(self) -> bool:
        """Whether the broker gave up."""
        return self.broker.failed.done() and not self.broker.failed.cancelled()

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self.owner.state = OwnerState.DEAD
        self.testbed.network.break_owner(self.owner, silently=False)

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP)."""
        self.owner.state = OwnerState.FROZEN

    def thaw(self) -> None:
        """Thaw the process (SIGCONT)."""
        self.testbed.loop.thaw(self.owner)

    async def suspend(self, seconds: float) -> None:
        """Suspend the machine: it sends and receives nothing, and its monotonic clock stands still."""
        self.testbed.loop.suspend(self.owner)
        await asyncio.sleep(seconds)
        self.testbed.loop.resume(self.owner)

    async def stop(self) -> None:
        """Stop the broker (SIGTERM)."""
        await self.testbed.network.spawn(self.owner, self.broker.stop())
        assert not self.has_failed, self.broker.failed.exception()
        self.owner.state = OwnerState.DEAD
        self.testbed.network.break_owner(self.owner, silently=False)

    async def publisher(
        self, producer: int = 1, *, epoch: int = 0, name: TopicName = NAME, segment: int = 0, segment_epoch: int = 1
    ) -> "Publishing":
        """Open a publish stream, and wait for ``PublishReady``."""
        stream = self.publish_stream()
        await stream.send(
            PublishOpen(topic=name, segment=segment, epoch=segment_epoch, producer_id=producer, producer_epoch=epoch)
        )
        publishing = Publishing(stream, producer, epoch)
        ready = await stream.receive()
        assert isinstance(ready, PublishReady), ready
        publishing.ready, publishing.next = ready, ready.next_sequence
        return publishing

    def publish_stream(self) -> "Streaming":
        return Streaming(self.testbed, self.api.publish)

    async def subscriber(
        self,
        start: Start = EARLIEST,
        *,
        credit: int = 1 << 20,
        name: TopicName = NAME,
        segment: int = 0,
        takes_pieces: bool = False,
    ) -> "Subscribing":
        """Open a subscribe stream, and wait for ``SubscribeReady``."""
        stream = Streaming(self.testbed, self.api.subscribe)
        opening = SubscribeOpen(
            topic=name, segment=segment, start=start, credit_bytes=credit, takes_pieces=takes_pieces
        )
        await stream.send(opening)
        ready = await stream.receive()
        assert isinstance(ready, SubscribeReady), ready
        return Subscribing(stream, ready)


class Streaming:
    """The client's side of one stream. It collects replies as they arrive."""

    def __init__(self, testbed: Testbed, call: Callable[[AsyncIterator[Any]], AsyncIterator[Any]]) -> None:
        self.testbed = testbed
        self.replies: deque[Any] = deque()
        self.ended = False
        self.error: SeaweedMQError | None = None
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._pump = asyncio.create_task(self._collect(call))
        testbed.streams.append(self)

    async def send(self, request: Any) -> None:
        self.put(request)

    def put(self, request: Any) -> None:
        """Queue a request."""
        self._requests.put_nowait(request)

    async def half_close(self) -> None:
        self.put(None)

    async def receive(self) -> Any:
        """Return the next reply.

        Raises:
            SeaweedMQError: If the stream fails.
            EOFError: If the stream ends.
        """
        await self.testbed.until(lambda: self.replies or self.ended)
        if self.replies:
            return self.replies.popleft()
        if self.error is not None:
            raise self.error
        raise EOFError

    async def failure(self) -> SeaweedMQError | None:
        """Return the error that the stream ends with, or None."""
        await self.testbed.until(lambda: self.ended)
        return self.error

    async def close(self) -> None:
        """Drop the stream without notice."""
        self._pump.cancel()
        await asyncio.wait({self._pump})

    async def _requested(self) -> AsyncIterator[Any]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _collect(self, call: Callable[[AsyncIterator[Any]], AsyncIterator[Any]]) -> None:
        replies = call(self._requested())
        try:
            async for reply in replies:
                self.replies.append(reply)
        except SeaweedMQError as error:
            self.error = error
        finally:
            self.ended = True
            await replies.aclose()  # type: ignore[attr-defined]


class Publishing:
    """A publish stream that tracks its sequences. Values name their origin: ``b"<producer>:<sequence>"``."""

    def __init__(self, stream: Streaming, producer: int, epoch: int) -> None:
        self.stream = stream
        self.producer = producer
        self.epoch = epoch
        self.next = 0
        self.ready: PublishReady
        self.sent: list[int] = []
        """First sequences of the unacknowledged frames."""

    def frame(self, count: int = 1, first: int | None = None, **more: Any) -> bytes:
        """Return the next frame, or one of other sequences."""
        if first is None:
            first, self.next = self.next, self.next + count
        return frame(count, producer=self.producer, epoch=self.epoch, first=first, **more)

    async def send(self, count: int = 1, **more: Any) -> None:
        await self.stream.send(PublishFrames(self.frame(count, **more)))

    async def acks(self, frames: int = 1) -> list[tuple[int, int]]:
        """Return ``(first_sequence, base_offset)`` of the next acknowledged frames."""
        got: list[tuple[int, int]] = []
        while len(got) < frames:
            reply = await self.stream.receive()
            assert isinstance(reply, PublishAck), reply
            got += [(a.first_sequence, a.base_offset) for a in reply.frames]
        return got

    async def store(self, frames: int = 1, count: int = 1, **more: Any) -> None:
        """Send this many frames of ``count`` records, and wait for their acknowledgements."""
        for _ in range(frames):
            await self.send(count, **more)
            await self.acks(1)

    async def quiet(self, seconds: float) -> bool:
        """Return whether no reply arrives in this time."""
        await asyncio.sleep(seconds)
        return not self.stream.replies and not self.stream.ended


class Subscribing:
    """A subscribe stream that tracks what it received."""

    def __init__(self, stream: Streaming, ready: SubscribeReady) -> None:
        self.stream = stream
        self.ready = ready
        self.next_offset = ready.start_offset
        self.values: list[bytes] = []
        self.received_bytes = 0
        self.messages_bytes: list[int] = []
        self._assembler = FrameAssembler()
        self.end: SubscribeEnd | None = None

    async def credit(self, size_bytes: int) -> None:
        await self.stream.send(SubscribeCredit(size_bytes))

    def take(self) -> None:
        """Process what has arrived, checking that offsets leave no gap and repeat nothing."""
        while self.stream.replies:
            received = self.stream.replies.popleft()
            if isinstance(received, SubscribeFrames):
                self.messages_bytes.append(len(received.data))
            reply = self._assembler.add(received)
            if reply is None:
                continue
            if isinstance(reply, SubscribeEnd):
                self.end = reply
                continue
            assert isinstance(reply, SubscribeFrames), reply
            self.received_bytes += len(reply.data)
            for got in split_frames(reply.data):
                values = decode_frame(got, None).column("_value").to_pylist()
                base, end = got.header.base_offset, got.header.end_offset
                assert base <= self.next_offset < end, f"[{base}, {end}) after {self.next_offset}"
                self.values += values[self.next_offset - base :]
                self.next_offset = end

    async def until(self, records: int) -> list[bytes]:
        """Wait for this many values, and return all values so far."""

        def enough() -> bool:
            self.take()
            return len(self.values) >= records or self.stream.ended

        await self.stream.testbed.until(enough)
        if len(self.values) < records and self.stream.error:
            raise self.stream.error
        return self.values

    async def ending(self) -> SubscribeEnd:
        """Return the end of the segment."""
        await self.stream.testbed.until(lambda: self.stream.ended)
        self.take()
        if self.stream.error is not None:
            raise self.stream.error
        assert self.end is not None
        return self.end


def frame(
    count: int = 1,
    *,
    producer: int = 1,
    epoch: int = 0,
    first: int = 0,
    size: int = 0,
    slots: tuple[int, int] = (0, 0),
    timestamp: int = WALL_START_US,
    histogram: tuple[int, ...] | None = None,
) -> bytes:
    """Return a frame of plain records; incompressible bytes pad each value to ``size`` bytes."""
    noise = random.Random(first).randbytes(size)
    values = [(b"%d:%d" % (producer, first + i) + b" " + noise)[: max(size, 24)].rstrip() for i in range(count)]
    return encode_frame(
        pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=payload_schema(0, None)),
        flags=0,
        producer_id=producer,
        producer_epoch=epoch,
        first_sequence=first,
        timestamp_min=timestamp,
        timestamp_max=timestamp,
        slot_min=slots[0],
        slot_max=slots[1],
        histogram=histogram or (count,) + (0,) * 15,
    )


def value(producer: int, sequence: int) -> bytes:
    """Return the value of a record of :func:`frame` without ``size``."""
    return b"%d:%d" % (producer, sequence)


def values(producer: int, count: int, start: int = 0) -> list[bytes]:
    return [value(producer, s) for s in range(start, start + count)]
