"""Appending frames to an open segment, through whatever door they come: checks, memory, and what is durable by now."""

from collections import deque
from collections.abc import Awaitable, Callable

import pyarrow as pa

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.inherited_producers import InheritedProducers
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.codec.frame import Frame, FrameHeader
from seaweedmq.codec.payload.batch import validate_payload
from seaweedmq.errors import InvalidArgument, SeaweedMQError, StaleMetadata, Unavailable, fresh
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.topic import Topic
from seaweedmq.runtime.signal import Signal


class Appender:
    """Appends the frames of one source to one segment, one call after another, each stored once however often it comes.

    What is appended is not durable yet: see ``Acknowledgements``.
    """

    def __init__(self, segment: OpenSegment, lookup: Lookup, *, frame_bytes_max: int) -> None:
        self.segment = segment
        self._lookup = lookup
        self._inherited = InheritedProducers(segment, lookup.view, lookup.sealed_producers)
        self._frame_bytes_max = frame_bytes_max
        self._stopped: SeaweedMQError | None = None
        self._waiting = False

    @property
    def is_waiting(self) -> bool:
        """Whether a frame is on its way in: it waits for memory, for its payload or for the topic's schema."""
        return self._waiting

    def stop(self, reason: SeaweedMQError) -> None:
        """Append nothing from now on: what comes, and what waits already, is refused with this."""
        self._stopped = reason

    async def append(self, frame: Frame, *, is_checked: bool = False, may_begin: bool = True) -> FrameAck:
        """Append a frame whose checksums hold, or find that it was before.

        Args:
            is_checked: its payload is what the header says, as whoever made the frame saw.
            may_begin: a Kafka producer that nothing is known of may begin with it. False: what it sent before was
                refused.

        Raises:
            InvalidArgument: it breaks a rule; or it is not the producer's next one.
            DuplicateSequence, OutOfOrderSequence: the same of a Kafka producer, who goes on from earlier segments.
            Fenced: its producer has a newer epoch.
            Unavailable: it would be its producer's first one, and may not.
            StaleMetadata: it is not for this segment, or not any more.
            StorageFull: If the storage has less free space than records may take.
            SeaweedMQError: the segment was closed, can not store anything at the moment, or ``stop`` was called.
        """
        self._lookup.check_space(self.segment.topic.name)
        if is_checked:
            self._check_header(frame.header)
        else:
            self._check(frame)
        self._waiting = True
        try:
            await self._inherited.learn(frame.header)
            await self.segment.admit(frame.header.frame_bytes)
            return await self._append_admitted(frame, may_begin=may_begin)
        finally:
            self._waiting = False

    async def append_announced(self, header: FrameHeader, receive: Callable[[], Awaitable[Frame]]) -> FrameAck:
        """As ``append``, of a frame whose payload is not here yet: there is memory for it before ``receive`` is called,
        which gives the frame of this header."""
        self._lookup.check_space(self.segment.topic.name)
        self._check_header(header)
        self._waiting = True
        try:
            await self._inherited.learn(header)
            await self.segment.admit(header.frame_bytes)
            try:
                frame = await receive()
                self._check(frame)
            except BaseException:
                self.segment.release(header.frame_bytes)
                raise
            return await self._append_admitted(frame)
        finally:
            self._waiting = False

    async def _append_admitted(self, frame: Frame, *, may_begin: bool = True) -> FrameAck:
        header, segment = frame.header, self.segment
        try:
            await self._schema_decided(header.schema_version)
            if self._stopped:
                raise fresh(self._stopped)
            if not may_begin and header.producer_id not in segment.log.producers:
                raise Unavailable(
                    f"producer {header.producer_id} sent sequence {header.first_sequence} behind one that was refused: "
                    "send that again first"
                )
            repeated = segment.find_repeat(header)
        except BaseException:
            segment.release(header.frame_bytes)
            raise
        if repeated is None:
            return segment.append(frame)
        segment.release(header.frame_bytes)
        return repeated

    def _check(self, frame: Frame) -> None:
        self._check_header(frame.header)
        validate_payload(frame.header, frame.payload, self._schema(frame.header.schema_version))

    def _check_header(self, header: FrameHeader) -> None:
        segment = self.segment.segment
        if header.frame_bytes > self._frame_bytes_max:
            raise InvalidArgument(
                f"a frame of {header.frame_bytes} bytes is above the limit of {self._frame_bytes_max}: "
                "send smaller batches, or raise frame_bytes_max on every broker"
            )
        if not segment.slots.covers(header.slot_min, header.slot_max):
            raise StaleMetadata(
                f"a frame with key slots {header.slot_min} to {header.slot_max} came to segment "
                f"{segment}, which holds {segment.slots}: refresh the metadata and route by key"
            )

    async def _schema_decided(self, version: int) -> None:
        """While the topic may get a schema if it is empty, plain frames wait. Raises if this one may not be appended
        now, after all waiting: nothing may come between that and the append."""
        view = self._lookup.view
        while version == 0 and self._topic().adopting is not None:
            await view.wait_change(view.changes)
        self._schema(version)
        self.segment.check_open()

    def _topic(self) -> Topic:
        """As the metadata have it now."""
        mine = self.segment.topic
        topic = self._lookup.view.topics.get(mine.name, mine)
        return topic if topic.uid == mine.uid else mine

    def _schema(self, version: int) -> pa.Schema | None:
        topic = self._topic()
        if version < topic.schema_version:
            raise InvalidArgument(
                f"a plain frame came to topic {topic.name}, which has a schema: publish tables that fit it (send_table)"
            )
        if version != topic.schema_version:
            raise StaleMetadata(
                f"a frame with schema version {version} came to topic {topic.name}, which is at version "
                f"{topic.schema_version}: refresh the metadata and send what fits the topic's schema"
            )
        return self._lookup.schema(topic)


class Acknowledgements:
    """Appended frames that are not acknowledged yet, in order: all of a stream, or those of one request."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._pending: deque[FrameAck] = deque()
        self._ended = False
        self._taken = Signal()
        self._news = Signal()
        """What concerns these alone, and should wake no others: thousands may share a segment."""

    @property
    def is_empty(self) -> bool:
        """Whether none is pending."""
        return not self._pending

    async def fewer_than(self, frames: int) -> None:
        """Wait until fewer than so many are pending."""
        while len(self._pending) >= frames:
            await self._taken.wait()

    def add(self, appended: FrameAck) -> None:
        """Acknowledge this one, too, once it is durable."""
        self._pending.append(appended)
        if appended.end_offset <= self._appender.segment.log.committed:
            self._news.fire()  # it was appended before: the segment will not say so again

    def end(self) -> None:
        """None will be added any more."""
        self._ended = True
        self._news.fire()

    async def next(self) -> tuple[FrameAck, ...]:
        """Those that became durable, in the order of ``add``, waiting for at least one. Empty: no more will, since all
        were given, or the segment is closed; then its sealed record tells what is kept.

        Raises:
            SeaweedMQError: nothing becomes durable at the moment, though some are pending or wait to be appended.
        """
        segment = self._appender.segment
        while not (durable := self._take_durable()):
            if segment.is_closed or (self._ended and not self._pending):
                return ()
            if segment.failure and (self._pending or self._appender.is_waiting):
                raise fresh(segment.failure)
            await segment.committed_changed.wait(self._news)
        self._taken.fire()
        return durable

    def _take_durable(self) -> tuple[FrameAck, ...]:
        committed = self._appender.segment.log.committed
        durable = []
        while self._pending and self._pending[0].end_offset <= committed:
            durable.append(self._pending.popleft())
        return tuple(durable)
