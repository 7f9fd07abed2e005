"""Publishing of a staged batch: every attempt sends the same rows to the same segments, until all are committed.

``core.replay`` has the rules and ``staged_rows`` the rows. This module has the streams: one per segment that may get
rows now. A stream sends from the segment's next sequence until its rows are acknowledged or the segment is sealed.
Memory holds only frames in flight: after a lost stream the rows are read again.

Brokers keep producer state for as long as a client may retry. A process that resumes another one's batch later than
that queries each segment for the producer, with a first sequence that no batch has. If the segment knows neither this
batch nor an earlier one, the files are searched.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.publish.publish_stream import MESSAGE_BYTES, UPDATE_SILENCE_S, in_pieces
from seaweedmq.client.publish.staged_rows import RowSelection, StagedRows
from seaweedmq.client.retry import pauses
from seaweedmq.core.replay import Replay
from seaweedmq.errors import (
    ConnectionRefused,
    Corrupt,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ProtocolViolation,
    SeaweedMQError,
    StaleMetadata,
    Unavailable,
)
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import (
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.staged import BatchProgress, Manifest, SegmentProgress, StagedSegment
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages.frames import pack_frames
from seaweedmq.runtime.retrying import is_retryable

log = logging.getLogger(__name__)

T = TypeVar("T")

NOTE_S = 5.0
"""Interval at which the progress is recorded while rows are acknowledged."""
QUERY_SEQUENCE = 1 << 62
"""A sequence above those of any batch: a broker without state of the producer replies with it."""
Search = Callable[[Segment, SegmentProgress], int]
"""A search for a producer in a segment without its state. It returns the sequence of the first row that is not stored,
at least the known one. Blocking. Raises OutOfRange if the files do not show it."""


Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""A runner of blocking calls, one after another, which finishes a call even if its caller was cancelled."""


@asynccontextmanager
async def one_thread() -> AsyncIterator[Offload]:
    """Provide an :data:`Offload` to a dedicated thread."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1, "seaweedmq-staged")
    try:
        yield lambda call: loop.run_in_executor(executor, call)
    finally:
        await asyncio.to_thread(executor.shutdown)


@dataclass(slots=True)
class _Stream:
    """The frames in flight of one stream, and its limits."""

    limit_frames: int = 0
    limit_bytes: int = 0
    message_bytes_max: int = 0
    frame_bytes_max: int = 0
    first_sequence: int = 0
    """The first sequence of the stream."""
    out_bytes: int = 0


class _Target:
    """One segment's part of the batch, and its progress."""

    def __init__(self, place: StagedSegment, total: int, reached: SegmentProgress) -> None:
        self.place = place
        self.total = total
        """The number of rows for the segment, if it is not sealed before."""
        self.reached = reached
        self.out: deque[tuple[int, int, int]] = deque()
        """The frames in flight: first sequence, records, bytes."""
        self.moved = asyncio.Event()
        """An event that is set when there is room, or the stream is open."""
        self.stream: _Stream | None = None
        self.asked = False
        """Whether the segment was queried for the producer, where that is needed."""


