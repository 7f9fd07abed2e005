"""Append path of an open segment, for all listeners: frame checks, memory, and acknowledgements."""

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
    """An appender of one source's frames to one segment, one call at a time. A repeated frame is stored once.

    Appended frames are not durable yet: see ``Acknowledgements``.
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
        """Whether a frame is being appended: it waits for memory, for its payload or for the topic's schema."""
        return self._waiting

    def stop(self, reason: SeaweedMQError) -> None:
        """Reject all frames from now on with ``reason``, including those that already wait."""
        self._stopped = reason

    async def append(self, frame: Frame, *, is_checked: bool = False, may_begin: bool = True) -> FrameAck:
        """Append a frame with valid checksums, or return the acknowledgement of its earlier copy.

        ``is_checked``: whether the creator of the frame has verified that its payload matches the header. ``may_begin``
        is False if an earlier frame of the producer was rejected: an unknown Kafka producer must not begin with this
        one.

        Raises:
            InvalidArgument: If the frame breaks a rule, or is not the producer's next one.
            DuplicateSequence: If the frame of a Kafka producer repeats sequences that are no longer remembered.
            OutOfOrderSequence: If the frame of a Kafka producer leaves a gap, also after earlier segments.
            Fenced: If the producer has a newer epoch.
            Unavailable: If the frame would be its producer's first one, and ``may_begin`` is False.
            StaleMetadata: If the frame does not belong to this segment, or no longer does.
            StorageFull: If the storage has less free space than records may take.
            SeaweedMQError: If the segment is closed, commits nothing at the moment, or ``stop`` was called.
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
        """Append a frame whose payload has not arrived yet. Raises as ``append``.

        Its memory is reserved before ``receive`` is called, which returns the frame with this header.
        """
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
                    f"producer {header.producer_id} sent sequence {header.first_sequence} after one that was rejected: "
                    "retry that one first"
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
                f"frame of {header.frame_bytes} bytes is above the limit of {self._frame_bytes_max}: "
                "send smaller batches, or raise frame_bytes_max on every broker"
            )
        if not segment.slots.covers(header.slot_min, header.slot_max):
            raise StaleMetadata(
                f"frame with key slots {header.slot_min} to {header.slot_max} does not belong to segment "
                f"{segment}, which has {segment.slots}: refresh the metadata and route by key"
            )

    async def _schema_decided(self, version: int) -> None:
        """Wait, with a plain frame, while the topic is adopting a schema; then raise if the frame may not be appended.

        The caller must append without another await, so that the checks still hold.
        """
        view = self._lookup.view
        while version == 0 and self._topic().adopting is not None:
            await view.wait_change(view.changes)
        self._schema(version)
        self.segment.check_open()

    def _topic(self) -> Topic:
        """Return the topic as it is in the current metadata."""
        mine = self.segment.topic
        topic = self._lookup.view.topics.get(mine.name, mine)
        return topic if topic.uid == mine.uid else mine

    def _schema(self, version: int) -> pa.Schema | None:
        topic = self._topic()
        if version < topic.schema_version:
            raise InvalidArgument(
                f"plain frame sent to topic {topic.name}, which has a schema: publish tables that fit it (send_table)"
            )
        if version != topic.schema_version:
            raise StaleMetadata(
                f"frame with schema version {version} sent to topic {topic.name}, which is at version "
                f"{topic.schema_version}: refresh the metadata and send frames of that version"
            )
        return self._lookup.schema(topic)


class Acknowledgements:
    """The appended frames of one stream or one request that are not acknowledged yet, in order."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._pending: deque[FrameAck] = deque()
        self._ended = False
        self._taken = Signal()
        self._changed = Signal()
        """Signal for events of these frames alone. It wakes no others: thousands may wait for one segment."""

    @property
    def is_empty(self) -> bool:
        """Whether no frame is pending."""
        return not self._pending

    async def fewer_than(self, frames: int) -> None:
        """Wait until fewer than ``frames`` frames are pending."""
        while len(self._pending) >= frames:
            await self._taken.wait()

    def add(self, appended: FrameAck) -> None:
        """Add an appended frame, to be acknowledged once it is committed."""
        self._pending.append(appended)
        if appended.end_offset <= self._appender.segment.log.committed:
            self._changed.fire()  # a repeated frame: the segment does not fire for it again

    def end(self) -> None:
        """Note that no more frames will be added."""
        self._ended = True
        self._changed.fire()

    async def next(self) -> tuple[FrameAck, ...]:
        """Wait for committed frames, and return all of them in the order of ``add``.

        Returns none if ``end`` was called and all were returned, or if the segment is closed: the record of the sealed
        segment then shows how much it holds. Raises if nothing is committed at the moment while frames are pending or
        being appended.
        """
        segment = self._appender.segment
        while not (durable := self._take_durable()):
            if segment.is_closed or (self._ended and not self._pending):
                return ()
            if segment.failure and (self._pending or self._appender.is_waiting):
                raise fresh(segment.failure)
            await segment.committed_changed.wait(self._changed)
        self._taken.fire()
        return durable

    def _take_durable(self) -> tuple[FrameAck, ...]:
        committed = self._appender.segment.log.committed
        durable = []
        while self._pending and self._pending[0].end_offset <= committed:
            durable.append(self._pending.popleft())
        return tuple(durable)
