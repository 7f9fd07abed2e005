"""A publisher's stream to one open segment: connects, sends, reconnects, and hands over when the segment is sealed.

A session is one stream. Unacknowledged frames of a session stay in the window, and the next session sends them again.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.publish.outbox import Action, Outbox
from seaweedmq.client.publish.publish_stream import UPDATE_SILENCE_S, PublishStream, retry_pause_s
from seaweedmq.client.retry import pauses
from seaweedmq.errors import DeadlineExceeded, InvalidArgument, NotFound, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import PublishAck, PublishReady, PublishSealed
from seaweedmq.model.segment import Segment
from seaweedmq.runtime.retrying import is_retryable

T = TypeVar("T")


class SegmentSender:
    """A sender of the frames of one window, in order, until its segment is sealed and the window is handed over.

    ``report`` is called with the actions of every change of the window.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: TopicView,
        outbox: Outbox,
        segment: int,
        report: Callable[[Iterable[Action]], None],
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._outbox = outbox
        self._window = outbox.window(segment)
        """The window, for queries."""
        self._report = report
        self._segment = segment
        self._pause_s = pauses(cluster.config, cluster.env.rng)
        self._work = asyncio.Event()
        self._stream: PublishStream | None = None
        self._message_bytes = 0
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
        if self._stream is not None:
            self._stream.wake()

    def reopen(self) -> None:
        """End the current stream, if any, without blaming the broker."""
        if self._stream is not None:
            self._stream.end(StaleMetadata("records were overdue: the stream is reopened"))

    def on_update(self) -> None:
        """Handle an update of the topic.

        A frozen broker accepts connections and never answers. Its segments move once its lease ends, and other brokers
        report that.
        """
        if self._awaits_lost_broker and self._stream is not None and not self._view.is_open(self._segment):
            self._stream.end(StaleMetadata(f"{self._window.segment} has ended while its broker did not answer"))

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
                    self._outbox.lost(self._segment, error)
                else:
                    self._report(self._outbox.give_up(self._segment, error))

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
                pause_s = retry_pause_s(error, failures, self._pause_s)
            if await self._view.ends(self._segment, pause_s):
                self._refresh = False
        raise AssertionError("counting ended")

    def _lost(self, error: SeaweedMQError) -> None:
        """Handle a failed attempt. A broker that answered knows more than the view, which is then refreshed."""
        self._outbox.lost(self._segment, error)
        self._refresh = self._lost_s is None

    def _needs_query(self) -> bool:
        """Whether to query the topic: a broker knows more, or none has confirmed the view for a while."""
        if self._refresh or self._lost_s is None:
            return self._refresh
        return asyncio.get_running_loop().time() >= max(self._lost_s, self._view.current_s) + UPDATE_SILENCE_S

    async def _session(self) -> bool:
        """Run one stream, and return whether the window was handed over; raise if it broke before any progress.

        It returns False if the stream broke after progress, or other brokers reported that the segment has ended.
        """
        try:
            description = await self._view.description(self._needs_query(), (self._segment,))
            self._refresh = False
            segment = description.segment(self._segment)
            if segment is None:
                open_now = await self._view.description(True)
                self._report(self._outbox.pruned(self._segment, (s for s in open_now.segments if s.is_open)))
                return True
        except SeaweedMQError as error:
            self._lost(error)
            raise
        self._progress = False
        try:
            sealed = self._window.sealed_unasked(segment)
            if sealed is None:
                sealed = await self._publish(segment, description)
            successors = await self._successors(sealed.successors)
            self._report(self._outbox.sealed(self._segment, sealed, successors))
        except InvalidArgument as error:
            if not self._window.in_flight:
                self._outbox.lost(self._segment, error)
                raise
            self._report(self._outbox.rejected(self._segment, error))
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

        async def query() -> list[Segment]:
            nonlocal refresh
            wanted = self._outbox.resolve(ids)  # In every attempt: other windows are handed over meanwhile.
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

        return await self._repeat(query)

    async def _publish(self, segment: Segment, description: TopicDescription) -> PublishSealed:
        """Send frames and handle replies until the segment is sealed."""
        try:
            address = self._cluster.address_of(description, segment)
            self._stream = PublishStream(self._cluster, address, segment, description.topic.uid, self)
            if segment.is_open and self._lost_s is not None:
                self._awaits_lost_broker = True
                self._view.want(self._cluster.answer_timeout_s(address))
            sealed = await self._stream.run()
        except SeaweedMQError as error:
            if not isinstance(error, (Unavailable, DeadlineExceeded)):
                self._lost_s = None
            elif self._lost_s is None:
                self._lost_s = asyncio.get_running_loop().time()
            raise
        finally:
            self._stream = None
            self._awaits_lost_broker = False
        assert sealed is not None, "only a sealed segment ends the stream of a window"
        self._lost_s = None
        return sealed

    @property
    def producer(self) -> tuple[int, int]:
        """The producer's id and epoch."""
        return self._outbox.producer_id, 0

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest unacknowledged frame."""
        return self._window.first_sequence

    @property
    def in_flight(self) -> int:
        """The number of frames in flight."""
        return self._window.in_flight

    def opened(self, ready: PublishReady, message_bytes: int) -> None:
        """Handle an open stream."""
        self._message_bytes = message_bytes
        self._awaits_lost_broker = False
        self._lost_s = None
        self._report(self._outbox.opened(self._segment, ready))

    async def take(self) -> list[Frames]:
        """Take the frames of the next message; frames in flight make room for more in the outbox."""
        frames = self._outbox.take(self._segment, self._message_bytes)
        if frames:
            self._report(())
        return frames

    async def acked(self, ack: PublishAck) -> bool:
        """Handle acknowledgements. Return False: a window waits for more frames."""
        for frame in ack.frames:
            self._report(self._outbox.acked(self._segment, frame))
        self._progress = True
        if self._window.waiting_bytes and self._stream is not None:
            self._stream.wake()
        return False