class StagedPublisher:
    """A publisher of one staged batch. Used once.

    Args:
        cluster: The cluster.
        topic: The topic.
        manifest: The batch.
        replay: The rules, with the recorded segments.
        pieces: The rows. Reading them blocks.
        progress: The recorded progress.
        note: Records progress durably. Blocking.
        search: Given if another process may have begun so long ago that brokers dropped the producer state.
        offload: Runs blocking calls.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        manifest: Manifest,
        replay: Replay,
        pieces: StagedRows,
        progress: BatchProgress,
        note: Callable[[BatchProgress], None],
        search: Search | None,
        offload: Offload,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._manifest = manifest
        self._replay = replay
        self._pieces = pieces
        self._rows = manifest.record_count
        self._reached = dict(progress.reached)
        self._note = note
        self._search = search
        self._offload = offload
        self._noting = asyncio.Lock()
        self._noted_s = asyncio.get_running_loop().time()
        self._tasks: dict[asyncio.Task[tuple[int, tuple[int, ...]]], int] = {}
        self._view = TopicView(cluster, topic, lambda _: None, self._asked_for)
        self._pause_s = pauses(cluster.config, cluster.env.rng)

    async def run(self) -> None:
        """Publish until every row is committed.

        Raises:
            NotFound: If the topic was deleted or recreated.
            OutOfRange: If it is unknown which rows of the batch are stored.
            DeadlineExceeded: If a segment acknowledged nothing for ``delivery_timeout_s``.
            Corrupt: If the segments hold other rows than the batch.
            SeaweedMQError: If a broker rejects a frame, or the storage fails.
        """
        try:
            await self._known(())
            while not self._replay.is_done:
                while unknown := self._replay.unknown():  # Predecessors are known once their successor is.
                    await self._known(unknown)
                for segment in self._replay.ready():
                    self._replay.begin(segment)
                    task = asyncio.create_task(self._deliver(segment), name=f"batch to {self._topic}#{segment}")
                    self._tasks[task] = segment
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await self._finish(self._tasks.pop(task), *task.result())
            kept = sum(end.kept for end in self._replay.finished.values())
            if kept != self._rows:
                raise Corrupt(
                    f"batch {self._manifest.batch} has {self._rows} rows, but {self._topic} has taken {kept}: the "
                    "staged files differ from the manifest, or a broker miscounts: report this"
                )
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._view.close()

    async def _finish(self, segment: int, kept: int, successors: tuple[int, ...]) -> None:
        """Record that a segment is finished, before its successors get the other rows."""
        await self._known(successors)
        left = [self._replay.place(segment).slots] if successors else []
        for slots in (self._replay.place(successor).slots for successor in successors):
            left = [part for each in left for part in each.without(slots)]
        if left:
            raise Corrupt(f"the successors {successors} of {self._topic}#{segment} do not cover its slots: {left[0]}")
        self._replay.finish(segment, kept, successors)
        await self._put_note(must=bool(successors))

    # --- one segment -----------------------------------------------------------------------------------------------

    async def _deliver(self, segment: int) -> tuple[int, tuple[int, ...]]:
        """Deliver until the segment has all its rows, or is sealed.

        Returns:
            The number of rows it holds, and the successors that get the others.
        """
        total = await self._read(lambda: sum(piece.record_count for piece in self._pieces.of(segment)))
        target = _Target(self._replay.place(segment), total, self._reached.get(segment, SegmentProgress(0, 0)))
        return await self._until_settled(target) if total else (0, ())

    async def _until_settled(self, target: _Target) -> tuple[int, tuple[int, ...]]:
        """Repeat sessions until one is the last. Return as :meth:`_deliver`."""
        loop, refresh = asyncio.get_running_loop(), False
        moved_s, failures = loop.time(), 0
        while True:
            before = target.reached
            try:
                end = await self._session(target, refresh)
                if end is not None:
                    return end
                error: SeaweedMQError = Unavailable(f"the stream to {self._topic}#{target.place.segment} ended: retry")
            except SeaweedMQError as failure:
                if not is_retryable(failure):
                    raise
                error = failure
            if target.reached != before:
                moved_s, failures = loop.time(), 0
            if loop.time() - moved_s > self._cluster.config.delivery_timeout_s:
                raise DeadlineExceeded(
                    f"batch {self._manifest.batch}: {self._topic}#{target.place.segment} acknowledged nothing for "
                    f"{self._cluster.config.delivery_timeout_s:g} s: start again once the cluster is healthy, and the "
                    f"batch continues; last: {error}"
                )
            failures += 1
            pause_s = UPDATE_SILENCE_S if isinstance(error, ConnectionRefused) else self._pause_s(failures)
            refresh = not await self._view.ends(target.place.segment, pause_s)

    async def _session(self, target: _Target, refresh: bool) -> tuple[int, tuple[int, ...]] | None:
        """Run one stream. Return as :meth:`_deliver`, or None if it broke."""
        number = target.place.segment
        description = await self._view.description(refresh, (number,))
        segment = description.segment(number)
        if segment is None:
            raise OutOfRange(
                f"{self._topic}#{number} was sealed long ago and is pruned: which rows of batch {self._manifest.batch} "
                f"it has, from row {target.reached.sequence} of its {target.total} on, is unknown"
            )
        if self._search is not None and not target.asked:
            await self._ask(target, segment, description, self._search)
        if target.reached.sequence >= target.total:
            return target.total, ()
        target.stream, target.out = _Stream(), deque()
        target.moved = asyncio.Event()
        talks: list[BrokerStream[PublishReply]] = []
        try:
            async with broker_stream(
                self._cluster,
                self._cluster.address_of(description, segment),
                lambda api: api.publish(self._requests(target, segment, talks)),
                str(segment),
            ) as talk:
                talks.append(talk)
                async for reply in talk.replies:
                    if isinstance(reply, PublishReady):
                        talk.expect(None)
                        self._opened(target, reply)
                    elif isinstance(reply, PublishAck):
                        await self._acked(target, reply)
                        talk.expect(self._cluster.config.stall_timeout_s if target.out else None)
                        if target.reached.sequence >= target.total:
                            return target.total, ()
                    else:
                        return self._sealed(target, reply.next_sequence, reply.successors)
        except NotFound as error:
            # The description had the segment just now: the next one shows whether the topic was deleted.
            raise StaleMetadata(str(error)) from error
        finally:
            target.stream = None
            target.moved.set()
        return None

    async def _ask(self, target: _Target, segment: Segment, description: TopicDescription, search: Search) -> None:
        """Query the segment's progress from its broker or, without producer state, from the files."""
        opening = self._opening(segment, QUERY_SEQUENCE)
        address = self._cluster.address_of(description, segment)

        known: int | None = None
        is_new_epoch = False
        answered = asyncio.Event()

        async def question() -> AsyncIterator[PublishRequest]:
            yield opening
            await answered.wait()

        # The broker stores the queried sequence while the stream is open, and would expect the rows to begin there.
        async with broker_stream(self._cluster, address, lambda api: api.publish(question()), str(segment)) as talk:
            async for reply in talk.replies:
                if not isinstance(reply, PublishAck):
                    known, is_new_epoch = reply.next_sequence, is_new_epoch or reply.is_new_epoch
                    answered.set()
        if known is None:
            raise Unavailable(f"broker {address} ended the stream to {segment}: retry")
        if known >= QUERY_SEQUENCE and not is_new_epoch:
            found = await self._offload(partial(search, segment, target.reached))
            target.reached = SegmentProgress(max(found, target.reached.sequence), target.reached.offset)
        target.asked = True

    def _opening(self, segment: Segment, first_sequence: int) -> PublishOpen:
        return PublishOpen(
            topic=segment.topic,
            segment=segment.id,
            epoch=segment.epoch,
            producer_id=self._manifest.producer_id,
            producer_epoch=self._manifest.batch,
            first_sequence=first_sequence,
            topic_uid=self._manifest.topic_uid,
        )

    def _opened(self, target: _Target, ready: PublishReady) -> None:
        if ready.next_sequence >= QUERY_SEQUENCE:
            raise Unavailable(f"{self._topic}#{target.place.segment} still answers an interrupted query: retry")
        self._check(target, ready.next_sequence)
        assert target.stream is not None
        target.stream.first_sequence = ready.next_sequence
        target.stream.limit_frames = ready.in_flight_frames_max
        target.stream.limit_bytes = ready.in_flight_bytes_max
        target.stream.message_bytes_max = ready.message_bytes_max
        target.stream.frame_bytes_max = ready.frame_bytes_max
        target.moved.set()

    async def _acked(self, target: _Target, reply: PublishAck) -> None:
        assert target.stream is not None
        for ack in reply.frames:
            first, records, size = target.out.popleft() if target.out else (-1, 0, 0)
            if (first, records) != (ack.first_sequence, ack.record_count):
                raise ProtocolViolation(
                    f"the broker acknowledged sequences {ack.first_sequence} + {ack.record_count}, but {first} + "
                    f"{records} is next: it violates the protocol"
                )
            target.stream.out_bytes -= size
            target.reached = SegmentProgress(ack.end_sequence, ack.end_offset)
        self._reached[target.place.segment] = target.reached
        target.moved.set()
        await self._put_note(must=False)

    def _sealed(self, target: _Target, kept: int, successors: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        self._check(target, kept)
        if kept < target.total and not successors:
            raise Unavailable(
                f"{self._topic}#{target.place.segment} is sealed, and its successors are not known yet: retry"
            )
        return kept, () if kept == target.total else successors

    def _check(self, target: _Target, next_sequence: int) -> None:
        """Compare a segment's next sequence with its progress.

        If it lost acknowledged rows, as ``replicated`` topics may in a power failure, they are published again: the
        staged files still hold them.

        Raises:
            ProtocolViolation: If it has more rows than were sent.
        """
        if next_sequence < target.reached.sequence:
            log.warning(
                "acknowledged rows lost: %s#%d has rows up to %d of batch %d, acknowledged were those up to %d; "
                "publishing them again",
                self._topic,
                target.place.segment,
                next_sequence,
                self._manifest.batch,
                target.reached.sequence,
            )
            target.reached = SegmentProgress(next_sequence, target.reached.offset)
        if next_sequence > target.total:
            raise ProtocolViolation(
                f"{self._topic}#{target.place.segment} has rows up to {next_sequence} of batch {self._manifest.batch}, "
                f"which has {target.total} for it: another process publishes with the same producer id"
            )

    # --- requests --------------------------------------------------------------------------------------------------

    async def _requests(
        self, target: _Target, segment: Segment, talks: list[BrokerStream[PublishReply]]
    ) -> AsyncIterator[PublishRequest]:
        stream = target.stream
        yield self._opening(segment, target.reached.sequence)
        await target.moved.wait()
        if stream is None or stream is not target.stream:
            return
        try:
            frames = self._frames(target, stream)
            while (message := await self._read(partial(next, frames, None))) is not None:
                parts, sent = message
                size = sum(map(len, parts))
                while target.out and (
                    len(target.out) + len(sent) > stream.limit_frames or stream.out_bytes + size > stream.limit_bytes
                ):
                    target.moved.clear()
                    await target.moved.wait()
                    if stream is not target.stream:
                        return
                if not target.out:
                    talks[0].expect(self._cluster.config.stall_timeout_s)
                target.out.extend(sent)
                stream.out_bytes += size
                if len(parts) == 1 and len(parts[0]) > stream.message_bytes_max:
                    for request in in_pieces(parts[0]):
                        yield request
                else:
                    yield PublishFrames(parts[0] if len(parts) == 1 else pack_frames(parts))
        except SeaweedMQError as error:
            talks[0].end(error)
            return
        while stream is target.stream:  # Acknowledgements arrive only while the stream is open.
            target.moved.clear()
            await target.moved.wait()

    def _frames(self, target: _Target, stream: _Stream) -> Iterator[tuple[list[Frames], list[tuple[int, int, int]]]]:
        """Yield the messages of a stream, with (first sequence, records, bytes) of each frame. Blocking.

        Rows that the segment already has may not be committed yet; the acknowledgement of a later frame shows that they
        are. Without a later frame the last one is sent again.
        """
        parts: list[Frames] = []
        sent: list[tuple[int, int, int]] = []
        size = 0
        room = min(MESSAGE_BYTES, stream.message_bytes_max)
        for piece, at in self._from(target, stream.first_sequence):
            data = self._pieces.encode(piece, target.place.slots, self._manifest.producer_id, self._manifest.batch, at)
            if len(data) > stream.frame_bytes_max:
                raise InvalidArgument(
                    f"a frame of {len(data)} bytes with rows of batch {self._manifest.batch} exceeds the "
                    f"limit of {stream.frame_bytes_max} bytes: raise frame_bytes_max on every broker, then start again"
                )
            if parts and size + len(data) > room:
                yield parts, sent
                parts, sent, size = [], [], 0
            parts.append(data)
            sent.append((at, piece.record_count, len(data)))
            size += len(data)
            if len(sent) >= stream.limit_frames:
                yield parts, sent
                parts, sent, size = [], [], 0
        if parts:
            yield parts, sent

    def _from(self, target: _Target, first_sequence: int) -> Iterator[tuple[RowSelection, int]]:
        at, last = 0, None
        rest = self._pieces.of(target.place.segment)
        for piece in rest:
            if at + piece.record_count <= first_sequence:
                last = piece, at
                at += piece.record_count
                continue
            behind = first_sequence - at
            for part in self._pieces.beyond(iter((piece,)), behind) if behind > 0 else (piece,):
                at = max(at, first_sequence)
                yield part, at
                at += part.record_count
        if first_sequence >= at and last is not None:
            yield last

    # --- metadata and progress -------------------------------------------------------------------------------------

    async def _read(self, call: Callable[[], T]) -> T:
        result: T = await self._offload(call)
        return result

    def _asked_for(self) -> list[int]:
        return sorted(self._tasks.values())

    async def _known(self, segments: Iterable[int]) -> None:
        """Query segments, which may be so new that not every broker knows them, and pass them to the replay."""
        wanted = set(segments)
        moved_s = asyncio.get_running_loop().time()
        for attempt in count(1):
            try:
                description = await self._view.description(attempt > 1 or not wanted, wanted)
                if description.topic.uid != self._manifest.topic_uid:
                    raise recreated(self._topic, self._manifest.batch)
                self._replay.know(place_of(s) for s in description.segments if s.id in wanted)
                wanted -= {s.id for s in description.segments}
                if not wanted:
                    return
                if min(wanted) < description.topic.next_segment:
                    raise OutOfRange(
                        f"{self._topic}#{min(wanted)} is pruned: batch {self._manifest.batch} was begun so long ago "
                        "that the segments of its rows are unknown"
                    )
                error: SeaweedMQError = Unavailable(
                    f"segments {sorted(wanted)} of {self._topic} are not known yet: retry"
                )
            except SeaweedMQError as failure:
                if not is_retryable(failure):
                    raise
                error = failure
            if asyncio.get_running_loop().time() - moved_s > self._cluster.config.delivery_timeout_s:
                raise error
            await asyncio.sleep(self._pause_s(attempt))

    async def _put_note(self, *, must: bool) -> None:
        """Record the progress: every ``NOTE_S``, or at once with ``must``, before other segments rely on it."""
        now_s = asyncio.get_running_loop().time()
        if not must and (now_s - self._noted_s < NOTE_S or self._noting.locked()):
            return
        async with self._noting:
            self._noted_s = asyncio.get_running_loop().time()
            progress = BatchProgress(
                places=self._replay.places, finished=dict(self._replay.finished), reached=dict(self._reached)
            )
            await self._offload(partial(self._note, progress))


def place_of(segment: Segment) -> StagedSegment:
    """Convert a segment's description."""
    return StagedSegment(segment.id, segment.slots, segment.predecessors)


def recreated(topic: TopicName, batch: int) -> NotFound:
    """Make the error of a batch that was staged for an earlier topic of the same name."""
    return NotFound(
        f"topic {topic} was deleted and recreated since batch {batch} was staged for it: restart the query with "
        "another checkpoint to fill the new topic"
    )
