"""A publisher's stream to one open segment: connects, sends, reconnects, and hands over when the segment is sealed.

A session is one stream. Unacknowledged frames of a session stay in the window, and the next session sends them again.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.publish.outbox import Action, Outbox
from seaweedmq.client.retry import pauses
from seaweedmq.codec.frame import HEADER_BYTES, split_payload
from seaweedmq.core.publish.send_window import SendWindow
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
"""Limit up to which small frames are joined: one message costs more than a copy of this size."""


UPDATE_SILENCE_S = 1.5
"""Time without an update after which brokers are queried about a segment whose broker is lost. Its segments end soon,
and other brokers report that, or that nothing is new, by themselves."""


class SegmentSender:
    """A sender of the frames of one window, in order, until its segment is sealed and the window is handed over.

    Args:
        cluster: The cluster.
        view: The topic.
        outbox: The owner of the window.
        window: The window.
        report: Called with the actions of every change of the window.
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
        """Whether the next attempt begins with a query of the topic."""
        self._lost_s: float | None = None
        """Loop time since which the segment's broker is unreachable; None if it is reachable."""
        self._progress = False
        self._awaits_lost_broker = False
        """Whether the stream waits for the first reply of a broker that was unreachable before."""

    def wake(self) -> None:
        """Send what the window has."""
        self._work.set()
        self._send.set()

    def reopen(self) -> None:
        """End the current stream, if any, without blaming the broker."""
        if self._talk is not None:
            self._talk.end(StaleMetadata("records were overdue: the stream is reopened"))

    def told(self) -> None:
        """Handle an update of the topic.

        A frozen broker accepts connections and never answers. Its segments move once its lease ends, and other brokers
        report that.
        """
        if self._awaits_lost_broker and self._talk is not None and not self._view.is_open(self._segment):
            self._talk.end(StaleMetadata(f"{self._window.segment} has ended while its broker did not answer"))

    async def run(self) -> None:
        """Send until the window is handed over. Cancel to stop."""
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
        """Repeat ``attempt`` until it succeeds, fails permanently, or the window is empty.

        Without tenacity, which keeps about 50 objects per sender while its stream lives: with 1,800 senders that was a
        third of all objects that the garbage collector visits.
        """
        for failures in itertools.count(1):
            try:
                return await attempt()
            except SeaweedMQError as error:
                if not is_retryable(error) or not len(self._window):
                    raise
                # Connection refused: the process has ended, and its segments move to other brokers.
                pause_s = UPDATE_SILENCE_S if isinstance(error, ConnectionRefused) else self._pause_s(failures)
            if await self._view.ends(self._segment, pause_s):
                self._refresh = False
        raise AssertionError("counting ended")

    def _lost(self, error: SeaweedMQError) -> None:
        """Handle a failed attempt. A broker that answered knows more than the view, which is then refreshed."""
        self._window.lost(error)
        self._refresh = self._lost_s is None

    def _looks(self) -> bool:
        """Whether to query the topic: a broker knows more, or none has confirmed the view for a while."""
        if self._refresh or self._lost_s is None:
            return self._refresh
        return asyncio.get_running_loop().time() >= max(self._lost_s, self._view.current_s) + UPDATE_SILENCE_S

    async def _session(self) -> bool:
        """Run one stream.

        Returns:
            True if the window was handed over. False if the stream broke after progress, or other brokers reported
            meanwhile that the segment has ended.

        Raises:
            NotFound: If the topic was deleted.
            SeaweedMQError: If it broke before any progress. The caller retries with back-off if it is retriable.
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
            # The description had the segment just now: the next one shows whether the topic was deleted.
            raise StaleMetadata(str(error)) from error
        except SeaweedMQError as error:
            self._lost(error)
            if is_retryable(error) and segment.is_open and not self._view.is_open(self._segment):
                self._refresh = False  # It has ended meanwhile, and its successors are known.
                return False
            if is_retryable(error) and self._progress:
                return False
            raise
        return True

    async def _successors(self, ids: Iterable[int]) -> list[Segment]:
        """Return the segments that take over.

        After a merge the window of the other predecessor may have passed through the successor already. After a long
        pause of the publisher, successors may be pruned; then all open segments are returned.
        """
        refresh = False

        async def look() -> list[Segment]:
            nonlocal refresh
            wanted = self._outbox.follow(ids)  # In every attempt: other windows are handed over meanwhile.
            description = await self._view.description(refresh, wanted)
            found = description.by_id()
            if wanted and found.keys() >= wanted:
                return [found[number] for number in sorted(wanted)]
            refresh = True
            if wanted and max(wanted) < description.topic.next_segment:
                return [s for s in description.segments if s.is_open]
            raise Unavailable(
                f"the successors {sorted(wanted)} of the sealed segment {self._window.segment} are not known yet: retry"
            )

        return await self._repeat(look)

    async def _stream(self, segment: Segment, description: TopicDescription) -> PublishSealed:
        """Send frames and handle replies until the segment is sealed.

        Raises:
            SeaweedMQError: If the stream breaks.
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
                    self._awaits_lost_broker = True
                    self._view.want(self._cluster.answer_timeout_s(address))
                async for reply in self._talk.replies:
                    if isinstance(reply, PublishAck):
                        self._acked(reply)
                        self._talk.expect(stall_timeout_s if self._window.out else None)
                    elif isinstance(reply, PublishReady):
                        self._talk.expect(None)
                        self._awaits_lost_broker = False
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
            self._awaits_lost_broker = False
        raise Unavailable(f"broker {address} ended the stream to {segment}: retry")

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
            self._report(())  # Frames in flight make room for more.
            if len(frames) == 1 and len(frames[0]) > self._message_bytes_max:
                for request in in_pieces(frames[0]):
                    yield request
            else:
                yield PublishFrames(frames[0] if len(frames) == 1 else pack_frames(frames))


def in_pieces(frame: Frames) -> Iterator[PublishRequest]:
    """Yield the messages of a frame that is too large for one."""
    yield FrameHead(bytes(frame[:HEADER_BYTES]))
    for piece in split_payload(memoryview(frame)[HEADER_BYTES:], SENT_PIECE_BYTES):
        yield PublishFrames(piece)
