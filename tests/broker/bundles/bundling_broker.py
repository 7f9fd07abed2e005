"""A broker's primaries over an object store in memory, without cluster and network, and what others read after them."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xxhash import xxh3_64_intdigest

from seaweedmq.broker.bundles.bundler import Bundler
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.object_storage import ObjectStorage
from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.broker.segment.fsync import NoSyncs
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.segment.replicate import ReplicationContext
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.codec.bundle import run_frames
from seaweedmq.codec.frame import ENCODING_ARROW, Frame, FrameHeader, encode_header, split_frames
from seaweedmq.codec.logfile import decode_preamble
from seaweedmq.codec.object_keys import parse_log_object
from seaweedmq.core.segment.bundle_ledger import LedgerLimits
from seaweedmq.core.segment.bundle_recovery import RecoveredSegment
from seaweedmq.core.segment.bundling import BundleLimits
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.model.config import MIB, BrokerConfig
from seaweedmq.model.ring import HISTOGRAM_BUCKETS
from seaweedmq.model.segment import ReplicaKey
from seaweedmq.model.topic import Durability, Topic
from seaweedmq.ports import BrokerApi, Environment, Objects
from seaweedmq.storage.bundles.entries import SequenceEntries, begin_sequence
from seaweedmq.storage.bundles.recovery import recover_sequence
from tests.doubles.memory_objects import Carrier, MemoryBucket, MemoryObjects, ObjectAnswer, ObjectRequest
from tests.doubles.memory_store import MemorySegmentStore
from tests.support.segments import make_segment, make_topic

CONFIG = BrokerConfig(lease_ttl_s=2.0, log_roll_bytes=16 * MIB)
TOPIC = make_topic()


class Killed(BaseException):
    """The end of a process in the middle of a request."""


@dataclass
class BundlingBroker:
    """A broker with a lease that the test sets, which publishes by itself."""

    objects: Objects
    broker_id: str = "b-1"
    cuts: BundleLimits = field(default_factory=BundleLimits)
    ledger: LedgerLimits = field(default_factory=LedgerLimits)
    config: BrokerConfig = CONFIG
    lease_left_s: float = 2.0
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)
    segments: dict[int, OpenSegment] = field(default_factory=dict)
    published: dict[int, list[bytes]] = field(default_factory=dict)
    """Payloads of each segment's records, one record a frame."""
    has_rejoined: bool = False
    memory_bytes: int = 256 * MIB

    async def begin(self) -> None:
        env = Environment(lambda: 1_000_000, random.Random(self.broker_id))
        await begin_sequence(SequenceEntries(self.objects, self.broker_id), rng=env.rng, wall_us=0)
        self.bundler = Bundler(
            self.objects,
            self.broker_id,
            env,
            spawn=self.spawn,
            on_ended=lambda: setattr(self, "has_rejoined", True),
            cuts=self.cuts,
            ledger=self.ledger,
        )
        self.spawn(self.bundler.run(), "bundler")
        self.context = SegmentContext(
            config=self.config,
            store=MemorySegmentStore(lambda: 0),
            budget=MemoryBudget(self.memory_bytes),
            producers=ProducerPool.of(self.config),
            storage=ObjectStorage(
                self.bundler,
                self.config,
                lease_left_s=lambda: self.lease_left_s,
                provenance=lambda segment: (segment,),
            ),
            sync_rounds=NoSyncs(),
            lease_alive=lambda: self.lease_left_s > 0,
            env=env,
            spawn=self.spawn,
            replication=ReplicationContext(_no_dial, MemoryBudget(MIB), 1.0, Suspicions(_no_report, self.spawn)),
        )

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append(error)

    def kill(self) -> None:
        for task in list(self.tasks):
            task.cancel()

    def open(self, number: int = 0, *, durability: Durability = Durability.STORED) -> OpenSegment:
        topic: Topic = replace(TOPIC, durability=durability)
        segment = replace(make_segment(), id=number, replicas=(self.broker_id,))
        opened = self.segments[number] = OpenSegment(topic, segment, self.context)
        opened.start()
        self.published.setdefault(number, [])
        return opened

    async def publish(self, number: int = 0, *, size: int = 100, producer: int = 1) -> int:
        """Append a frame of one record, and return the end of the log."""
        segment = self.segments[number]
        payload = f"{number}/{len(self.published[number])}/".encode().ljust(size, b".")
        await segment.admit(size + 144)
        if producer not in segment.log.producers:
            segment.open_producer(producer, 0, 0)
        state = segment.log.producers.state(producer)
        assert state is not None
        frame = make_frame(payload, producer, state.next_sequence)
        self.published[number].append(payload)
        segment.append(frame)
        return segment.log.end

    async def acknowledged(self, number: int = 0, end: int | None = None, *, patience_s: float = 60.0) -> None:
        """Wait until the segment has acknowledged everything, or what is below ``end``."""
        segment = self.segments[number]
        async with asyncio.timeout(patience_s):
            while segment.log.committed < (segment.log.end if end is None else end):
                await segment.committed_changed.wait()

    async def until(self, condition: Callable[[], object], patience_s: float = 60.0) -> None:
        async with asyncio.timeout(patience_s):
            while not condition():  # noqa: ASYNC110 - conditions are of any kind, and time is virtual
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self.kill()
        while self.tasks:
            await asyncio.wait(set(self.tasks))
        assert not self.errors, self.errors


