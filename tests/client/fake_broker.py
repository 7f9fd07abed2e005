"""A small in-memory cluster that keeps the broker's promises, and breaks the network's on command.

Topics and lineages are those of ``core.lineage``. It checks frames as a broker does (checksums, slots, limits,
sequences by the real ``ProducerTable``), stores their bytes, and acknowledges at once by default. One ``FakeCluster``
is the shared state of its brokers.
"""

import asyncio
import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar, cast

from xxhash import xxh3_128_digest

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.intake import Intake
from seaweedmq.codec.frame import Frame, FrameHeader, decode_header, split_frames, stamp
from seaweedmq.codec.paths import parse_blob
from seaweedmq.codec.payload.batch import validate_payload
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.core.lineage.topology import SegmentEnd, altered, new_topic, succeed
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.errors import (
    AlreadyExists,
    Closed,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    OutOfRange,
    SeaweedMQError,
    StaleMetadata,
    Unavailable,
)
from seaweedmq.model.broker import BrokerInfo, BrokerStatus, ClusterStatus
from seaweedmq.model.description import SegmentSelection, SegmentStats, TopicDescription, UpdatedTopics
from seaweedmq.model.messages import blobs as b
from seaweedmq.model.messages import calls as c
from seaweedmq.model.messages import groups as g
from seaweedmq.model.messages import publish as p
from seaweedmq.model.messages import subscribe as s
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Topic, TopicChange, TopicName, TopicSpec, topic_recreated
from seaweedmq.ports import BrokerApi
from tests.client.fake_coordinator import FakeCoordinator

R = TypeVar("R")


@dataclass
class StoredSegment:
    """A segment with its frames."""

    meta: Segment
    producers: ProducerTable = field(default_factory=ProducerTable)
    frames: list[bytes] = field(default_factory=list)
    headers: list[FrameHeader] = field(default_factory=list)
    end: int = 0
    ends: list[int] = field(default_factory=list)
    """End offset of each frame."""


class Stream:
    """One open stream, which tests can wake and break."""

    def __init__(self) -> None:
        self.is_broken = False
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def news(self) -> None:
        await self._news.wait()
        self._news.clear()


