"""One publisher's stream to one open segment: connect, send, hear, reconnect, and hand over when it is sealed.

A session is one stream. Everything a session leaves undone stays in the window, and the next session repeats it.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.publish.outbox import Action, Outbox
from seaweedmq.client.publish.send_window import SendWindow
from seaweedmq.client.retry import pauses
from seaweedmq.codec.frame import HEADER_BYTES, split_payload
from seaweedmq.errors import (
    ConnectionRefused,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    SeaweedMQError,
    StaleMetadata,
    Unavailable,
)
from seaweedmq.model.config import KIB
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, SENT_PIECE_BYTES, FrameHead, Frames
from seaweedmq.model.messages.publish import (
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
    PublishSealed,
)
from seaweedmq.model.segment import Segment
from seaweedmq.rpc.messages.frames import pack_frames
from seaweedmq.runtime.retrying import is_retryable

T = TypeVar("T")

MESSAGE_BYTES = 256 * KIB
"""Small frames are joined up to this: one message costs more than a copy of this size."""


UNACKNOWLEDGED_S = 1.5
"""The segments of a broker that is lost are over soon, and others tell of that by themselves, or that nothing is new:
they are asked only if they did not for so long."""


class SegmentSender:
    """Delivers the frames of one window, in order, until its segment is sealed and they are handed over.

    Args:
        report: told whenever the window has changed, with what has come of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: TopicView,
        outbox: Outbox,
        window: SendWindow,
        report: Callable[[Iterable[Action]], None],
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._outbox = outbox
        self._window = window
        self._report = report
        self._segment = window.segment.id
        self._pause_s = pauses(cluster.config, cluster.env.rng)
        self._work = asyncio.Event()
        self._send = asyncio.Event()
        self._talk: BrokerStream[PublishReply] | None = None
        self._message_bytes_max = LARGE_MESSAGE_BYTES
        self._refresh = False
        """Whether the next attempt begins with a look at the topic."""
        self._lost_s: float | None = None
        """Since when the segment's broker is out of reach, by the loop's clock; None: it is not."""
        self._progress = False
        self._asks_lost = False
        """Whether the stream waits for the first answer of a broker that did not answer before, or not in time."""

    def wake(self) -> None:
        """The window has something new."""
        self._work.set()
        self._send.set()

    def reopen(self) -> None:
        """The stream, if there is one, is of no use any more; that is not the broker's fault."""
        if self._talk is not None:
            self._talk.end(StaleMetadata("records were overdue: the stream is opened anew"))

    def told(self) -> None:
        """There is news of the topic. A frozen broker takes connections and answers nothing, however long it is waited
        for; what it served goes on elsewhere once its lease is over, and others know."""
        if self._asks_lost and self._talk is not None and not self._view.is_open(self._segment):
            self._talk.end(StaleMetadata(f"{self._window.segment} has ended while its broker did not answer"))

    async def run(self) -> None:
        """Until the window is handed over. Cancel to stop."""
        while True:
            self._work.clear()
            if not len(self._window):
                await self._work.wait()
            try:
                if await self._repeat(self._session):
                    return
            except SeaweedMQError as error:
                if is_retryable(error):
                    self._window.lost(error)
                else:
                    self._report(self._window.give_up(error))

    async def _repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempts until one succeeds, fails for good, or there is nothing to deliver any more.

        Not by tenacity, of which a lane would keep some 50 objects for as long as its stream lives: with 1,800 lanes
        that was a third of what the garbage collector had to look through.
        """
        for failures in itertools.count(1):
            try:
                return await attempt()
            except SeaweedMQError as error:
                if not is_retryable(error) or not len(self._window):
                    raise
                # Nobody listens: that process is gone, and its segments go on elsewhere.
                pause_s = UNACKNOWLEDGED_S if isinstance(error, ConnectionRefused) else self._pause_s(failures)
            if await self._view.ends(self._segment, pause_s):
                self._refresh = False
        raise AssertionError("counting ended")

    def _lost(self, error: SeaweedMQError) -> None:
        """An attempt failed: whoever answered knows more than this side."""
        self._window.lost(error)
        self._refresh = self._lost_s is None

    def _looks(self) -> bool:
        """Whether to ask for the topic: if a broker knows more, or none has told for a while that nothing is new."""
        if self._refresh or self._lost_s is None:
            return self._refresh
        return asyncio.get_running_loop().time() >= max(self._lost_s, self._view.current_s) + UNACKNOWLEDGED_S

    async def _session(self) -> bool:
        """One stream. True when the segment is done with; False when it broke after progress, or others have told
        meanwhile that the segment has ended.

        Raises:
            NotFound: the topic was deleted.
            SeaweedMQError: it broke before any progress; repeated with back-off if it may succeed later.
        """
        try:
            description = await self._view.description(self._looks(), (self._segment,))
            self._refresh = False
            segment = description.segment(self._segment)
            if segment is None:
                open_now = await self._view.description(True)
                self._report(self._outbox.forgotten(self._segment, (s for s in open_now.segments if s.is_open)))
                return True
        except SeaweedMQError as error:
            self._lost(error)
            raise
        self._progress = False
        try:
            sealed = self._window.sealed_unasked(segment)
            if sealed is None:
                sealed = await self._stream(segment, description)
            successors = await self._successors(sealed.successors)
            self._report(self._outbox.sealed(self._segment, sealed, successors))
        except InvalidArgument as error:
            if not self._window.out:
                self._window.lost(error)
                raise
            self._report(self._window.refused(error))
            return False
        except NotFound as error:
            self._lost(error)
            # the description had the segment a moment ago: it will say whether the topic is gone
            raise StaleMetadata(str(error)) from error
        except SeaweedMQError as error:
            self._lost(error)
            if is_retryable(error) and segment.is_open and not self._view.is_open(self._segment):
                self._refresh = False  # it has ended meanwhile, and where it goes on is known
                return False
            if is_retryable(error) and self._progress:
                return False
            raise
        return True

    async def _successors(self, ids: Iterable[int]) -> list[Segment]:
        """Where to go on. After a merge the other side may have been there, and gone on, already; and what came next
        may be pruned when the publisher was away for long."""
        refresh = False

        async def look() -> list[Segment]:
            nonlocal refresh
            wanted = self._outbox.follow(ids)  # anew each time: other windows are handed over meanwhile
            description = await self._view.description(refresh, wanted)
            found = description.by_id()
            if wanted and found.keys() >= wanted:
                return [found[number] for number in sorted(wanted)]
            refresh = True
            if wanted and max(wanted) < description.topic.next_segment:
                return [s for s in description.segments if s.is_open]
            raise Unavailable(
                f"the successors {sorted(wanted)} of the sealed segment {self._window.segment} are not known yet"
            )

        return await self._repeat(look)

    async def _stream(self, segment: Segment, description: TopicDescription) -> PublishSealed:
        """Send and hear until the segment is sealed.

        Raises:
            SeaweedMQError: the stream broke.
        """
        send = self._send = asyncio.Event()
        stall_timeout_s = self._cluster.config.stall_timeout_s
        try:
            address = self._cluster.address_of(description, segment)
            async with broker_stream(
                self._cluster,
                address,
                lambda api: api.publish(self._requests(segment, description.topic.uid, send)),
                str(segment),
            ) as self._talk:
                if segment.is_open and self._lost_s is not None:
                    self._asks_lost = True
                    self._view.want(self._cluster.answer_timeout_s(address))
                async for reply in self._talk.replies:
                    if isinstance(reply, PublishAck):
                        self._acked(reply)
                        self._talk.expect(stall_timeout_s if self._window.out else None)
                    elif isinstance(reply, PublishReady):
                        self._talk.expect(None)
                        self._asks_lost = False
                        self._lost_s = None
                        self._message_bytes_max = reply.message_bytes_max
                        self._report(self._outbox.opened(self._segment, reply))
                        self._send.set()
                    else:
                        self._lost_s = None
                        return reply
        except SeaweedMQError as error:
            if not isinstance(error, (Unavailable, DeadlineExceeded)):
                self._lost_s = None
            elif self._lost_s is None:
                self._lost_s = asyncio.get_running_loop().time()
            raise
        finally:
            self._talk = None
            self._asks_lost = False
        raise Unavailable(f"broker {address} ended the stream to {segment}")

    def _acked(self, reply: PublishAck) -> None:
        for ack in reply.frames:
            self._report((self._window.acked(ack),))
        self._progress = True
        if self._window.waiting_bytes:
            self._send.set()

    async def _requests(self, segment: Segment, topic_uid: int, send: asyncio.Event) -> AsyncIterator[PublishRequest]:
        yield PublishOpen(
            topic=segment.topic,
            segment=segment.id,
            epoch=segment.epoch,
            producer_id=self._outbox.producer_id,
            producer_epoch=0,
            first_sequence=self._window.first_sequence,
            topic_uid=topic_uid,
        )
        while send is self._send:
            idle = not self._window.out
            frames = self._window.take(min(MESSAGE_BYTES, self._message_bytes_max))
            if not frames:
                send.clear()
                await send.wait()
                continue
            if idle and self._talk is not None:
                self._talk.expect(self._cluster.config.stall_timeout_s)
            self._report(())  # what is out makes room for more
            if len(frames) == 1 and len(frames[0]) > self._message_bytes_max:
                for request in in_pieces(frames[0]):
                    yield request
            else:
                yield PublishFrames(frames[0] if len(frames) == 1 else pack_frames(frames))


def in_pieces(frame: Frames) -> Iterator[PublishRequest]:
    """A frame that is too large for one message."""
    yield FrameHead(bytes(frame[:HEADER_BYTES]))
    for piece in split_payload(memoryview(frame)[HEADER_BYTES:], SENT_PIECE_BYTES):
        yield PublishFrames(piece)
