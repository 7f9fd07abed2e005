"""One publisher's stream to one open segment: connect, send, hear, reconnect, and hand over when it is sealed.

A session is one stream. Everything a session leaves undone stays in the window, and the next session repeats it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Protocol

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.conversation import Conversation, conversation
from seaweedmq.client.publish.window import OutFrame, Window
from seaweedmq.client.retry import retrying
from seaweedmq.codec.frame import HEADER_BYTES, split_payload
from seaweedmq.errors import DeadlineExceeded, InvalidArgument, NotFound, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.config import KIB
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.frames import LARGE_MESSAGE_BYTES, PIECE_BYTES, FrameHead, Frames
from seaweedmq.model.publish import (
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
    PublishSealed,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.frames import pack_frames
from seaweedmq.runtime.retrying import is_retryable

MESSAGE_BYTES = 256 * KIB
"""Small frames are joined up to this: one message costs more than a copy of this size."""


class LaneOwner(Protocol):
    """The publisher, as its lanes see it."""

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription: ...

    def on_ready(self, lane: "Lane", ready: PublishReady) -> None: ...

    def on_progress(self) -> None:
        """Frames went out or were acknowledged: there may be room for more."""

    async def on_sealed(self, lane: "Lane", sealed: PublishSealed) -> None:
        """Move what was not committed to the successors. The lane ends."""

    async def on_segment_gone(self, lane: "Lane") -> None:
        """As ``on_sealed``, when nobody knows the segment any more, nor what of the window it held."""


class Lane:
    """Frames for one segment, delivered in order."""

    def __init__(
        self, owner: LaneOwner, cluster: Cluster, topic: TopicName, segment: Segment, producer_id: int
    ) -> None:
        self._owner = owner
        self._cluster = cluster
        self._topic = topic
        self.segment = segment
        self._producer_id = producer_id
        self.window = Window()
        self._work = asyncio.Event()
        self._send = asyncio.Event()
        self._talk: Conversation[PublishReply] | None = None
        self._message_bytes_max = LARGE_MESSAGE_BYTES
        self._refresh = False
        self._progress = False
        self._topic_uid = 0
        self.last_error: SeaweedMQError | None = None

    def wake(self) -> None:
        """The window has something new."""
        self._work.set()
        self._send.set()

    def expire(self, now: float) -> None:
        """Fail what is overdue; an open stream is opened anew."""
        overdue, was_open = self.window.expire(now)
        for frame in overdue:
            frame.outcome.failed(frame.rows, self._overdue())
        if was_open and self._talk is not None:
            self._talk.expect(0.0)

    def _overdue(self) -> DeadlineExceeded:
        why = f"; last: {self.last_error}" if self.last_error is not None else ""
        return DeadlineExceeded(
            f"{self.segment} did not acknowledge within delivery_timeout_s; the record may be kept all the same{why}"
        )

    async def run(self) -> None:
        """Until the segment is sealed and handed over. Cancel to stop."""
        while True:
            self._work.clear()
            if not len(self.window):
                await self._work.wait()
            try:
                async for attempt in retrying(
                    self._cluster.config, self._cluster.env.rng, lambda: not len(self.window)
                ):
                    with attempt:
                        if await self._session():
                            return
            except SeaweedMQError as error:
                self.last_error = error
                if not is_retryable(error):
                    for frame in self.window.take_all():
                        frame.outcome.failed(frame.rows, error)
                    self._owner.on_progress()

    async def _session(self) -> bool:
        """One stream. True when the segment is done with; False when it broke after it had made progress.

        Raises:
            NotFound: the topic was deleted.
            SeaweedMQError: it broke before any progress; repeated with back-off if it may succeed later.
        """
        try:
            description = await self._owner.description(self._refresh, (self.segment.id,))
        except SeaweedMQError as error:
            self.last_error = error
            raise
        self._refresh = True
        found = next((s for s in description.segments if s.id == self.segment.id), None)
        if found is None:
            await self._owner.on_segment_gone(self)
            return True
        self.segment = found
        self._topic_uid = description.topic.uid
        self._progress = False
        try:
            sealed = self._sealed_without_asking()
            if sealed is None:
                sealed = await self._stream(self._cluster.address_of(description, found))
            await self._owner.on_sealed(self, sealed)
        except SeaweedMQError as error:
            self.last_error = error
            if isinstance(error, InvalidArgument) and self.window.out:
                self._refused(error)
                return False
            if isinstance(error, NotFound):
                # the description had the segment a moment ago: it will say whether the topic is gone
                raise StaleMetadata(str(error)) from error
            if is_retryable(error) and self._progress:
                return False
            raise
        finally:
            self.window.lost()
        return True

    def _sealed_without_asking(self) -> PublishSealed | None:
        """What a broker would say, if the segment is sealed and nothing of the queue can be stored in it."""
        segment = self.segment
        if segment.is_open or self.window.may_be_stored:
            return None
        return PublishSealed(
            end_offset=segment.end_offset or 0,
            next_sequence=self.window.first_sequence,
            recent=(),
            successors=segment.successors,
        )

    async def _stream(self, address: str) -> PublishSealed:
        """Send and hear until the segment is sealed.

        Raises:
            SeaweedMQError: the stream broke.
        """
        send = self._send = asyncio.Event()
        stall_timeout_s = self._cluster.config.stall_timeout_s
        try:
            async with conversation(
                self._cluster, address, lambda api: api.publish(self._requests(send)), str(self.segment)
            ) as self._talk:
                async for reply in self._talk.replies:
                    if isinstance(reply, PublishAck):
                        self._acked(reply)
                        self._talk.expect(stall_timeout_s if self.window.out else None)
                    elif isinstance(reply, PublishReady):
                        self._talk.expect(None)
                        self.window.opened(reply)
                        self._message_bytes_max = reply.message_bytes_max
                        self._owner.on_ready(self, reply)
                        self._send.set()
                    else:
                        return reply
        finally:
            self._talk = None
        raise Unavailable(f"broker {address} ended the stream to {self.segment}")

    def _acked(self, reply: PublishAck) -> None:
        for ack in reply.frames:
            frame = self.window.acked(ack)
            frame.outcome.acked(frame.rows, self.segment.id, ack.base_offset)
        self._progress = True
        self._refresh = False
        self._send.set()
        self._owner.on_progress()

    def _refused(self, error: InvalidArgument) -> None:
        frame: OutFrame | None = self.window.suspect()
        if frame is not None:
            frame.outcome.failed(frame.rows, error)
            self._owner.on_progress()

    async def _requests(self, send: asyncio.Event) -> AsyncIterator[PublishRequest]:
        yield PublishOpen(
            topic=self._topic,
            segment=self.segment.id,
            epoch=self.segment.epoch,
            producer_id=self._producer_id,
            producer_epoch=0,
            first_sequence=self.window.first_sequence,
            topic_uid=self._topic_uid,
        )
        while send is self._send:
            idle = not self.window.out
            frames = self.window.take(min(MESSAGE_BYTES, self._message_bytes_max))
            if not frames:
                send.clear()
                await send.wait()
                continue
            if idle and self._talk is not None:
                self._talk.expect(self._cluster.config.stall_timeout_s)
            self._owner.on_progress()
            if len(frames) == 1 and len(frames[0]) > self._message_bytes_max:
                for request in _in_pieces(frames[0]):
                    yield request
            else:
                yield PublishFrames(frames[0] if len(frames) == 1 else pack_frames(frames))


def _in_pieces(frame: Frames) -> Iterator[PublishRequest]:
    """A frame that is too large for one message."""
    yield FrameHead(bytes(frame[:HEADER_BYTES]))
    for piece in split_payload(memoryview(frame)[HEADER_BYTES:], PIECE_BYTES):
        yield PublishFrames(piece)