class FakeCluster:
    """Topics, brokers and the commands that disturb them."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = {f"b-{n}": FakeBroker(self, f"b-{n}", f"fake:{9_000 + n}") for n in range(brokers)}
        self.topics: dict[TopicName, Topic] = {}
        self.segments: dict[TopicName, dict[int, StoredSegment]] = {}
        self.dead: set[str] = set()
        self.frozen: set[str] = set()
        self.holds_acks = False
        """Whether brokers store frames without acknowledging them."""
        self.silent: set[int] = set()
        """Segments whose publish streams send nothing, not even that they are sealed."""
        self.lose_acks = 0
        """Number of acknowledgements to drop; the stream breaks instead."""
        self.refuse: SeaweedMQError | None = None
        """Error that every new stream raises."""
        self.refuse_value: bytes | None = None
        """Bytes that make the broker reject a frame."""
        self.frame_bytes_max = 16 << 20
        self.in_flight_frames_max = 16
        self.recent_known = True
        """Whether brokers know the last acknowledgements of sealed segments."""
        self.payloads: dict[str, bytes] = {}
        """Uploaded payloads, by uri."""
        self.parts: dict[str, dict[int, bytes]] = {}
        """Stored parts of each upload, by number."""
        self.stored_parts: list[int] = []
        self.broken_parts: list[int] = []
        self.upload_silence_s: float | None = None
        """Longest silence of a client in an upload, in seconds."""
        """Parts that break the stream once, before they are stored."""
        self.publish_streams = 0
        self.subscribe_streams = 0
        self.repeated_frames = 0
        self.credit_given: dict[int, int] = {}
        self.frames_sent: dict[int, int] = {}
        self.streams: dict[Stream, None] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        """Event loop that serves the brokers."""
        self.coordinators: dict[tuple[str, TopicName], FakeCoordinator] = {}
        self.asked: list[SegmentSelection] = []
        """Selections of the DescribeTopic calls."""
        self.sealed_per_page = 500
        self.blobs: dict[str, bytes] = {}
        """Payloads by their path."""
        self.lose_blob_reads = 0
        """Number of reads of payloads whose stream breaks after the first message."""
        self.blob_reads = 0
        self._uid = 1_000

    # --- commands of a test ------------------------------------------------------------------------------------------
    def dialer(self) -> "FakeDialer":
        return FakeDialer(self)

    def kill(self, broker: str) -> None:
        """Kill a broker, with its streams."""
        self.dead.add(broker)
        self.drop_connections()

    def freeze(self, broker: str) -> None:
        """Freeze a broker: connected clients notice, and later calls wait."""
        self.frozen.add(broker)
        self.drop_connections()

    def drop_connections(self) -> None:
        """Break every stream now."""
        for stream in self.streams:
            stream.is_broken = True
        self.wake()

    def wake(self) -> None:
        for stream in self.streams:
            stream.wake()

    def coordinator(self, group: str, topic: str) -> FakeCoordinator:
        return self.coordinators[group, TopicName.parse(topic)]

    async def until_stored(self, topic: str, count: int, segment: int = 0) -> None:
        """Return when the segment ends at ``count`` or above."""
        stream = self.open_stream()
        while self.stored(topic, segment).end < count:
            await stream.news()
        self.streams.pop(stream, None)

    def release_acks(self) -> None:
        self.holds_acks = False
        self.wake()

    def release_acks_from_a_thread(self) -> None:
        """Release acknowledgements for a client that runs in its own loop."""
        self.loop.call_soon_threadsafe(self.release_acks)

    def open_stream(self) -> Stream:
        self.loop = asyncio.get_running_loop()
        stream = Stream()
        self.streams[stream] = None
        return stream

    def stored(self, topic: str, segment: int = 0) -> StoredSegment:
        return self.segments[TopicName.parse(topic)][segment]

    def store_frame(self, topic: str, frame: bytes, segment: int = 0) -> None:
        """Store a frame as if a publisher had sent it."""
        (sent,) = split_frames(frame)
        validate_payload(sent.header, sent.payload, None)
        stored = self.stored(topic, segment)
        data = stamp(sent.header_bytes, stored.end) + bytes(sent.payload)
        stored.frames.append(data)
        stored.headers.append(decode_header(data))
        stored.end += sent.header.record_count
        stored.ends.append(stored.end)
        self.wake()

    def seal(self, topic: str, segment: int, cuts: tuple[int, ...] = ()) -> list[int]:
        """Close a segment and open successors, split at ``cuts``; returns their ids."""
        return self.replace(topic, [segment], cuts)

    def merge(self, topic: str, left: int, right: int) -> int:
        return self.replace(topic, [left, right], ())[0]

    def prune(self, topic: str, *segments: int) -> None:
        """Forget segments, as if retention had removed their records long ago."""
        for segment in segments:
            del self.segments[TopicName.parse(topic)][segment]

    def forget_seal(self, topic: str, segment: int) -> None:
        """Have a segment open again and its successors gone, as in an etcd that was recovered without its seal."""
        kept = self.segments[TopicName.parse(topic)]
        sealed = kept[segment].meta
        for successor in sealed.successors:
            del kept[successor]
        kept[segment].meta = replace(sealed, state=SegmentState.OPEN, end_offset=None, successors=())

    def replace(self, topic: str, old: list[int], cuts: tuple[int, ...]) -> list[int]:
        name = TopicName.parse(topic)
        kept = self.segments[name]
        ends = [
            SegmentEnd(
                segment=stored.meta,
                end_offset=stored.end,
                epoch=stored.meta.epoch,
                sequences=tuple(s.sequence for s in stored.producers.snapshot()),
            )
            for stored in map(kept.__getitem__, old)
        ]
        edges = [ends[0].segment.slots.lo, *cuts, ends[-1].segment.slots.hi]
        ranges = [KeyRange(lo, hi) for lo, hi in pairwise(edges)]
        before = self.topics[name]
        placement = self._placement(before.next_segment, len(ranges))
        change = succeed(before, ends, ranges=ranges, placement=placement, now_us=1)
        self.topics[name] = change.topic
        for segment in change.segments:
            if segment.is_open:
                kept[segment.id] = StoredSegment(segment, end=segment.start_offset)
            else:
                kept[segment.id].meta = segment
        self.wake()
        for coordinator in self.coordinators.values():
            coordinator.metadata_changed()
        return [segment.id for segment in change.segments if segment.is_open]

    def _placement(self, first: int, count: int) -> list[tuple[str, ...]]:
        alive = sorted(set(self.brokers) - self.dead - self.frozen)
        return [(alive[number % len(alive)],) for number in range(first, first + count)]

    # --- what brokers share ------------------------------------------------------------------------------------------
    def describe(self, name: TopicName) -> TopicDescription:
        if name not in self.topics:
            raise NotFound(f"there is no topic {name}")
        return TopicDescription(
            topic=self.topics[name],
            segments=tuple(s.meta for _, s in sorted(self.segments[name].items())),
            addresses={b.id: b.address for b in self.brokers.values() if b.id not in self.dead},
            revision=self.topics[name].next_segment,
        )

    def ends(self, name: TopicName) -> tuple[TopicDescription, dict[int, int]]:
        """Return the topic, and the end offset of each segment."""
        return self.describe(name), {number: stored.end for number, stored in self.segments[name].items()}

    def find(self, name: TopicName, segment: int) -> StoredSegment:
        self.describe(name)
        if segment not in self.segments[name]:
            raise NotFound(f"{name} has no segment {segment}")
        return self.segments[name][segment]

    def create(self, spec: TopicSpec) -> TopicDescription:
        if spec.name in self.topics:
            raise AlreadyExists(f"topic {spec.name} exists: choose another name")
        self._uid += 1
        placement = self._placement(0, spec.first_segments)
        made = new_topic(spec, uid=self._uid, now_us=1, placement=placement)
        self.topics[spec.name] = made.topic
        self.segments[spec.name] = {segment.id: StoredSegment(segment) for segment in made.segments}
        return self.describe(spec.name)


def _frames_of(request: p.PublishRequest | None) -> Frames | None:
    return request.data if isinstance(request, p.PublishFrames) else None


class FakeBroker:
    """One broker: the part of ``BrokerApi`` that clients use."""

    def __init__(self, cluster: FakeCluster, id: str, address: str) -> None:  # noqa: A002
        self.cluster = cluster
        self.id = id
        self.address = address

    def _check_alive(self) -> None:
        if self.id in self.cluster.dead:
            raise Unavailable(f"connection to {self.address} refused")

    async def _until_thawed(self) -> None:
        if self.id in self.cluster.frozen:
            await asyncio.Event().wait()

    async def call(self, request: c.Call[R], context: CallContext = INTERNAL) -> R:
        self._check_alive()
        await self._until_thawed()
        answer: R = await self._answer(request)
        return answer

    async def _answer(self, call: c.Call[Any]) -> Any:
        match call:
            case c.CreateTopics():
                return tuple(map(self.cluster.create, call.specs))
            case c.AlterTopic():
                return self._alter(call.name, call.change)
            case c.DeleteTopic():
                return self._delete(call.name, call.topic_uid)
            case c.ListTopics():
                return tuple(self.cluster.topics.values())
            case c.DescribeTopic():
                return self._describe(call.name, call.which)
            case c.AwaitTopics():
                return await self._changed(call)
            case c.AdoptSchema():
                return self._adopt_schema(call.name, call.schema)
            case c.TopicStats():
                return await self.topic_stats(call.name)
            case c.GetClusterStatus():
                return self._status()
            case c.DescribeGroup():
                return self._describe_group(call.group)
            case _:
                raise AssertionError(f"{call}: no client of these tests asks for it")

    def _alter(self, name: TopicName, change: TopicChange) -> TopicDescription:
        self.cluster.topics[name] = altered(self.cluster.describe(name).topic, change)
        return self.cluster.describe(name)

    def _delete(self, name: TopicName, topic_uid: int) -> None:
        if topic_uid not in (0, self.cluster.describe(name).topic.uid):
            raise topic_recreated(name)
        del self.cluster.topics[name], self.cluster.segments[name]
        self.cluster.drop_connections()

    def _describe(self, name: TopicName, which: SegmentSelection) -> TopicDescription:
        self.cluster.asked.append(which)
        whole = self.cluster.describe(name)
        above = which.sealed_above
        sealed = [s.id for s in whole.segments if not s.is_open and above is not None and s.id > above]
        page = sealed[: self.cluster.sealed_per_page]
        wanted = {*which.ids, *page}
        return replace(
            whole,
            segments=tuple(s for s in whole.segments if s.id in wanted or (which.open and s.is_open)),
            more_above=page[-1] if len(sealed) > len(page) else None,
        )

    async def _changed(self, call: c.AwaitTopics) -> UpdatedTopics:
        topics = self.cluster.topics
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(call.patience_s):
                while True:
                    self._check_alive()
                    there = [self.cluster.describe(a.name) for a in call.topics if a.name in topics]
                    above = {a.topic_uid: a.above for a in call.topics}
                    if newer := tuple(d for d in there if d.revision > above.get(d.topic.uid, d.revision)):
                        return UpdatedTopics(newer)
                    await asyncio.sleep(0.01)
        return UpdatedTopics(unknown=tuple(a.topic_uid for a in call.topics if a.name not in topics))

    def _adopt_schema(self, name: TopicName, schema: bytes) -> TopicDescription:
        topic = self.cluster.describe(name).topic
        if topic.schema not in (None, schema) or any(s.end for s in self.cluster.segments[name].values()):
            raise InvalidArgument(f"topic {name} is not empty or has another schema")
        self.cluster.topics[name] = replace(topic, schema=schema)
        return self.cluster.describe(name)

    async def topic_stats(self, name: TopicName) -> tuple[SegmentStats, ...]:
        self.cluster.describe(name)
        return tuple(
            SegmentStats(
                segment=n,
                start_offset=s.meta.start_offset,
                high_watermark=s.end,
                flushed_offset=s.end,
                bytes_per_s=0.0,
                records_per_s=0.0,
            )
            for n, s in self.cluster.segments[name].items()
            if s.meta.is_open
        )

    def _status(self) -> ClusterStatus:
        alive = [b for b in self.cluster.brokers.values() if b.id not in self.cluster.dead]
        return ClusterStatus(
            leader=alive[0].id,
            brokers=tuple(
                BrokerStatus(
                    info=BrokerInfo(id=b.id, address=b.address, started_us=0, pid=1, version="0"),
                    load=None,
                    open_segments=0,
                    is_leader=b is alive[0],
                )
                for b in alive
            ),
            topics=len(self.cluster.topics),
            open_segments=0,
        )

    # --- groups ------------------------------------------------------------------------------------------------------
    async def join_group(
        self, requests: AsyncIterator[g.GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[g.GroupReply]:
        self._check_alive()
        opening = await anext(requests)
        assert isinstance(opening, g.GroupOpen)
        self.cluster.describe(opening.topic)
        key = opening.group, opening.topic
        if key not in self.cluster.coordinators:
            self.cluster.coordinators[key] = FakeCoordinator(opening, lambda: self.cluster.ends(opening.topic))
        async for reply in self.cluster.coordinators[key].join(opening, requests):
            self._check_alive()
            yield reply

    def _describe_group(self, group: str) -> g.GroupDescription:
        for (name, topic), coordinator in self.cluster.coordinators.items():
            if name == group:
                return coordinator.describe(topic, group)
        raise NotFound(f"there is no group {group}")

    # --- publish -----------------------------------------------------------------------------------------------------
    async def publish(
        self, requests: AsyncIterator[p.PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[p.PublishReply]:
        self._check_alive()
        cluster = self.cluster
        cluster.publish_streams += 1
        await self._until_thawed()
        await asyncio.sleep(0)
        opening = await anext(requests)
        assert isinstance(opening, p.PublishOpen)
        if cluster.refuse is not None:
            raise cluster.refuse
        stored = cluster.find(opening.topic, opening.segment)
        if not stored.meta.is_open:
            yield self._sealed(stored, opening)
            return
        if stored.meta.primary != self.id or stored.meta.epoch != opening.epoch:
            raise StaleMetadata(f"{self.id} is not the primary of {stored.meta}")
        intake = Intake(MemoryBudget(1 << 30))
        is_new_epoch = stored.producers.is_new_epoch(opening.producer_id, opening.producer_epoch)
        yield p.PublishReady(
            next_sequence=stored.producers.open(
                opening.producer_id, opening.producer_epoch, opening.first_sequence, now=0.0
            ),
            frame_bytes_max=cluster.frame_bytes_max,
            in_flight_frames_max=cluster.in_flight_frames_max,
            in_flight_bytes_max=32 << 20,
            message_bytes_max=intake.message_bytes_max,
            is_new_epoch=is_new_epoch,
        )
        acks: deque[p.FrameAck] = deque()
        stream = cluster.open_stream()
        reading = asyncio.create_task(self._read(stored, opening, requests, acks, intake))
        reading.add_done_callback(lambda _: stream.wake())
        try:
            while ack := await self._next_ack(stored, acks, reading, stream):
                if cluster.lose_acks:
                    cluster.lose_acks -= 1
                    raise Unavailable("the connection broke before the acknowledgement")
                yield p.PublishAck((ack,))
            if not stored.meta.is_open:
                yield self._sealed(stored, opening)
        finally:
            cluster.streams.pop(stream, None)
            reading.cancel()
            await asyncio.wait({reading})
            stored.producers.close(opening.producer_id, 0.0)

    async def _next_ack(
        self, stored: StoredSegment, acks: deque[p.FrameAck], reading: "asyncio.Task[None]", stream: Stream
    ) -> p.FrameAck | None:
        """Return None once the segment is sealed, or the client has ended the stream and everything is acknowledged."""
        while True:
            if stream.is_broken:
                raise Unavailable(f"connection to {self.address} was reset")
            if stored.meta.id in self.cluster.silent:
                await stream.news()
                continue
            if not stored.meta.is_open:
                return None
            if acks and not self.cluster.holds_acks:
                return acks.popleft()
            if reading.done():
                reading.result()
                return None
            await stream.news()

    async def _read(
        self,
        stored: StoredSegment,
        opening: p.PublishOpen,
        requests: AsyncIterator[p.PublishRequest],
        acks: deque[p.FrameAck],
        intake: Intake,
    ) -> None:
        try:
            async for request in requests:
                if isinstance(request, FrameHead):
                    self._check_length(intake.header(request))
                    frames: Iterable[Frame] = [await intake.frame(request, requests, _frames_of)]
                else:
                    assert isinstance(request, p.PublishFrames)
                    intake.check(request.data)
                    frames = split_frames(request.data)
                for frame in frames:
                    if stored.meta.is_open:
                        acks.append(self._store(stored, opening, frame))
                        self.cluster.wake()
        finally:
            self.cluster.wake()

    def _check_length(self, header: FrameHeader) -> None:
        if header.frame_bytes > self.cluster.frame_bytes_max:
            raise InvalidArgument(f"frame of {header.frame_bytes} bytes is over {self.cluster.frame_bytes_max}")

    def _store(self, stored: StoredSegment, opening: p.PublishOpen, frame: Frame) -> p.FrameAck:
        header = frame.header
        self._check_length(header)
        if not stored.meta.slots.covers(header.slot_min, header.slot_max):
            raise StaleMetadata(f"slots {header.slot_min}..{header.slot_max} are not in {stored.meta.slots}")
        if header.producer_id != opening.producer_id:
            raise InvalidArgument("foreign producer")
        schema = self.cluster.topics[stored.meta.topic].schema
        if header.schema_version == 0 and schema is not None:
            raise InvalidArgument(f"a plain frame came to topic {stored.meta.topic}, which has a schema")
        if header.schema_version != (0 if schema is None else 1):
            raise StaleMetadata("wrong schema version")
        validate_payload(header, frame.payload, None if schema is None else schema_from_bytes(schema))
        if self.cluster.refuse_value is not None and self.cluster.refuse_value in bytes(frame.payload):
            raise InvalidArgument(f"a record holds {self.cluster.refuse_value!r}")
        key = (header.producer_id, header.producer_epoch, header.first_sequence, header.record_count)
        ack = stored.producers.find_repeat(*key)
        if ack is not None:
            self.cluster.repeated_frames += 1
            return ack
        ack = p.FrameAck(header.first_sequence, header.record_count, stored.end)
        stored.producers.record(header.producer_id, header.producer_epoch, ack)
        data = stamp(frame.header_bytes, stored.end) + bytes(frame.payload)
        stored.frames.append(data)
        stored.headers.append(decode_header(data))
        stored.end += header.record_count
        stored.ends.append(stored.end)
        return ack

    def _sealed(self, stored: StoredSegment, opening: p.PublishOpen) -> p.PublishSealed:
        state = stored.producers.state(opening.producer_id)
        if state is not None and state.producer_epoch != opening.producer_epoch:
            state = None  # an earlier producer epoch, which says nothing of this one
        is_new_epoch = stored.producers.is_new_epoch(opening.producer_id, opening.producer_epoch)
        return p.PublishSealed(
            end_offset=stored.end,
            next_sequence=opening.first_sequence if state is None else state.next_sequence,
            recent=state.recent if state is not None and self.cluster.recent_known else (),
            successors=stored.meta.successors,
            is_new_epoch=is_new_epoch,
        )

    # --- payloads by reference ---------------------------------------------------------------------------------------
    async def upload(
        self, requests: AsyncIterator[b.UploadRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[b.UploadReply]:
        self._check_alive()
        opening = await anext(requests)
        assert isinstance(opening, b.UploadOpen)
        uri = f"blobs/{opening.topic}/{opening.topic_uid}/2026-11-28/{opening.upload_id}"
        parts, number = self.cluster.parts.setdefault(opening.upload_id, {}), 0
        for found, content in sorted(parts.items()):
            yield b.PartFound(found, len(content), xxh3_128_digest(content))
        yield b.UploadReady(uri, 1 << 20, is_complete=uri in self.cluster.payloads)
        while (request := await self._next_of_upload(requests)) is not None:
            match request:
                case b.PartBegin(number):
                    arriving = b""
                case b.PartData(data):
                    arriving += data
                case b.PartEnd(digest):
                    if number in self.cluster.broken_parts:
                        self.cluster.broken_parts.remove(number)
                        raise Unavailable(f"part {number} was damaged on its way: retry")
                    assert digest == xxh3_128_digest(arriving)
                    parts[number] = arriving
                    self.cluster.stored_parts.append(number)
                    yield b.PartStored(number)
                case b.UploadFinish(count, size_bytes):
                    payload = b"".join(parts[part] for part in range(count))
                    assert len(payload) == size_bytes
                    self.cluster.payloads[uri] = payload
                    yield b.UploadDone()

    async def _next_of_upload(self, requests: AsyncIterator[b.UploadRequest]) -> b.UploadRequest | None:
        try:
            async with asyncio.timeout(self.cluster.upload_silence_s):
                return await anext(requests, None)
        except TimeoutError:
            raise DeadlineExceeded("upload was silent: resume it") from None

    # --- subscribe ---------------------------------------------------------------------------------------------------
    async def read_blob(
        self, requests: AsyncIterator[b.BlobRange], context: CallContext = INTERNAL
    ) -> AsyncIterator[b.BlobData]:
        self._check_alive()
        cluster = self.cluster
        cluster.blob_reads += 1
        wanted = await anext(requests)
        name = parse_blob(wanted.uri)
        assert name is not None
        assert (name.topic, name.uid) == (wanted.topic, wanted.topic_uid), "a client asks for its own topic alone"
        payload = cluster.blobs.get(wanted.uri)
        if payload is None:
            raise NotFound(f"payload {wanted.uri} is missing")
        found = payload[wanted.position : wanted.position + wanted.length]
        for first in range(0, len(found), 100_000):
            yield b.BlobData(found[first : first + 100_000])
            if cluster.lose_blob_reads:
                cluster.lose_blob_reads -= 1
                raise Unavailable(f"connection to {self.address} was reset")

    async def subscribe(
        self, requests: AsyncIterator[s.SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[s.SubscribeReply]:
        self._check_alive()
        cluster = self.cluster
        cluster.subscribe_streams += 1
        await asyncio.sleep(0)
        opening = await anext(requests)
        assert isinstance(opening, s.SubscribeOpen)
        if cluster.refuse is not None:
            raise cluster.refuse
        stored = cluster.find(opening.topic, opening.segment)
        if stored.meta.is_open and stored.meta.primary != self.id:
            raise StaleMetadata(f"{self.id} is not the primary of {stored.meta}")
        position = self.start_of(stored, opening)
        credit = [opening.credit_bytes]
        number = opening.segment
        cluster.credit_given[number] = opening.credit_bytes
        cluster.frames_sent[number] = 0
        yield s.SubscribeReady(start_offset=position, high_watermark=stored.end)
        stream = cluster.open_stream()

        async def read_credit() -> None:
            async for request in requests:
                assert isinstance(request, s.SubscribeCredit)
                credit[0] += request.credit_bytes
                cluster.credit_given[number] += request.credit_bytes
                cluster.wake()

        reading = asyncio.create_task(read_credit())
        try:
            at = bisect_right(stored.ends, position)
            while True:
                if stream.is_broken:
                    raise Unavailable(f"connection to {self.address} was reset")
                if at < len(stored.frames):
                    if credit[0] > 0:
                        data = stored.frames[at]
                        at += 1
                        credit[0] -= len(data)
                        cluster.frames_sent[number] += len(data)
                        yield s.SubscribeFrames(data)
                        continue
                elif not stored.meta.is_open:
                    yield s.SubscribeEnd(end_offset=stored.end, successors=stored.meta.successors)
                    return
                await stream.news()
        finally:
            cluster.streams.pop(stream, None)
            reading.cancel()
            await asyncio.wait({reading})

    def start_of(self, stored: StoredSegment, opening: s.SubscribeOpen) -> int:
        first = stored.headers[0].base_offset if stored.headers else stored.end
        kind, value = opening.start.kind, opening.start.value
        if kind is s.StartKind.EARLIEST:
            return first
        if kind is s.StartKind.LATEST:
            return stored.end
        if kind is s.StartKind.TIME:
            return next((h.base_offset for h in stored.headers if h.timestamp_max >= value), stored.end)
        if value > stored.end:
            raise OutOfRange(f"offset {value} of {stored.meta} is beyond {stored.end}")
        return max(value, first)


class FakeDialer:
    """A ``Dialer`` of the cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._brokers = {b.address: b for b in cluster.brokers.values()}
        self.is_closed = False

    def dial(self, address: str) -> BrokerApi:
        if self.is_closed:
            raise Closed("the dialer is closed")
        if address not in self._brokers:
            raise Unavailable(f"connection to {address} refused")
        return cast(BrokerApi, self._brokers[address])  # the part of it that clients use

    async def close(self) -> None:
        self.is_closed = True