def make_frame(payload: bytes, producer: int, sequence: int) -> Frame:
    header = FrameHeader(
        encoding=ENCODING_ARROW,
        flags=0,
        record_count=1,
        payload_length=len(payload),
        payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=0,
        timestamp_max=0,
        producer_id=producer,
        first_sequence=sequence,
        producer_epoch=0,
        slot_min=0,
        slot_max=0,
        histogram=(1, *[0] * (HISTOGRAM_BUCKETS - 1)),
    )
    return Frame(header, encode_header(header), payload)


class Points:
    """A carrier that stops its process at one of the points before and after each request."""

    def __init__(self, bucket: MemoryBucket, stop_at: int, stop: Callable[[], None]) -> None:
        self.bucket = bucket
        self.stop_at = stop_at
        self.stop = stop
        self.passed = 0

    async def __call__(self, request: ObjectRequest) -> ObjectAnswer:
        await self._point()
        answer = self.bucket.apply(request)
        await self._point()
        return answer

    async def _point(self) -> None:
        await asyncio.sleep(0.001)
        self.passed += 1
        if self.passed == self.stop_at:
            self.stop()
            await asyncio.Event().wait()


def make_objects(carry: Carrier | None = None, bucket: MemoryBucket | None = None) -> MemoryObjects:
    return MemoryObjects(bucket or MemoryBucket(lambda: 0), "b-1", carry)


async def recovered(
    objects: Objects, broker_id: str = "b-1", by: str = "leader"
) -> dict[ReplicaKey, RecoveredSegment] | None:
    rng = random.Random(by)
    found = await recover_sequence(SequenceEntries(objects, broker_id), by=by, rng=rng, wall_us=0)
    return None if found is None else dict(found)


async def read_back(bucket: MemoryBucket, broker_id: str = "b-1", by: str = "leader") -> dict[int, list[bytes]]:
    """Fence the broker, and return the payloads of each segment as its bundles and log objects have them."""
    objects = MemoryObjects(bucket, by)
    found = await recovered(objects, broker_id, by)
    frames: dict[int, dict[int, Frame]] = {}
    for key, stored in bucket.stored.items():
        name = parse_log_object(key)
        if name is not None:
            preamble, position = decode_preamble(stored.content)
            assert (preamble.base_offset, preamble.writer) == (name.base_offset, broker_id)
            _take(frames.setdefault(name.segment, {}), split_frames(stored.content[position:]))
    entries = SequenceEntries(objects, broker_id)
    ends = {number: max(frame.header.end_offset for frame in each.values()) for number, each in frames.items()}
    for key, segment in (found or {}).items():
        each = frames.setdefault(key.segment, {})
        for located in segment.runs:
            if not located.run.is_reference:
                data = await entries.frames(located.number, located.run)
                assert data is not None
                _take(each, run_frames(data, located.run, entries.name(located.number)))
        ends[key.segment] = segment.end_offset
    return {number: _in_order(each, ends[number]) for number, each in frames.items()}


def _take(held: dict[int, Frame], frames: Any) -> None:
    for frame in frames:
        base = frame.header.base_offset
        assert base not in held or bytes(held[base].payload) == bytes(frame.payload), "two frames at one offset"
        held[base] = frame


def _in_order(frames: dict[int, Frame], end: int) -> list[bytes]:
    offset = 0
    payloads = []
    while offset < end:
        assert offset in frames, f"offset {offset} of {end} is lost"
        payloads.append(bytes(frames[offset].payload))
        offset = frames[offset].header.end_offset
    return payloads


def _no_dial(broker_id: str) -> BrokerApi:
    raise AssertionError(broker_id)


async def _no_report(report: Any) -> None:
    raise AssertionError(report)


def log_objects(bucket: MemoryBucket) -> Sequence[tuple[int, int, int]]:
    """Return segment, base and end of all log objects."""
    names = [name for key in bucket.stored if (name := parse_log_object(key)) is not None]
    return sorted((name.segment, name.base_offset, name.end_offset) for name in names)


Story = Callable[[BundlingBroker], Awaitable[None]]
